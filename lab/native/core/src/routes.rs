//! Where calls go: the weights of every route, and the ways between clusters.

use rand::Rng;
use rand_pcg::Pcg64;

#[derive(Clone, Debug)]
pub struct Routes {
    clusters: usize,
    /// Half of the round trip of the callers [from, to], seconds. Infinite where there is no way.
    one_way_s: Vec<f64>,
    /// Cumulative weights [route, from, to]. The last is 1, or 0 where there are none.
    weights: Vec<f64>,
}

impl Routes {
    pub fn new(routes: usize, clusters: usize) -> Self {
        let between = clusters * clusters;
        Self { clusters, one_way_s: vec![0.0; between], weights: vec![0.0; routes * between] }
    }

    /// Sets the round trips of calls between clusters, in seconds [from, to]. Infinite: no way.
    pub fn set_round_trips(&mut self, seconds: &[f64]) {
        self.one_way_s = seconds.iter().map(|s| s / 2.0).collect();
    }

    /// Sets the weights of all routes [route, from, to]. They need not sum to 1.
    pub fn set_weights(&mut self, weights: &[f64]) {
        self.weights = weights.to_vec();
        for row in self.weights.chunks_mut(self.clusters) {
            let total: f64 = row.iter().sum();
            let mut sum = 0.0;
            for weight in row {
                sum += *weight;
                *weight = if total > 0.0 { sum / total } else { 0.0 };
            }
        }
    }

    /// Seconds of a call's way to its callee, and of the answer's way back.
    pub fn one_way_s(&self, from: usize, to: usize) -> f64 {
        self.one_way_s[from * self.clusters + to]
    }

    /// Draws the cluster that a call goes to. None if no cluster has a weight, or if there is no way.
    pub fn destination(&self, route: usize, from: usize, chance: &mut Pcg64) -> Option<usize> {
        let row = &self.weights[(route * self.clusters + from) * self.clusters..][..self.clusters];
        if row[self.clusters - 1] == 0.0 {
            return None;
        }
        let chance: f64 = chance.random();
        let to = row.iter().position(|&sum| chance < sum).unwrap_or(self.clusters - 1);
        self.one_way_s(from, to).is_finite().then_some(to)
    }
}
