//! Users of every cluster: when they send requests, and of which kind.

use rand::{Rng, RngCore, SeedableRng};
use rand_pcg::Pcg64;

use crate::arrivals::{Arrivals, Segment};

/// A kind of request that users send: to which endpoint, and its share of all requests.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub endpoint: usize,
    pub share: f64,
}

/// Each cluster's users have a random stream of their own. Whatever happens to requests, the same
/// seed gives the same arrivals of the same kinds.
#[derive(Clone, Debug)]
pub struct Users {
    kinds: Vec<Kind>,
    chances: Vec<Pcg64>,
    arrivals: Vec<Arrivals>,
    /// Time of the next request of each cluster. Infinite: there is none.
    upcoming: Vec<f64>,
}

impl Users {
    pub fn new(kinds: Vec<Kind>, clusters: usize, seeds: &mut impl RngCore) -> Self {
        let chances = (0..clusters).map(|_| Pcg64::from_rng(seeds)).collect();
        Self { kinds, chances, arrivals: vec![], upcoming: vec![] }
    }

    /// Sets the load of every cluster, from now on.
    pub fn set_load(&mut self, now: f64, load: Vec<Vec<Segment>>, poisson: bool) {
        self.arrivals = load.into_iter().map(|segments| Arrivals::new(now, segments, poisson)).collect();
        let each = self.arrivals.iter_mut().zip(&mut self.chances);
        self.upcoming = each.map(|(arrivals, chance)| arrivals.next(chance)).collect();
    }

    pub fn upcoming(&self) -> &[f64] {
        &self.upcoming
    }

    /// Takes the upcoming request of a cluster. Returns its kind and its endpoint.
    pub fn take(&mut self, cluster: usize) -> (usize, usize) {
        let kind = self.draw_kind(cluster);
        self.upcoming[cluster] = self.arrivals[cluster].next(&mut self.chances[cluster]);
        (kind, self.kinds[kind].endpoint)
    }

    fn draw_kind(&mut self, cluster: usize) -> usize {
        let last = self.kinds.len() - 1;
        if last == 0 {
            return 0;
        }
        let total: f64 = self.kinds.iter().map(|kind| kind.share).sum();
        let mut left = self.chances[cluster].random::<f64>() * total;
        let chosen = self.kinds.iter().position(|kind| {
            left -= kind.share;
            left < 0.0
        });
        chosen.unwrap_or(last)
    }
}
