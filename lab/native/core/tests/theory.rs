//! Mean waits of single queues, compared with theory, and what is conserved.

use proptest::prelude::*;
use spillway_simulation::application::{Application, Call, Endpoint, Service, Shape, Times};
use spillway_simulation::arrivals::Segment;
use spillway_simulation::engine::Engine;
use spillway_simulation::places::State;
use spillway_simulation::users::Kind;

fn queue(workers: usize, shape: Shape, mean_s: f64) -> Application {
    Application {
        clusters: 1,
        services: vec![Service {
            pods: vec![1],
            workers: vec![workers],
            queue: 1 << 30,
            queue_timeout_s: 1e9,
        }],
        endpoints: vec![Endpoint {
            service: 0,
            shape,
            mean_s: vec![mean_s],
            response_bytes: 0,
            error_rate: 0.0,
            stages: vec![],
        }],
        routes: 0,
        call_timeout_s: 1e9,
    }
}

fn load(rate: f64, seconds: f64) -> Vec<Segment> {
    vec![Segment { seconds, rate, to_rate: rate }]
}

/// Returns the mean wait in seconds of a queue with Poisson arrivals.
fn mean_wait(workers: usize, shape: Shape, utilisation: f64, requests: f64, seed: u64) -> f64 {
    let rate = utilisation * workers as f64;
    let mut engine =
        Engine::new(queue(workers, shape, 1.0), vec![Kind { endpoint: 0, share: 1.0 }], 1e9, seed);
    engine.set_load(vec![load(rate, requests / rate)], true);
    engine.run(f64::MAX);
    let counts = engine.take_counts();
    counts.waited_s[0] / counts.served[0] as f64
}

/// Erlang's C: the probability that a request waits.
fn erlang_c(workers: usize, offered: f64) -> f64 {
    let mut blocking = 1.0;
    for c in 1..=workers {
        blocking = offered * blocking / (c as f64 + offered * blocking);
    }
    let u = offered / workers as f64;
    blocking / (1.0 - u + u * blocking)
}

/// The mean of eight runs is within four of its standard errors, and 2 %, of theory.
fn agrees(theory: f64, waits: impl Fn(u64) -> f64) {
    let found: Vec<f64> = (0..8).map(waits).collect();
    let mean = found.iter().sum::<f64>() / 8.0;
    let error = (found.iter().map(|w| (w - mean).powi(2)).sum::<f64>() / 7.0 / 8.0).sqrt();
    assert!((mean - theory).abs() < 4.0 * error + 0.02 * theory, "{mean} +/- {error}, by theory {theory}");
    assert!(error < 0.05 * theory, "{mean} +/- {error} says little");
}

#[test]
fn a_queue_with_exponential_times_waits_as_erlang_says() {
    // Hardly any request of 16 workers waits at 30 %, so nothing could be compared.
    for (workers, u) in [(1, 0.3), (1, 0.9), (2, 0.3), (2, 0.9), (4, 0.5), (4, 0.9), (16, 0.7), (16, 0.9)] {
        let theory = erlang_c(workers, u * workers as f64) / (workers as f64 * (1.0 - u));
        agrees(theory, |seed| mean_wait(workers, Shape::Exponential, u, 1e6, seed));
    }
}

#[test]
fn a_queue_with_one_worker_waits_as_pollaczek_and_khinchine_say() {
    for (shape, cv2) in [(Shape::Constant, 0.0), (Shape::Lognormal(0.5), 0.25), (Shape::Lognormal(1.5), 2.25)]
    {
        for u in [0.3, 0.8] {
            agrees(u * (1.0 + cv2) / (2.0 * (1.0 - u)), |seed| mean_wait(1, shape, u, 1e6, seed));
        }
    }
}

#[test]
fn workers_are_busy_for_the_offered_load() {
    let mut engine =
        Engine::new(queue(4, Shape::Exponential, 0.04), vec![Kind { endpoint: 0, share: 1.0 }], 1e9, 7);
    engine.set_load(vec![load(50.0, 10_000.0)], true);
    engine.run(10_000.0);
    let busy = engine.busy_seconds()[0] / 10_000.0;
    assert!((busy - 2.0).abs() < 0.04, "{busy} workers are busy; by Little's law 2 are");
}

