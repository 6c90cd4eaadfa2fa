//! Notices within a few ticks that requests arrive at another rate than before.
//!
//! Requests of independent users are a Poisson process. Two tests (CUSUM, E. S. Page 1954) add up
//! the evidence for a rate that is higher, or lower, than the mean of the last seconds. Evidence
//! that falls below zero begins anew, so the last such moment is where a change began. What readers
//! need in order to count from there is remembered at that moment.

use std::rc::Rc;

const SECOND_NS: f64 = 1e9;
/// The change that the tests are made for: this factor, up or down.
const FACTOR: f64 = 1.5;
/// Evidence of a change, in nats. A steady load reaches it a few times per minute at most.
const ENOUGH: f64 = 5.0;
/// Evidence beyond this is not kept, so that a change that was none is soon forgotten.
const MOST: f64 = ENOUGH + 2.0;
/// Evidence from which on a report that is due anyway also says where the change began.
const SOME: f64 = 2.0;
/// Time constant of the mean rate, in seconds.
const MEAN_S: f64 = 4.0;
/// Age of a change, in seconds, at which the rate since then becomes the mean. Readers need more
/// evidence than the tests, and until then they get a report at each tick.
const SETTLED_S: f64 = 2.0;
/// Requests per second below which rates are not compared. Single requests are no change.
const LEAST_RPS: f64 = 5.0;

/// A reading of the counter.
#[derive(Clone, Copy, Debug)]
struct Reading {
    at_ns: u64,
    count: u64,
}

impl Reading {
    /// Returns the seconds and the requests since an earlier reading.
    fn since(self, earlier: Self) -> (f64, f64) {
        let seconds = self.at_ns.saturating_sub(earlier.at_ns) as f64 / SECOND_NS;
        (seconds, self.count.saturating_sub(earlier.count) as f64)
    }
}

/// Evidence for one direction. `begun` is the last reading without any. `state` is what was
/// remembered then, until it is reported.
#[derive(Debug)]
struct Side<S> {
    nats: f64,
    begun: Option<Reading>,
    state: Option<Rc<S>>,
}

impl<S> Default for Side<S> {
    fn default() -> Self {
        Self { nats: 0.0, begun: None, state: None }
    }
}

/// The arrivals of one proxy. `S` is what readers need in order to count from a moment.
#[derive(Debug)]
pub struct Changes<S> {
    last: Option<Reading>,
    rate: f64,
    /// Seconds that the mean rate rests on.
    seconds: f64,
    up: Side<S>,
    down: Side<S>,
}

impl<S> Default for Changes<S> {
    fn default() -> Self {
        Self { last: None, rate: 0.0, seconds: 0.0, up: Side::default(), down: Side::default() }
    }
}

impl<S> Changes<S> {
    /// Takes the value of the arrivals counter at a tick. `state` is called when this moment may
    /// turn out to be the beginning of a change.
    pub fn sample(&mut self, at_ns: u64, count: u64, state: impl FnOnce() -> S) {
        let now = Reading { at_ns, count };
        let Some(last) = self.last.replace(now) else { return };
        let (seconds, arrived) = now.since(last);
        // A clock that was set, or a stalled worker: nothing is known of single ticks.
        if seconds <= 0.0 || seconds > MEAN_S {
            *self = Self { last: self.last, ..Self::default() };
            return;
        }
        if self.seconds > 0.0 {
            self.weigh(seconds, arrived);
        }
        self.seconds = (self.seconds + seconds).min(MEAN_S);
        self.rate += (arrived / seconds - self.rate) * (seconds / self.seconds).min(1.0);
        self.settle(now);
        self.remember(now, state);
    }

    /// Adds the evidence of one tick.
    fn weigh(&mut self, seconds: f64, arrived: f64) {
        let (more, expected) = (arrived * FACTOR.ln(), seconds * self.rate);
        let up = more - expected.max(seconds * LEAST_RPS) * (FACTOR - 1.0);
        let down = if self.rate < LEAST_RPS { 0.0 } else { expected * (1.0 - 1.0 / FACTOR) - more };
        self.up.nats = (self.up.nats + up).clamp(0.0, MOST);
        self.down.nats = (self.down.nats + down).clamp(0.0, MOST);
    }

    /// Makes the rate since a change the mean, once the change is old enough to know it.
    fn settle(&mut self, now: Reading) {
        let side = if self.up.nats >= self.down.nats { &self.up } else { &self.down };
        let Some((seconds, arrived)) = side.begun.map(|begun| now.since(begun)) else { return };
        if side.nats >= ENOUGH && seconds >= SETTLED_S {
            (self.rate, self.seconds) = (arrived / seconds, seconds.min(MEAN_S));
            (self.up, self.down) = (Side::default(), Side::default());
        }
    }

    /// Remembers this moment for the sides without evidence.
    fn remember(&mut self, now: Reading, state: impl FnOnce() -> S) {
        let sides = [&mut self.up, &mut self.down].into_iter().filter(|side| side.nats <= 0.0);
        let mut sides = sides.peekable();
        if sides.peek().is_some() {
            let state = Rc::new(state());
            sides.for_each(|side| {
                *side = Side { nats: 0.0, begun: Some(now), state: Some(Rc::clone(&state)) };
            });
        }
    }

    /// Whether the rate has changed, and is not settled yet.
    pub fn noticed(&self) -> bool {
        self.up.nats.max(self.down.nats) >= ENOUGH
    }

    /// Takes note of a report. Returns the state at which the rate may have changed.
    ///
    /// Returns None if there is little evidence, or if that moment was before the last report.
    pub fn reported(&mut self) -> Option<Rc<S>> {
        let side = if self.up.nats >= self.down.nats { &mut self.up } else { &mut self.down };
        let state = side.state.take().filter(|_| side.nats >= SOME);
        (self.up.state, self.down.state) = (None, None);
        state
    }
}

#[cfg(test)]
#[path = "changes_tests.rs"]
mod tests;
