//! Measures the arrival rate over the last second, from a counter that all workers of the proxy
//! share.

use std::collections::VecDeque;

const SECOND_NS: u64 = 1_000_000_000;
/// More samples than one second holds at the shortest tick. Older samples are not needed.
const MAX_SAMPLES: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Sample {
    at_ns: u64,
    count: u64,
}

/// Shortest history from which a rate is computed. Over one tick, a single arrival would count as
/// ten per second.
const MIN_HISTORY_NS: u64 = SECOND_NS / 5;

/// The load that a request met on arrival.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Number of requests in flight, including this one.
    pub in_flight: u64,
    /// Arrivals per second over the second before this request. None while the rate is unknown.
    pub arrival_rate: Option<f64>,
}

/// The load of the whole service and of the request's class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loads {
    /// Load of all requests of this proxy.
    pub service: Load,
    /// Load of the request's class. None without a class, or when the class has no stats of its
    /// own.
    pub class: Option<Load>,
}

/// Samples of the arrivals counter over slightly more than a second.
///
/// Each VM keeps its own samples. They all sample the same atomic counter, so the VMs agree without
/// a lock.
#[derive(Debug, Default)]
pub struct LoadWindow {
    samples: VecDeque<Sample>,
}

impl LoadWindow {
    /// Records the counter's value at `at_ns` (monotonic). Called on every tick.
    pub fn sample(&mut self, at_ns: u64, count: u64) {
        // The newest sample that is at least a second old is the base of the window. Older samples
        // are not needed.
        let base = at_ns.saturating_sub(SECOND_NS);
        while self.samples.get(1).is_some_and(|second| second.at_ns <= base)
            || self.samples.len() >= MAX_SAMPLES
        {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample { at_ns, count });
    }

    /// Returns the arrivals per second over `(now - 1 s, now]`, given the counter's value `count`
    /// at `now_ns`.
    ///
    /// Between two samples, the counter is assumed to have grown evenly. With less than a second of
    /// history, a counter whose first sample was 0 is exact. If the first sample was higher, this
    /// worker met the counter later than others, and the observed arrivals are extrapolated.
    /// Returns None when that history is shorter than `MIN_HISTORY_NS`, or when there is no sample.
    pub fn rate(&self, now_ns: u64, count: u64) -> Option<f64> {
        let first = *self.samples.front()?;
        let elapsed = now_ns.saturating_sub(first.at_ns);
        if elapsed < SECOND_NS {
            let observed = count.saturating_sub(first.count) as f64;
            return match first.count {
                0 => Some(observed),
                _ if elapsed >= MIN_HISTORY_NS => Some(observed * SECOND_NS as f64 / elapsed as f64),
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

    /// A steady stream of arrivals has its rate at any instant between ticks.
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

    /// A burst older than a second has left the window. A burst within the last second has not.
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

    /// After a long time without ticks (a stalled worker), the rate is the average since the last
    /// sample.
    #[test]
    fn stalled_ticks_average() {
        let mut window = LoadWindow::default();
        window.sample(0, 0);
        assert_eq!(window.rate(10 * SECOND_NS, 1000), Some(100.0));
        assert_eq!(LoadWindow::default().rate(5, 7), None);
    }

    /// A worker that meets a busy counter first reports no rate, then an extrapolated rate, then
    /// the exact rate.
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
        /// The window stays bounded, and the rate lies within its bounds, whatever the clock and
        /// the counter do.
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
