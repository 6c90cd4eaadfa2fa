//! Remembers the spans that passed without a trace: a mark of each, and the tick in which it last
//! arrived.

use hashbrown::HashMap;

use crate::memory::texts::fold;
use crate::trace::seen::{Arrival, mixed};

/// Ticks of the last arrival, by mark.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    ticks: HashMap<u64, i64>,
    /// Value of `oldest` at the last sweep.
    swept: i64,
}

impl Passed {
    pub fn is_empty(&self) -> bool {
        self.ticks.is_empty()
    }

    /// Remembers a span that passed in this tick.
    pub fn note(&mut self, arrival: &Arrival, tick: i64) {
        self.ticks.insert(mark(arrival), tick);
    }

    /// Marks the arrivals of one trace as repeats if they passed in the tick `oldest` or later.
    pub fn mark_known(&self, arrivals: &mut [Arrival], oldest: i64) {
        if self.ticks.is_empty() {
            return;
        }
        for arrival in arrivals {
            arrival.is_repeat |= self.ticks.get(&mark(arrival)).is_some_and(|tick| *tick >= oldest);
        }
    }

    /// Removes marks from before `oldest`, which nobody asks for any more. A sweep visits all
    /// marks, so it runs only four times in the length of the memory.
    pub fn forget(&mut self, oldest: i64, remember: i64) {
        if oldest - self.swept > remember / 4 {
            self.swept = oldest;
            self.ticks.retain(|_, tick| *tick >= oldest);
            self.ticks.shrink_to_fit();
        }
    }
}

/// Mark of a span. Assume 20 million marks (160 000 in each of 120 ticks, at most 600 MB) and a
/// million look-ups: two marks are then equal by chance with a probability of one in a million.
fn mark(arrival: &Arrival) -> u64 {
    fold(arrival.key, mixed(arrival.trace_id) | 1)
}
