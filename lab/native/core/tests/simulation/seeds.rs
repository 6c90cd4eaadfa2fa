//! What the same seed keeps, and another one changes.

use spillway_simulation::engine::Engine;
use spillway_simulation::users::Kind;

use crate::applications::{chain, entry, load};

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let mut engine = Engine::new(chain(0.1, 5, 0.1, true), entry(), vec![], 1.0, seed);
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

/// Cluster, kind and time of every request of a user, in this order.
type Sent = Vec<(u8, u8, u64)>;

/// Returns what users sent in two clusters, and the latencies that they saw.
fn sent(seed: u64, weights: &[f64]) -> (Sent, Vec<f64>) {
    let mut app = chain(0.1, 5, 0.1, true);
    app.services[0].pods = vec![1, 1];
    let kinds = vec![Kind { endpoint: 0, shares: vec![2.0; 2] }, Kind { endpoint: 0, shares: vec![1.0; 2] }];
    let mut engine = Engine::new(app, kinds, vec![], 1.0, seed);
    engine.set_round_trips(&[0.0, 0.05, 0.05, 0.0]);
    engine.set_weights(weights);
    engine.set_load(vec![load(100.0, 20.0), load(30.0, 20.0)], true);
    engine.run(10.0);
    engine.set_load(vec![load(50.0, 20.0), load(200.0, 20.0)], true);
    engine.run(60.0);
    let ended = engine.take_ended();
    // Times are not negative, so the order of their bits is that of their values.
    let mut sent: Sent =
        (0..ended.len()).map(|i| (ended.cluster[i], ended.kind[i], ended.at_s[i].to_bits())).collect();
    sent.sort_unstable();
    (sent, ended.latency_s)
}

#[test]
fn the_same_seed_gives_the_same_arrivals_under_other_weights() {
    let (here, stayed) = sent(3, &[1.0, 0.0, 0.0, 1.0]);
    let (there, moved) = sent(3, &[0.0, 1.0, 1.0, 0.0]);
    let (other, _) = sent(4, &[1.0, 0.0, 0.0, 1.0]);
    assert!(here.len() > 5000, "{} requests", here.len());
    assert_eq!(here, there);
    assert_ne!(stayed, moved);
    assert_ne!(here, other);
}

#[test]
fn clusters_have_arrivals_of_their_own() {
    let (all, _) = sent(3, &[1.0, 0.0, 0.0, 1.0]);
    let times = |cluster| all.iter().filter(move |s| s.0 == cluster).map(|s| s.2);
    assert!(times(0).all(|at| !times(1).any(|other| other == at)));
    // A third is of the second kind, of 4 000 requests and more.
    let second = all.iter().filter(|s| s.1 == 1).count() as f64 / all.len() as f64;
    assert!((second - 1.0 / 3.0).abs() < 0.04, "{second}");
}
