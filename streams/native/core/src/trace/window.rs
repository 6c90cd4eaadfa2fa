//! Holds spans until their trace is complete, by the time of the log alone.
//!
//! Log time is cut into ticks; what came in one tick is a set, without an order. At a tick's end n, a trace closes
//!
//! - after `window` silent ticks (its newest span came in n - window), unless a client span of it still waits for
//!   the server span that made the call: then after `hold`;
//! - at its `life`: `life` ticks after its run began. A run is what comes of a trace id with never more than `hold`
//!   ticks of silence between. A run that goes on longer is cut every `life` ticks, at ticks that the id decides;
//! - when it has too many spans, or the tick has (then traces stay in the order of `seen::group`, up to the bound;
//!   what is beyond twice the bound passes: `admit`).
//!
//! Later spans are a trace of their own. **Why a worker can start anywhere:** whether a span is a repeat depends on
//! the last `remember` (`seen`). So `remember` after a worker's start all its repeats are right, and at latest
//! hold + life after it every run that it knows is cut where it would be if all of the log were known. The first such cut
//! after `remember` comes within another `life`; from it on the open traces are the same. remember + life is less
//! than the horizon life + hold + remember, and so is hold + life + life.

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

/// Before every tick; far from where arithmetic ends.
const NEVER: i64 = i64::MIN / 4;

/// The traces that closed in one tick, one after the other.
#[derive(Debug, Default)]
pub struct Due {
    pub tick: i64,
    pub spans: Vec<Span>,
    /// Where each trace ends.
    pub ends: Vec<u32>,
}

/// What every step needs.
pub(crate) struct Tools<'a> {
    pub names: &'a Names,
    pub texts: &'a mut Texts,
    pub counters: &'a mut Counters,
}

#[derive(Debug)]
pub(crate) struct Window {
    limits: Limits,
    ticks: Ticks,
    /// The last `remember` ticks and the one that is being filled.
    cohorts: VecDeque<Cohort>,
    /// The tick that is being filled.
    filling: i64,
    slots: Slots,
    /// Spans of floods that came within the memory.
    passed: Passed,
    /// Open traces of runs that are older than `life`.
    lingering: Vec<u32>,
    scratch: Scratch,
    picked: Vec<close::Picked>,
    ids: Ids,
    /// Memory of ticks that are done with, for the next.
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

    /// The spans of the tick that is being filled: append only.
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

    /// Ends every tick before `tick` and gives what closed in each that had something to close.
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

    /// Takes the memory of what was written back.
    pub fn recycle(&mut self, due: Due) {
        let bound = self.most_spare();
        keep(due.spans, &mut self.spare_due, bound);
    }

    /// Spans that there is memory for between ticks: what a flood needed is given back.
    fn most_spare(&self) -> usize {
        2 * self.limits.max_tick_spans
    }

    fn cohort(&self, tick: i64) -> Option<&Cohort> {
        let back = usize::try_from(self.filling - tick).ok()?;
        self.cohorts.get(self.cohorts.len().checked_sub(back + 1)?)
    }

    /// Lets go of spans that are done with, then of what is older than the memory.
    fn forget(&mut self) {
        let Ticks { window, hold, life, remember } = self.ticks;
        // Most traces are closed two windows after a span of theirs came, those that waited after hold; all after life.
        for age in [2 * window, hold + window, life + 1] {
            let (back, tick) = (age as usize, self.filling - age);
            let Some(at) = self.cohorts.len().checked_sub(back + 1) else { continue };
            // Also what is empty: it may have got the memory of a full one.
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

    /// Every string that spans here hold.
    pub fn syms_mut(&mut self) -> impl Iterator<Item = &mut Sym> {
        self.cohorts.iter_mut().flat_map(|cohort| cohort.spans.iter_mut().flat_map(Span::syms_mut))
    }
}

/// Keeps the larger memory of the two, up to a bound.
fn keep(freed: Vec<Span>, spare: &mut Vec<Span>, bound: usize) {
    if (spare.capacity() + 1..=bound).contains(&freed.capacity()) {
        *spare = freed;
        spare.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a flood needed is not held when it is over; what any other tick needs is.
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
