//! Adds the spans of a tick that has ended to their traces.
//!
//! In a flood, spans beyond twice the tick's limit pass. They become rows at once and open no
//! trace, because they could not stay open anyway. Only the marks that identify their repeats are
//! kept (`passed`), and their number per tick is bounded too.

use super::{Due, NEVER, Tools, Window};
use crate::span::{Span, order};
use crate::trace::seen::{self, Arrival};

impl Window {
    /// Adds the spans of the tick that ends to their traces, or lets them pass.
    pub(super) fn admit(&mut self, due: &mut Due, tools: &mut Tools) {
        let Some(mut cohort) = self.cohorts.pop_back() else { return };
        let mut scratch = std::mem::take(&mut self.scratch);
        let quota = 2 * self.limits.max_tick_spans;
        let (mut repeats, mut late, mut room) = (0, 0, quota);
        let all = scratch.group(&cohort.spans, tools.names, tools.texts);
        for arrivals in all.chunk_by_mut(|a, b| a.trace_id == b.trace_id) {
            self.mark_repeats(arrivals);
            seen::mark_copies(arrivals, &cohort.spans, tools.names);
            if cohort.keys.len() + arrivals.len() > quota {
                repeats += pass(arrivals, &cohort.spans, due, tools);
                self.remember_passed(arrivals, &mut room, tools);
                continue;
            }
            let (at, is_new) = self.slots.find_or_insert(arrivals[0].trace_id);
            let slot = self.slots.get(at);
            let before = if is_new { (NEVER, 0) } else { (slot.last_arrival, slot.head) };
            let new = cohort.push(at, before, arrivals);
            repeats += (arrivals.len() - new as usize) as u64;
            late += u64::from(self.extend(at, is_new, new, (cohort.groups.len() - 1) as u32));
            self.open_spans += new as usize;
        }
        tools.counters.add("duplicate_span", repeats);
        tools.counters.add("late_trace", late);
        if scratch.capacity() <= self.most_spare() {
            self.scratch = scratch;
        }
        self.cohorts.push_back(cohort);
    }

    /// Marks the arrivals of one trace as repeats if they arrived within the last `remember`.
    fn mark_repeats(&self, arrivals: &mut [Arrival]) {
        let oldest = self.filling - self.ticks.remember;
        self.passed.mark_known(arrivals, oldest);
        let Some(slot) = self.slots.find(arrivals[0].trace_id).map(|at| self.slots.get(at)) else { return };
        let mut at = (slot.last_arrival, slot.head);
        while at.0 >= oldest {
            // The cohort being filled was taken out of the queue, so the previous one is last.
            let back = (self.filling - at.0) as usize;
            let Some(cohort) = self.cohorts.len().checked_sub(back).and_then(|i| self.cohorts.get(i)) else {
                break;
            };
            let group = &cohort.groups[at.1 as usize];
            seen::mark_known(arrivals, cohort.known_keys(group));
            at = group.before;
        }
    }

    /// Remembers the marks of spans that passed. `room` is the rest of the tick's limit, so the
    /// result depends on the tick's content alone.
    fn remember_passed(&mut self, arrivals: &[Arrival], room: &mut usize, tools: &mut Tools) {
        for copies in arrivals.chunk_by(|a, b| a.key == b.key) {
            if *room > 0 {
                *room -= 1;
                self.passed.note(&copies[0], self.filling);
            } else {
                tools.counters.add("span_not_remembered", copies.len() as u64);
            }
        }
    }

    /// Updates the slot of a trace with new arrivals. Returns whether a trace was opened that had
    /// been closed before.
    fn extend(&mut self, at: u32, is_new: bool, new: u32, head: u32) -> bool {
        let tick = self.filling;
        let slot = self.slots.get_mut(at);
        if is_new || tick - slot.last_arrival > self.ticks.hold {
            slot.run_first = tick;
        }
        slot.last_arrival = tick;
        slot.head = head;
        if new == 0 {
            return false;
        }
        let opens = !slot.is_open();
        if opens {
            slot.open_since = tick;
            if tick > slot.run_first + self.ticks.life {
                self.lingering.push(at);
            }
        }
        slot.last_span = tick;
        slot.spans += new;
        opens && !is_new
    }
}

/// Turns the arrivals of one trace into a separate trace at once, without changing any open trace.
/// Whether a worker knows what came before the last `remember` must not matter. Returns the number
/// of repeats.
fn pass(arrivals: &[Arrival], spans: &[Span], due: &mut Due, tools: &mut Tools) -> u64 {
    let start = due.spans.len();
    let new = arrivals.iter().filter(|arrival| !arrival.is_repeat);
    due.spans.extend(new.map(|arrival| spans[arrival.at as usize].clone()));
    let passed = &mut due.spans[start..];
    let count = passed.len();
    if count > 0 {
        passed.sort_unstable_by(|a, b| order(a, b, tools.names, tools.texts));
        tools.counters.add("window_overflow", 1);
        due.ends.push(due.spans.len() as u32);
    }
    (arrivals.len() - count) as u64
}
