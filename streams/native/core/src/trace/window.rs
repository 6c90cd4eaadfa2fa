//! Holds spans until their trace is complete, by log time alone.
//!
//! Log time is cut into ticks. The spans that arrive in one tick are a set without an order. At the
//! end of tick n, a trace closes in one of these cases:
//!
//! - After `window` silent ticks (its newest span arrived in n - window). If a client span of it
//!   still waits for the server span that made the call, it closes after `hold` silent ticks
//!   instead.
//! - At its `life`: `life` ticks after its run began. A run consists of the arrivals of one trace
//!   id with never more than `hold` ticks of silence in between. A run that goes on longer is cut
//!   every `life` ticks, at ticks that depend on the trace id.
//! - When it has too many spans, or when the tick has. In the latter case, traces stay open in the
//!   order of `seen::group`, up to the limit. Spans beyond twice the limit pass (see `admit`).
//!
//! Spans that arrive later form a trace of their own.
//!
//! **Why a worker can start anywhere:** whether a span is a repeat depends on the last `remember`
//! (`seen`). All repeats are therefore correct from `remember` after a worker's start on. At the
//! latest hold + life after the start, every run that the worker knows is cut where it would be cut
//! with the whole log. The first such cut after `remember` comes within another `life`. From that
//! cut on, the open traces are the same. Neither remember + life nor hold + life + life exceeds the
//! horizon life + hold + remember.

mod admit;
mod close;

use std::collections::VecDeque;

use crate::counters::Counters;
use crate::limits::{Limits, Ticks};
use crate::memory::names::{Names, Sym};
use crate::memory::texts::Texts;
use crate::span::Span;
use crate::trace::cohort::{Cohort, Scratch};
use crate::trace::ids::Ids;
use crate::trace::passed::Passed;
use crate::trace::slots::Slots;

/// A tick before every other, but far from the limits of arithmetic.
const NEVER: i64 = i64::MIN / 4;

/// The traces that closed in one tick, one after the other.
#[derive(Debug, Default)]
pub struct Due {
    pub tick: i64,
    pub spans: Vec<Span>,
    /// End of each trace in `spans`.
    pub ends: Vec<u32>,
}

/// Tables and counters that every step needs.
pub(crate) struct Tools<'a> {
    pub names: &'a Names,
    pub texts: &'a mut Texts,
    pub counters: &'a mut Counters,
}

/// The spans of one partition that are open or remembered.
#[derive(Debug)]
pub(crate) struct Window {
    limits: Limits,
    ticks: Ticks,
    /// The cohorts of the last `remember` ticks and of the tick that is being filled.
    cohorts: VecDeque<Cohort>,
    /// The tick that is being filled.
    filling: i64,
    slots: Slots,
    /// The spans of floods that arrived within the memory.
    passed: Passed,
    /// Open traces whose runs are older than `life`.
    lingering: Vec<u32>,
    scratch: Scratch,
    picked: Vec<close::Picked>,
    ids: Ids,
    /// Memory of finished ticks, reused by the next ones.
    spare: Vec<Span>,
    spare_due: Vec<Span>,
    pub open_spans: usize,
}

impl Window {
    pub fn new(limits: Limits, first_tick: i64) -> Self {
        Window {
            ticks: limits.ticks(),
            limits,
            cohorts: VecDeque::from([Cohort::default()]),
            filling: first_tick,
            slots: Slots::default(),
            passed: Passed::default(),
            lingering: Vec::new(),
            scratch: Scratch::default(),
            picked: Vec::new(),
            ids: Ids::default(),
            spare: Vec::new(),
            spare_due: Vec::new(),
            open_spans: 0,
        }
    }

    pub fn filling(&self) -> i64 {
        self.filling
    }

    /// Returns the spans of the tick that is being filled. Callers may only append.
    pub fn arriving(&mut self) -> &mut Vec<Span> {
        if self.cohorts.is_empty() {
            self.cohorts.push_back(Cohort::default());
        }
        let last = self.cohorts.len() - 1;
        &mut self.cohorts[last].spans
    }

    pub fn traces(&self) -> usize {
        self.slots.len()
    }

