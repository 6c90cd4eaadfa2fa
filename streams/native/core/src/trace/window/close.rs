//! Decides which traces close at a tick's end, and orders their spans.

use std::cmp::Ordering;

use super::{Due, Tools, Window};
use crate::memory::texts::fold;
use crate::span::{Span, order};
use crate::trace::cohort::Group;
use crate::trace::link::waits;

/// Position of a span of a trace, with the start time that usually decides its order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Picked {
    started_us: i64,
    tick: i64,
    at: u32,
}

impl Window {
    /// Closes traces that have too many spans, or that the tick has no room for.
    pub(super) fn close_excess(&mut self, due: &mut Due, tools: &mut Tools) {
        let groups = self.cohorts.back().map_or(0, |cohort| cohort.groups.len());
        let mut total = 0;
        for i in 0..groups {
            let Some(group) = self.cohorts.back().map(|cohort| cohort.groups[i]) else { return };
            total += group.spans.1 as usize;
            let is_large = self.slots.get(group.slot).spans as usize >= self.limits.max_trace_spans;
            if (is_large || total > self.limits.max_tick_spans) && self.close(group.slot, due, tools) {
                tools.counters.add(if is_large { "window_trace_too_large" } else { "window_overflow" }, 1);
            }
        }
    }

    /// Closes traces that were silent long enough.
    pub(super) fn close_silent(&mut self, due: &mut Due, tools: &mut Tools) {
        for (after, waits_longer) in [(self.ticks.window, true), (self.ticks.hold, false)] {
            let tick = self.filling - after;
            self.each_group(tick, |window, group| {
                if window.slots.get(group.slot).last_span != tick || !window.slots.get(group.slot).is_open() {
                    return;
                }
                let (spans, start) = (window.slots.get(group.slot).spans, due.spans.len());
                if !window.close(group.slot, due, tools) || !waits(&due.spans[start..], &mut window.ids) {
                    return;
                }
                if waits_longer && window.ticks.hold > window.ticks.window {
                    window.slots.get_mut(group.slot).spans = spans;
                    window.open_spans += spans as usize;
                    due.spans.truncate(start);
                    due.ends.pop();
                } else {
                    tools.counters.add("trace_closed_incomplete", 1);
                }
            });
        }
    }

    /// Closes traces that reached the end of their life.
    pub(super) fn close_old(&mut self, due: &mut Due, tools: &mut Tools) {
        let tick = self.filling - self.ticks.life;
        let mut cut = 0;
        self.each_group(tick, |window, group| {
            if window.slots.get(group.slot).run_first == tick {
                cut += u64::from(window.close(group.slot, due, tools));
            }
        });
        let mut lingering = std::mem::take(&mut self.lingering);
        lingering.retain(|at| {
            let slot = self.slots.get(*at);
            let turn = fold(slot.trace_id as u64 | 1, 0x9E37_79B9_7F4A_7C15) >> 1;
            if slot.is_open() && (self.filling + turn as i64 % self.ticks.life) % self.ticks.life == 0 {
                cut += u64::from(self.close(*at, due, tools));
            }
            self.slots.get(*at).is_open()
        });
        self.lingering = lingering;
        tools.counters.add("trace_closed_by_age", cut);
    }

    fn each_group(&mut self, tick: i64, mut visit: impl FnMut(&mut Self, Group)) {
        let count = self.cohort(tick).map_or(0, |cohort| cohort.groups.len());
        for i in 0..count {
            let Some(group) = self.cohort(tick).map(|cohort| cohort.groups[i]) else { return };
            visit(self, group);
        }
    }

    /// Moves the spans of an open trace to `due`, in order. Returns false when the trace is not
    /// open.
    fn close(&mut self, slot: u32, due: &mut Due, tools: &mut Tools) -> bool {
        let found = self.slots.get(slot);
        if !found.is_open() {
            return false;
        }
        let (mut at, since, count) = ((found.last_arrival, found.head), found.open_since, found.spans);
        let mut picked = std::mem::take(&mut self.picked);
        picked.clear();
        while at.0 >= since {
            let Some(cohort) = self.cohort(at.0) else { break };
            let group = &cohort.groups[at.1 as usize];
            let place = |(i, span): (u32, &Span)| Picked { started_us: span.started_us, tick: at.0, at: i };
            picked.extend(cohort.new_spans(group).map(place));
            at = group.before;
        }
        let Tools { names, texts, .. } = tools;
        let span = |place: &Picked| self.cohort(place.tick).map(|cohort| &cohort.spans[place.at as usize]);
        picked.sort_unstable_by(|a, b| {
            let mut tie = || Some(order(span(a)?, span(b)?, names, texts));
            a.started_us.cmp(&b.started_us).then_with(|| tie().unwrap_or(Ordering::Equal))
        });
        due.spans.extend(picked.iter().filter_map(span).cloned());
        self.picked = picked;
        due.ends.push(due.spans.len() as u32);
        self.open_spans -= count as usize;
        self.slots.get_mut(slot).spans = 0;
        true
    }
}
