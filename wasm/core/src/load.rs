//! Arrival rate over the last second, from a counter that all workers of the proxy share.

use std::collections::VecDeque;

const SECOND_NS: u64 = 1_000_000_000;
/// More than a second of samples at the shortest tick; older ones are of no use.
const MAX_SAMPLES: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Sample {
    at_ns: u64,
    count: u64,
}

/// Shorter histories tell no rate: at the tick's length a single arrival would be ten per second.
const MIN_HISTORY_NS: u64 = SECOND_NS / 5;

/// Load that a request met.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Requests inside, this one included.
    pub in_flight: u64,
    /// Arrivals per second over the second before this one; None while that is not known.
    pub arrival_rate: Option<f64>,
}

/// Load of the whole service and of the request's class alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loads {
    /// All requests of this proxy.
    pub service: Load,
    /// Those of the class; None without a class, or with one beyond the bound.
    pub class: Option<Load>,
}

/// Samples of the arrivals counter over a little more than a second. Each VM keeps its own; what
/// they sample is one atomic counter, so all agree without a lock.
#[derive(Debug, Default)]
pub struct LoadWindow {
    samples: VecDeque<Sample>,
}

impl LoadWindow {
    /// Notes the counter's value at `at_ns` (monotonic), on every tick.
    pub fn sample(&mut self, at_ns: u64, count: u64) {
        // The newest sample that is a second old is the base of the window; none before it matters.
        let base = at_ns.saturating_sub(SECOND_NS);
        while self.samples.get(1).is_some_and(|second| second.at_ns <= base)
            || self.samples.len() >= MAX_SAMPLES
        {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample { at_ns, count });
    }

    /// Arrivals per second over `(now - 1 s, now]`, given the counter's value `count` at `now_ns`.
    /// Between two samples the counter is taken to have grown evenly. A counter that began at nothing
    /// has no unseen past; of one that this worker met later than others, what it saw is extrapolated.
    pub fn rate(&self, now_ns: u64, count: u64) -> Option<f64> {
        let first = *self.samples.front()?;
        let elapsed = now_ns.saturating_sub(first.at_ns);
        if elapsed < SECOND_NS {
            let seen = count.saturating_sub(first.count) as f64;
            return match first.count {
                0 => Some(seen),
                _ if elapsed >= MIN_HISTORY_NS => Some(seen * SECOND_NS as f64 / elapsed as f64),
                _ => None,
            };
        }
        let start = now_ns.saturating_sub(SECOND_NS);
        let now = Sample { at_ns: now_ns, count };
        let mut before = first;
        for sample in self.samples.iter().skip(1).chain(std::iter::once(&now)) {
            if sample.at_ns > start {
                let base = interpolate(before, *sample, start);
                return Some((count as f64 - base).max(0.0));
            }
            before = *sample;
        }
        Some(0.0)
    }
}

fn interpolate(a: Sample, b: Sample, at_ns: u64) -> f64 {
    let span = b.at_ns.saturating_sub(a.at_ns).max(1) as f64;
    let part = at_ns.saturating_sub(a.at_ns) as f64 / span;
    a.count as f64 + b.count.saturating_sub(a.count) as f64 * part
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    /// A steady stream of arrivals is seen at its rate, at any instant between ticks.
    #[test]
    fn steady_rate_is_exact() {
        let mut window = LoadWindow::default();
        let count_at = |ns: u64| ns / MS / 2; // 500 per second
        for tick in 0..=30 {
            window.sample(tick * 100 * MS, count_at(tick * 100 * MS));
        }
        for ms in 3_000..3_100 {
            let rate = window.rate(ms * MS, count_at(ms * MS)).unwrap();
            assert!((rate - 500.0).abs() <= 1.0, "{rate} at {ms} ms");
        }
    }

    /// A burst older than a second has left the window; one within it is still there.
    #[test]
    fn only_the_last_second_counts() {
        let mut window = LoadWindow::default();
        window.sample(0, 0);
        for tick in 1..=20 {
            window.sample(tick * 100 * MS, 1000); // 1 000 arrivals in the first 100 ms
            if tick == 9 {
                assert_eq!(window.rate(900 * MS, 1000), Some(1000.0));
            }
        }
        assert_eq!(window.rate(2_000 * MS, 1000), Some(0.0));
    }

    /// Without ticks for long (a stalled worker) the rate is the average since the last sample.
    #[test]
    fn stalled_ticks_average() {
        let mut window = LoadWindow::default();
        window.sample(0, 0);
        assert_eq!(window.rate(10 * SECOND_NS, 1000), Some(100.0));
        assert_eq!(LoadWindow::default().rate(5, 7), None);
    }

    /// A worker that meets a busy counter tells nothing at first, then what it saw, then the truth.
    #[test]
    fn late_worker_extrapolates() {
        let mut window = LoadWindow::default();
        let count_at = |ms: u64| 1_000_000 + ms / 2;
        window.sample(0, count_at(0));
        assert_eq!(window.rate(100 * MS, count_at(100)), None);
        assert_eq!(window.rate(400 * MS, count_at(400)), Some(500.0));
        window.sample(900 * MS, count_at(900));
        assert_eq!(window.rate(1_400 * MS, count_at(1_400)), Some(500.0));
    }

    proptest! {
        /// The window stays bounded and the rate lies between nothing and everything, whatever the
        /// clock and the counter do.
        #[test]
        fn bounded(samples in proptest::collection::vec((any::<u64>(), any::<u64>()), 0..200), now: u64, count: u64) {
            let mut window = LoadWindow::default();
            for (at, count) in samples {
                window.sample(at, count);
                prop_assert!(window.samples.len() <= MAX_SAMPLES);
            }
            if let Some(rate) = window.rate(now, count) {
                prop_assert!((0.0..=count as f64 * 5.0).contains(&rate));
            }
        }
    }
}