    /// Ends every tick before `tick`. Returns the closed traces of each tick that closed any.
    pub fn advance(&mut self, tick: i64, tools: &mut Tools) -> Vec<Due> {
        let mut due = Vec::new();
        while self.filling < tick {
            let is_idle = self.passed.is_empty() && self.cohorts.iter().all(Cohort::is_empty);
            if tick - self.filling > 1 && is_idle {
                self.cohorts = VecDeque::from([Cohort::default()]);
                self.slots.clear();
                self.filling = tick;
                break;
            }
            let closed = self.end_tick(tools);
            match closed.ends.is_empty() {
                true => self.recycle(closed),
                false => due.push(closed),
            }
        }
        due
    }

    fn end_tick(&mut self, tools: &mut Tools) -> Due {
        let mut due =
            Due { tick: self.filling, spans: std::mem::take(&mut self.spare_due), ends: Vec::new() };
        self.admit(&mut due, tools);
        self.close_excess(&mut due, tools);
        self.close_silent(&mut due, tools);
        self.close_old(&mut due, tools);
        self.forget();
        self.filling += 1;
        let spans = std::mem::take(&mut self.spare);
        self.cohorts.push_back(Cohort { spans, ..Cohort::default() });
        due
    }

    /// Takes back the memory of traces that were written.
    pub fn recycle(&mut self, due: Due) {
        let bound = self.most_spare();
        keep(due.spans, &mut self.spare_due, bound);
    }

    /// Number of spans for which memory is kept between ticks. The additional memory of a flood is
    /// released.
    fn most_spare(&self) -> usize {
        2 * self.limits.max_tick_spans
    }

    fn cohort(&self, tick: i64) -> Option<&Cohort> {
        let back = usize::try_from(self.filling - tick).ok()?;
        self.cohorts.get(self.cohorts.len().checked_sub(back + 1)?)
    }

    /// Releases spans that are no longer needed, then everything older than the memory.
    fn forget(&mut self) {
        let Ticks { window, hold, life, remember } = self.ticks;
        // Most traces are closed two windows after one of their spans arrived, traces that waited
        // are closed after hold, and all traces after life.
        for age in [2 * window, hold + window, life + 1] {
            let (back, tick) = (age as usize, self.filling - age);
            let Some(at) = self.cohorts.len().checked_sub(back + 1) else { continue };
            // Empty cohorts are included, because they may have received the memory of a full one.
            if self.cohorts[at].spans.capacity() > 0 {
                let freed = self.cohorts[at].shrink(tick, &self.slots);
                let bound = self.most_spare();
                keep(freed, &mut self.spare, bound);
            }
        }
        self.passed.forget(self.filling + 1 - remember, remember);
        if self.cohorts.len() as i64 > remember {
            let tick = self.filling - (self.cohorts.len() as i64 - 1);
            let Some(oldest) = self.cohorts.pop_front() else { return };
            for group in &oldest.groups {
                if self.slots.get(group.slot).last_arrival == tick {
                    self.slots.remove(group.slot);
                }
            }
        }
    }

    /// Returns every string that the held spans use.
    pub fn syms_mut(&mut self) -> impl Iterator<Item = &mut Sym> {
        self.cohorts.iter_mut().flat_map(|cohort| cohort.spans.iter_mut().flat_map(Span::syms_mut))
    }
}

/// Keeps the larger of the two buffers, up to a limit.
fn keep(freed: Vec<Span>, spare: &mut Vec<Span>, bound: usize) {
    if (spare.capacity() + 1..=bound).contains(&freed.capacity()) {
        *spare = freed;
        spare.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory of a flood is released when the flood is over. The memory that a normal tick
    /// needs is kept.
    #[test]
    fn the_memory_of_a_flood_is_given_back() {
        let bound = 2 * 1_000;
        for spans in [bound / 2, 10 * bound] {
            let limits = Limits { max_tick_spans: 1_000, ..Limits::default() };
            let (names, mut texts, mut counters) = Default::default();
            let mut window = Window::new(limits, 0);
            window.arriving().extend((1..=spans as u128).map(|i| Span { trace_id: i, ..Span::default() }));
            let mut tools = Tools { names: &names, texts: &mut texts, counters: &mut counters };
            for due in window.advance(70, &mut tools) {
                window.recycle(due);
            }
            let spare = [&window.spare, &window.spare_due].map(Vec::capacity);
            let most = spare.into_iter().chain([window.scratch.capacity()]).max();
            assert!(most > Some(0) && most <= Some(bound), "{spans}: {most:?}");
            assert!(window.cohorts.iter().all(|cohort| cohort.spans.capacity() <= bound), "{spans}");
        }
    }
}
