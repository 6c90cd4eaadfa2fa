//! Loads over time.

use proptest::prelude::*;
use spillway_simulation::application::Shape;
use spillway_simulation::arrivals::Segment;
use spillway_simulation::engine::Engine;

use crate::applications::{entry, queue};

proptest! {
    /// The expected number of requests arrives, in order, within the load's time.
    #[test]
    fn a_load_over_time_has_as_many_requests_as_its_integral(
        rates in prop::collection::vec((0.0..50.0f64, 0.0..50.0f64, 0.1..20.0f64), 1..6), seed in 0u64..100,
    ) {
        let segments: Vec<Segment> =
            rates.iter().map(|&(rate, to_rate, seconds)| Segment { seconds, rate, to_rate }).collect();
        let expected: f64 = rates.iter().map(|(a, b, s)| s * (a + b) / 2.0).sum();
        let seconds: f64 = rates.iter().map(|r| r.2).sum();
        let mut engine = Engine::new(queue(1, Shape::Constant, 1e-6), entry(), vec![], 9.0, seed);
        engine.set_load(vec![segments], false);
        engine.run(seconds + 1.0);
        let ended = engine.take_ended();
        prop_assert!((ended.len() as f64 - expected).abs() <= 1.0, "{} of {expected}", ended.len());
        prop_assert!(ended.at_s.windows(2).all(|pair| pair[0] <= pair[1]));
        prop_assert!(ended.at_s.iter().all(|at| *at <= seconds + 1e-9));
    }
}
