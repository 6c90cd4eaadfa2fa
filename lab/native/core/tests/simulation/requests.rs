//! What happens to requests, and that none is lost.

use proptest::prelude::*;
use spillway_simulation::application::Shape;
use spillway_simulation::engine::Engine;
use spillway_simulation::places::State;
use spillway_simulation::users::Kind;

use crate::applications::{chain, entry, load, queue};

#[test]
fn a_call_to_another_cluster_takes_the_round_trip_and_its_bytes_are_counted() {
    let mut app = chain(0.0, 100, 10.0, false);
    for endpoint in &mut app.endpoints {
        endpoint.shape = Shape::Constant;
    }
    let mut engine = Engine::new(app, entry(), vec![], 10.0, 1);
    engine.set_round_trips(&[0.0, 0.05, 0.05, 0.0]);
    engine.set_weights(&[0.0, 1.0, 0.0, 1.0]);
    engine.set_load(vec![load(1.0, 10.0), vec![]], false);
    engine.run(100.0);
    let (ended, counts) = (engine.take_ended(), engine.take_counts());
    assert_eq!(ended.len(), 10);
    assert!(ended.latency_s.iter().all(|l| (l - 0.071).abs() < 1e-9), "{:?}", ended.latency_s);
    assert_eq!(counts.bytes, vec![0, 20 * 10, 20 * 100, 0]);
    assert_eq!(counts.calls, vec![0, 20, 0, 0]);
}

#[test]
fn recorded_requests_wait_for_the_first_free_worker() {
    for (workers, expected) in [(1, [10, 20, 30]), (2, [10, 10, 20])] {
        let kinds = vec![Kind { endpoint: 0, shares: vec![1.0; 2] }; 2];
        let mut engine = Engine::new(queue(workers, Shape::Constant, 0.01), kinds, vec![], 10.0, 1);
        engine.set_requests(vec![vec![(5.0, 0), (5.0, 1), (5.0, 0)]]);
        engine.run(f64::INFINITY);
        let ended = engine.take_ended();
        let latency_ms: Vec<i64> = ended.latency_s.iter().map(|s| (s * 1000.0).round() as i64).collect();
        assert_eq!((latency_ms, ended.kind), (expected.to_vec(), vec![0, 1, 0]));
        assert_eq!((ended.at_s, engine.in_progress()), (vec![5.0; 3], 0));
    }
}

#[test]
fn calls_without_a_way_or_a_weight_fail_at_once() {
    for (way, weights) in [(f64::INFINITY, [0.0, 1.0, 0.0, 1.0]), (0.05, [0.0; 4])] {
        let mut engine = Engine::new(chain(0.0, 100, 10.0, false), entry(), vec![], 10.0, 1);
        engine.set_round_trips(&[0.0, way, way, 0.0]);
        engine.set_weights(&weights);
        engine.set_load(vec![load(1.0, 10.0), vec![]], false);
        engine.run(10.0);
        let (ended, counts) = (engine.take_ended(), engine.take_counts());
        assert_eq!((ended.len(), ended.ok.iter().any(|ok| *ok)), (10, false));
        assert_eq!((counts.calls.iter().sum::<u64>(), engine.in_progress()), (0, 0));
    }
}

#[test]
fn a_caller_that_waits_too_long_fails_and_the_callee_finishes() {
    let mut app = chain(0.0, 100, 10.0, false);
    app.endpoints[1].mean_s = vec![3.0; 2];
    app.endpoints[1].shape = Shape::Constant;
    let mut engine = Engine::new(app, entry(), vec![], 10.0, 1);
    engine.set_weights(&[1.0, 0.0, 0.0, 0.0]);
    engine.set_load(vec![load(1.0, 1.0), vec![]], false);
    engine.run(100.0);
    let (ended, counts) = (engine.take_ended(), engine.take_counts());
    assert_eq!((ended.len(), ended.ok[0], ended.latency_s[0]), (1, false, 10.0));
    assert_eq!((counts.served[2], engine.in_progress()), (2, 0));
}

