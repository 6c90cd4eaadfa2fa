//! Caches and contention, compared with theory.

use std::num::NonZeroUsize;

use spillway_simulation::application::{Application, Cache, Rival, Shape};
use spillway_simulation::engine::Engine;
use spillway_simulation::users::{Keys, Kind};

use crate::applications::{chain, entry, load, queue};

const MISS_S: f64 = 0.01;

fn cache(capacity: usize, clusters: usize) -> Option<Cache> {
    let capacity = NonZeroUsize::new(capacity).unwrap();
    Some(Cache { variable: 0, capacity, hit: Shape::Constant, hit_s: vec![0.0; clusters] })
}

/// Keys that are asked for alike.
fn uniform(first: u64, count: u32) -> Keys {
    Keys { first, weights: (1..=count).map(f64::from).collect() }
}

/// Returns the share of misses after the cache has filled, by the time that requests took.
fn missed(keys: Keys, capacity: usize) -> f64 {
    let mut app = queue(1 << 20, Shape::Constant, MISS_S);
    app.endpoints[0].cache = cache(capacity, 1);
    let mut engine = Engine::new(app, entry(), vec![vec![keys]], 10.0, 1);
    engine.set_load(vec![load(1000.0, 120.0)], true);
    engine.run(20.0);
    engine.take_counts();
    engine.run(130.0);
    let counts = engine.take_counts();
    let missed = counts.own_s[0] / counts.served[0] as f64 / MISS_S;
    assert!((1.0 - counts.hits[0] as f64 / counts.served[0] as f64 - missed).abs() < 1e-6);
    missed
}

#[test]
fn a_cache_of_half_the_keys_hits_half_of_the_time() {
    // All keys are alike, so it does not matter which of them are cached. While a miss is loaded,
    // requests for its key miss too: 10 of 20 000 are loaded at once.
    assert!((missed(uniform(0, 20_000), 10_000) - 0.5).abs() < 0.01);
    assert!(missed(uniform(7, 100), 100) < 1e-6);
}

#[test]
fn keys_that_are_popular_are_evicted_last() {
    let weights = (1..=1000).scan(0.0, |sum, rank| {
        *sum += 1.0 / f64::from(rank);
        Some(*sum)
    });
    let keys = Keys { first: 0, weights: weights.collect() };
    let most_popular = keys.weights[99] / keys.weights[999];
    // Che's approximation of LRU: the mean number of keys that were asked for within T is 100.
    let popularity: Vec<f64> = (1..=1000).map(|rank| 1.0 / f64::from(rank) / keys.weights[999]).collect();
    let cached = |time: f64| popularity.iter().map(|p| 1.0 - (-p * time).exp()).sum::<f64>();
    let (mut low, mut high) = (0.0, 1e6);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if cached(middle) < 100.0 { low = middle } else { high = middle }
    }
    let hits: f64 = popularity.iter().map(|p| p * (1.0 - (-p * low).exp())).sum();
    let found = 1.0 - missed(keys, 100);
    assert!(hits < most_popular && (found - hits).abs() < 0.02, "{found}; by theory {hits}");
}

/// Users of two clusters whose calls go to the second one, where a cache holds 100 keys.
fn shared(overlap: u64, error_rate: f64) -> Engine {
    let mut app = chain(error_rate, 100, 10.0, true);
    app.services[0].pods = vec![1, 1];
    app.services[1].pods = vec![1, 1];
    app.endpoints[0].stages[0][0].times = spillway_simulation::application::Times::Count(1);
    app.endpoints[1].cache = cache(100, 2);
    let keys = vec![vec![uniform(0, 100), uniform(100 - overlap, 100)]];
    let mut engine = Engine::new(app, entry(), keys, 10.0, 1);
    engine.set_weights(&[0.0, 1.0, 0.0, 1.0]);
    engine.set_load(vec![load(20.0, 600.0), load(20.0, 600.0)], true);
    engine.run(100.0);
    engine.take_counts();
    engine.run(700.0);
    engine
}