/// A chain of two services in two clusters: the caller in the first cluster, the callee in both.
fn chain(error_rate: f64, queue: usize, queue_timeout_s: f64, optional: bool) -> Application {
    let call = Call { endpoint: 1, route: 0, times: Times::Count(2), request_bytes: 10, optional };
    let endpoint = |service, mean_s, stages, error_rate| Endpoint {
        service,
        shape: Shape::Exponential,
        mean_s: vec![mean_s; 2],
        response_bytes: 100,
        error_rate,
        stages,
    };
    let service = |pods| Service { pods, workers: vec![2, 2], queue, queue_timeout_s };
    Application {
        clusters: 2,
        services: vec![service(vec![1, 0]), service(vec![2, 1])],
        endpoints: vec![endpoint(0, 0.001, vec![vec![call]], 0.0), endpoint(1, 0.02, vec![], error_rate)],
        routes: 1,
        call_timeout_s: 1.0,
    }
}

#[test]
fn a_call_to_another_cluster_takes_the_round_trip_and_its_bytes_are_counted() {
    let mut app = chain(0.0, 100, 10.0, false);
    for endpoint in &mut app.endpoints {
        endpoint.shape = Shape::Constant;
    }
    let mut engine = Engine::new(app, vec![Kind { endpoint: 0, share: 1.0 }], 10.0, 1);
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
fn a_caller_that_waits_too_long_fails_and_the_callee_finishes() {
    let mut app = chain(0.0, 100, 10.0, false);
    app.endpoints[1].mean_s = vec![3.0; 2];
    app.endpoints[1].shape = Shape::Constant;
    let mut engine = Engine::new(app, vec![Kind { endpoint: 0, share: 1.0 }], 10.0, 1);
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
    let mut engine = Engine::new(app, vec![Kind { endpoint: 0, share: 1.0 }], 2.0, 1);
    engine.set_load(vec![load(1.0, 3.0)], false);
    engine.run(100.0);
    let ended = engine.take_ended();
    assert_eq!((ended.len(), ended.ok.iter().any(|ok| *ok), engine.in_progress()), (3, false, 0));
    // The first is served although nobody waits for it; the others have left the queue.
    assert_eq!(engine.take_counts().served[0], 1);
}

#[test]
fn a_service_that_is_gone_or_slow_shows_it() {
    let mut engine =
        Engine::new(chain(0.0, 100, 10.0, false), vec![Kind { endpoint: 0, share: 1.0 }], 10.0, 1);
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

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let mut engine =
            Engine::new(chain(0.1, 5, 0.1, true), vec![Kind { endpoint: 0, share: 1.0 }], 1.0, seed);
        engine.set_weights(&[1.0, 1.0, 0.0, 0.0]);
        engine.set_load(vec![load(100.0, 20.0), vec![]], true);
        for second in 1..=30 {
            engine.run(f64::from(second));
        }
        engine.take_ended().latency_s
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
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
        let mut engine = Engine::new(app, vec![Kind { endpoint: 0, share: 1.0 }], user, seed);
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

    /// The expected number of requests arrives, in order, within the load's time.
    #[test]
    fn a_load_over_time_has_as_many_requests_as_its_integral(
        rates in prop::collection::vec((0.0..50.0f64, 0.0..50.0f64, 0.1..20.0f64), 1..6), seed in 0u64..100,
    ) {
        let segments: Vec<Segment> =
            rates.iter().map(|&(rate, to_rate, seconds)| Segment { seconds, rate, to_rate }).collect();
        let expected: f64 = rates.iter().map(|(a, b, s)| s * (a + b) / 2.0).sum();
        let seconds: f64 = rates.iter().map(|r| r.2).sum();
        let mut engine = Engine::new(queue(1, Shape::Constant, 1e-6), vec![Kind { endpoint: 0, share: 1.0 }], 9.0, seed);
        engine.set_load(vec![segments], false);
        engine.run(seconds + 1.0);
        let ended = engine.take_ended();
        prop_assert!((ended.len() as f64 - expected).abs() <= 1.0, "{} of {expected}", ended.len());
        prop_assert!(ended.at_s.windows(2).all(|pair| pair[0] <= pair[1]));
        prop_assert!(ended.at_s.iter().all(|at| *at <= seconds + 1e-9));
    }
}