#[test]
fn a_user_waits_no_longer_than_the_timeout() {
    let mut app = queue(1, Shape::Constant, 5.0);
    app.services[0].queue = 10;
    let mut engine = Engine::new(app, entry(), vec![], 2.0, 1);
    engine.set_load(vec![load(1.0, 3.0)], false);
    engine.run(100.0);
    let ended = engine.take_ended();
    assert_eq!((ended.len(), ended.ok.iter().any(|ok| *ok), engine.in_progress()), (3, false, 0));
    // The first is served although nobody waits for it; the others have left the queue.
    assert_eq!(engine.take_counts().served[0], 1);
}

#[test]
fn a_service_that_is_gone_or_slow_shows_it() {
    let mut engine = Engine::new(chain(0.0, 100, 10.0, false), entry(), vec![], 10.0, 1);
    engine.set_weights(&[1.0, 0.0, 0.0, 0.0]);
    engine.set_state(1, 0, State { available: false, ..State::default() });
    engine.set_load(vec![load(10.0, 10.0), vec![]], false);
    engine.run(10.0);
    assert!(engine.take_ended().ok.iter().all(|ok| !ok));
    engine.set_state(1, 0, State { delay_s: 0.5, ..State::default() });
    engine.set_load(vec![load(10.0, 10.0), vec![]], false);
    engine.run(30.0);
    let ended = engine.take_ended();
    assert_eq!(ended.len(), 100);
    assert!(ended.ok.iter().zip(&ended.latency_s).all(|(ok, l)| *ok && *l > 0.5), "{ended:?}");
}

/// Half of the answers come half a second later. A request makes two calls, so three quarters of
/// the requests take so much longer.
#[test]
fn a_share_of_the_answers_is_delayed() {
    let mut engine = Engine::new(chain(0.0, 100, 10.0, false), entry(), vec![], 10.0, 1);
    engine.set_weights(&[1.0, 0.0, 0.0, 0.0]);
    engine.set_state(1, 0, State { delay_s: 0.5, delay_share: 0.5, ..State::default() });
    engine.set_load(vec![load(100.0, 10.0), vec![]], false);
    engine.run(30.0);
    let ended = engine.take_ended();
    let late = ended.latency_s.iter().filter(|latency| **latency >= 0.5).count();
    assert_eq!(ended.len(), 1000);
    assert!((690..810).contains(&late), "{late}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever is refused, late or abandoned: every request ends once, and every arrival is served,
    /// failed, or was given up before it was served.
    #[test]
    fn nothing_is_lost(
        seed in 0u64..1000, rate in 1.0..300.0f64, queue in 0usize..20, timeout in 0.001..0.5f64,
        error_rate in 0.0..0.5f64, optional: bool, user in 0.001..0.5f64, call in 0.001..0.5f64,
        here in 0.0..2.0f64, there in 0.0..2.0f64, workers in 1usize..4,
    ) {
        let mut app = chain(error_rate, queue, timeout, optional);
        app.call_timeout_s = call;
        let mut engine = Engine::new(app, entry(), vec![], user, seed);
        engine.set_round_trips(&[0.0, 0.01, 0.01, 0.0]);
        engine.set_weights(&[here, there, 0.0, 0.0]);
        engine.set_load(vec![load(rate, 5.0), vec![]], true);
        engine.run(2.0);
        engine.set_workers(1, 0, workers);
        engine.set_pods(1, 0, workers);
        engine.run(1000.0);
        let (ended, counts) = (engine.take_ended(), engine.take_counts());
        prop_assert_eq!(engine.in_progress(), 0);
        prop_assert_eq!(ended.len() as u64, engine.entered);
        prop_assert_eq!(counts.arrived[0], engine.entered);
        for at in 0..4 {
            prop_assert_eq!(counts.arrived[at], counts.served[at] + counts.failed[at]);
        }
        prop_assert!(ended.latency_s.iter().all(|l| *l <= user + 1e-9));
        let calls: u64 = counts.calls.iter().sum();
        prop_assert!(counts.arrived[2] + counts.arrived[3] <= calls);
    }
}