#[test]
fn users_share_a_cache_as_far_as_their_keys_overlap() {
    for overlap in [0, 50, 100] {
        let counts = shared(overlap, 0.0).take_counts();
        let hit = 1.0 - (counts.own_s[3] - counts.waited_s[3]) / counts.served[3] as f64 / 0.02;
        // The overlapping keys are asked for twice as often as the others. Between no overlap, half
        // of the requests hit, and a whole one, all do.
        let expected = match overlap {
            0 => 0.5..0.53,
            50 => 0.65..0.78,
            _ => 0.99..1.01,
        };
        assert!(expected.contains(&hit), "{overlap}: {hit}");
    }
}

#[test]
fn a_request_that_fails_is_not_cached() {
    let counts = shared(100, 1.0).take_counts();
    assert_eq!(counts.served[3], 0);
    assert!(counts.failed[3] > 20_000);
}

#[test]
fn a_hit_makes_no_calls() {
    let mut app = chain(0.0, 100, 10.0, false);
    app.endpoints[0].cache = cache(100, 2);
    let mut engine = Engine::new(app, entry(), vec![vec![uniform(0, 100), uniform(0, 100)]], 10.0, 1);
    engine.set_weights(&[1.0, 0.0, 0.0, 1.0]);
    engine.set_load(vec![load(20.0, 600.0), vec![]], true);
    engine.run(700.0);
    let (counts, ended) = (engine.take_counts(), engine.take_ended());
    assert!(ended.len() > 11_000 && ended.ok.iter().all(|ok| *ok));
    // Two calls for each key, and again for requests that come while it is loaded.
    assert!((200..230).contains(&counts.arrived[2]), "{}", counts.arrived[2]);
}

/// One service, whose second endpoint is slowed by the first.
fn contended() -> Application {
    let mut app = queue(1 << 20, Shape::Constant, 0.001);
    let mut slowed = app.endpoints[0].clone();
    slowed.mean_s = vec![0.02];
    slowed.rivals = vec![Rival { endpoint: 0, doubles_at_rps: 100.0, window_s: 1.0 }];
    app.endpoints.push(slowed);
    app
}

#[test]
fn an_endpoint_is_as_slow_as_its_rivals_rate_says() {
    for rate in [0.0, 50.0, 200.0] {
        let kinds = vec![
            Kind { endpoint: 0, shares: vec![rate / (rate + 10.0)] },
            Kind { endpoint: 1, shares: vec![10.0 / (rate + 10.0)] },
        ];
        let mut engine = Engine::new(contended(), kinds, vec![], 10.0, 1);
        engine.set_load(vec![load(rate + 10.0, 400.0)], true);
        engine.run(20.0);
        engine.take_counts();
        engine.run(500.0);
        let counts = engine.take_counts();
        let factor = counts.own_s[1] / counts.served[1] as f64 / 0.02;
        assert!((factor / (1.0 + rate / 100.0) - 1.0).abs() < 0.02, "{rate}: {factor}");
        assert!(counts.served[0] == 0 || (counts.own_s[0] / counts.served[0] as f64 - 0.001).abs() < 1e-9);
    }
}

#[test]
fn clusters_have_shares_of_their_own() {
    let mut app = chain(0.0, 100, 10.0, true);
    app.services[0].pods = vec![1, 1];
    let kinds =
        vec![Kind { endpoint: 0, shares: vec![0.0, 3.0] }, Kind { endpoint: 0, shares: vec![1.0, 1.0] }];
    let mut engine = Engine::new(app, kinds, vec![], 10.0, 1);
    engine.set_load(vec![load(50.0, 100.0), load(50.0, 100.0)], true);
    engine.run(200.0);
    let ended = engine.take_ended();
    let first = |cluster| {
        let of = (0..ended.len()).filter(|i| ended.cluster[*i] == cluster);
        let (all, first) = of.fold((0, 0), |(all, first), i| (all + 1, first + (1 - ended.kind[i]) as u32));
        f64::from(first) / f64::from(all)
    };
    assert_eq!(first(0), 0.0);
    assert!((first(1) - 0.75).abs() < 0.03, "{}", first(1));
}
