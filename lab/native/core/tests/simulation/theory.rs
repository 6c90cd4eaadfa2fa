//! Mean waits of single queues and of pods behind a balancer, compared with theory.

use spillway_simulation::application::Shape;
use spillway_simulation::engine::Engine;

use crate::applications::{balanced, entry, load, queue};

/// Returns the mean wait in seconds of a queue with Poisson arrivals.
fn mean_wait(workers: usize, shape: Shape, utilisation: f64, requests: f64, seed: u64) -> f64 {
    let rate = utilisation * workers as f64;
    let mut engine = Engine::new(queue(workers, shape, 1.0), entry(), vec![], 1e9, seed);
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
    let mut engine = Engine::new(queue(4, Shape::Exponential, 0.04), entry(), vec![], 1e9, 7);
    engine.set_load(vec![load(50.0, 10_000.0)], true);
    engine.run(10_000.0);
    let busy = engine.busy_seconds()[0] / 10_000.0;
    assert!((busy - 2.0).abs() < 0.04, "{busy} workers are busy; by Little's law 2 are");
}

/// Returns the mean time at `called` pods of one worker, 70 % busy, whose service times have mean 1.
fn mean_time_behind(callers: usize, called: usize, requests: f64) -> f64 {
    let rate = 0.7 * called as f64;
    let mut engine = Engine::new(balanced(callers, called), entry(), vec![], 1e9, 1);
    engine.set_weights(&[1.0]);
    engine.set_load(vec![load(rate, requests / rate)], true);
    engine.run(f64::MAX);
    let counts = engine.take_counts();
    counts.own_s[1] / counts.served[1] as f64
}

/// Vvedenskaya, Dobrushin and Karpelevich (1996): with two choices of many pods, the mean time is the
/// sum of u^(2^i - 2) over i from 1. With one choice it is 1 / (1 - u) = 3.33, in turns about 1.9.
#[test]
fn the_better_of_two_random_pods_is_as_good_as_theory_says() {
    let theory: f64 = (1..10).map(|i| 0.7_f64.powi((1 << i) - 2)).sum();
    let found = mean_time_behind(1, 200, 1e6);
    assert!((found / theory - 1.0).abs() < 0.02, "{found}, by theory {theory}");
}

/// Each of a thousand callers hardly ever has a call in progress, so it chooses at random.
#[test]
fn a_caller_counts_only_its_own_calls() {
    let found = mean_time_behind(1000, 20, 1e6);
    assert!((found * 0.3 - 1.0).abs() < 0.05, "{found}, by theory {}", 1.0 / 0.3);
}
