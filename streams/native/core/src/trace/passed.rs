//! Which spans passed without a trace to remember them by: a mark of each, and the tick in which it came last.

use hashbrown::HashMap;

use crate::memory::texts::fold;
use crate::trace::seen::{Arrival, mixed};

#[derive(Debug, Default)]
pub(crate) struct Passed {
    ticks: HashMap<u64, i64>,
    /// Up to where it was last swept.
    swept: i64,
}

impl Passed {
    pub fn is_empty(&self) -> bool {
        self.ticks.is_empty()
    }

    pub fn note(&mut self, arrival: &Arrival, tick: i64) {
        self.ticks.insert(mark(arrival), tick);
    }

    /// Marks those of one trace that passed in the tick `oldest` or later.
    pub fn mark_known(&self, arrivals: &mut [Arrival], oldest: i64) {
        if self.ticks.is_empty() {
            return;
        }
        for one in arrivals {
            one.is_repeat |= self.ticks.get(&mark(one)).is_some_and(|tick| *tick >= oldest);
        }
    }

    /// What passed before `oldest` is not asked for any more. Sweeping costs as much as there is: it is done four times
    /// in the memory's length.
    pub fn forget(&mut self, oldest: i64, remember: i64) {
        if oldest - self.swept > remember / 4 {
            self.swept = oldest;
            self.ticks.retain(|_, tick| *tick >= oldest);
            self.ticks.shrink_to_fit();
        }
    }
}

/// Of 20 million marks (160 000 in each of 120 ticks, at most 600 MB) and a million questions two are the same by chance once in a million.
fn mark(arrival: &Arrival) -> u64 {
    fold(arrival.key, mixed(arrival.trace_id) | 1)
}
