use proptest::prelude::*;

use super::*;

const TICK_NS: u64 = 100_000_000;

/// Requests that arrive at random, always the same ones (numbers by SplitMix64, G. L. Steele 2014).
struct Arrivals {
    seed: u64,
    count: u64,
    /// Requests until the next one arrives, on the scale of a process with rate 1.
    left: f64,
}

impl Arrivals {
    fn new(seed: u64) -> Self {
        Self { seed, count: 0, left: 0.0 }
    }

    fn exponential(&mut self) -> f64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.seed;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        -(((mixed >> 11) + 1) as f64 / (1_u64 << 53) as f64).ln()
    }

    /// Returns the counter after one more tick.
    fn tick(&mut self, rps: f64) -> u64 {
        self.left -= rps * TICK_NS as f64 / SECOND_NS;
        while self.left < 0.0 {
            self.left += self.exponential();
            self.count += 1;
        }
        self.count
    }
}

/// Ticks with their numbers as states.
struct Proxy {
    changes: Changes<u64>,
    arrivals: Arrivals,
    ticks: u64,
}

impl Proxy {
    fn new(seed: u64) -> Self {
        Self { changes: Changes::default(), arrivals: Arrivals::new(seed), ticks: 0 }
    }

    fn tick(&mut self, rps: f64) {
        self.ticks += 1;
        let (ticks, count) = (self.ticks, self.arrivals.tick(rps));
        self.changes.sample(ticks * TICK_NS, count, || ticks);
    }

    /// Runs with a report every second, and early ones. Returns the number of early ones.
    fn run(&mut self, rps: f64, seconds: u64) -> usize {
        let mut early = 0;
        for tick in 1..=10 * seconds {
            self.tick(rps);
            early += usize::from(self.changes.noticed());
            if self.changes.noticed() || tick % 10 == 0 {
                self.changes.reported();
            }
        }
        early
    }
}

/// At a steady rate, a proxy sends less than eight reports too many per minute, whatever the rate.
#[test]
fn a_steady_load_is_hardly_ever_reported_early() {
    for (seed, rps) in [0.2, 2.0, 5.0, 10.0, 60.0, 400.0, 5_000.0].into_iter().enumerate() {
        let mut proxy = Proxy::new(seed as u64);
        proxy.run(rps, 10);
        let early = proxy.run(rps, 600);
        assert!(early < 80, "{rps} requests/s: {early} early reports in 10 minutes");
    }
}

/// A load that doubles or halves is noticed within half a second. The state that is returned is of
/// the time of the change, give or take two ticks. A tenth of all seeds may miss either.
#[test]
fn a_change_is_noticed_soon_and_where_it_was() {
    for (before, after) in [(60.0, 130.0), (130.0, 60.0), (400.0, 800.0), (800.0, 400.0), (0.0, 40.0)] {
        let found = (0..50).filter(|seed| {
            let mut proxy = Proxy::new(*seed);
            proxy.run(before, 20);
            let changed = proxy.ticks;
            while !proxy.changes.noticed() && proxy.ticks < changed + 20 {
                proxy.tick(after);
            }
            let since = proxy.changes.reported().map_or(changed, |since| *since);
            proxy.ticks <= changed + 5 && since.abs_diff(changed) <= 2
        });
        let found = found.count();
        assert!(found >= 45, "{before} to {after}: {found} of 50");
    }
}

/// A change is reported at each tick for about two seconds. Then its rate is what is usual.
#[test]
fn a_change_that_lasts_is_soon_usual() {
    let mut proxy = Proxy::new(1);
    proxy.run(60.0, 20);
    let early = proxy.run(300.0, 10);
    assert!((15..30).contains(&early), "{early} early reports");
    assert!((proxy.changes.rate - 300.0).abs() < 60.0, "{} requests/s", proxy.changes.rate);
}

/// The moment of a change is returned once. After that, readers can count from the last report.
#[test]
fn a_moment_is_reported_once() {
    let mut changes = Changes::default();
    let mut count = 0;
    let mut tick = |changes: &mut Changes<u64>, tick: u64, requests: u64| {
        count += requests;
        changes.sample(tick * TICK_NS, count, || tick);
    };
    (1..=50).for_each(|number| tick(&mut changes, number, 6));
    (51..=53).for_each(|number| tick(&mut changes, number, 60));
    assert!(changes.noticed());
    assert_eq!(changes.reported().as_deref(), Some(&50));
    tick(&mut changes, 54, 60);
    assert!(changes.noticed());
    assert_eq!(changes.reported(), None);
}

/// A clock that was set, and a worker that stalled, are no change of load.
#[test]
fn a_clock_that_was_set_is_no_change() {
    for jump_ns in [3_600 * 1_000_000_000, 0] {
        let mut proxy = Proxy::new(2);
        proxy.run(60.0, 20);
        let count = proxy.arrivals.tick(60.0);
        proxy.changes.sample(jump_ns, count, || 0);
        assert!(!proxy.changes.noticed());
    }
}

proptest! {
    /// Evidence and the mean rate stay finite, whatever the clock and the counter do.
    #[test]
    fn finite(samples in proptest::collection::vec((any::<u64>(), any::<u64>()), 0..100)) {
        let mut changes = Changes::default();
        for (at_ns, count) in samples {
            changes.sample(at_ns, count, || ());
            prop_assert!(changes.rate.is_finite() && changes.rate >= 0.0);
            prop_assert!(changes.up.nats.is_finite() && changes.down.nats.is_finite());
        }
    }
}
