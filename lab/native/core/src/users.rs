//! Users of every cluster: when they send requests, and of which kind.

use rand::Rng;
use rand_pcg::Pcg64;

use crate::arrivals::{Arrivals, Segment};

/// A kind of request that users send: to which endpoint, and its share of all requests.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub endpoint: usize,
    pub share: f64,
}

#[derive(Clone, Debug)]
pub struct Users {
    pub kinds: Vec<Kind>,
    arrivals: Vec<Arrivals>,
    /// Time of the next request of each cluster. Infinite: there is none.
    upcoming: Vec<f64>,
}

impl Users {
    pub fn new(kinds: Vec<Kind>) -> Self {
        Self { kinds, arrivals: vec![], upcoming: vec![] }
    }

    /// Sets the load of every cluster, from now on.
    pub fn set_load(&mut self, now: f64, load: Vec<Vec<Segment>>, poisson: bool, chance: &mut Pcg64) {
        self.arrivals = load.into_iter().map(|segments| Arrivals::new(now, segments, poisson)).collect();
        self.upcoming = self.arrivals.iter_mut().map(|arrivals| arrivals.next(chance)).collect();
    }

    pub fn upcoming(&self) -> &[f64] {
        &self.upcoming
    }

    /// Draws the kind of a request.
    pub fn kind(&self, chance: &mut Pcg64) -> usize {
        let total: f64 = self.kinds.iter().map(|kind| kind.share).sum();
        let mut left = if self.kinds.len() > 1 { chance.random::<f64>() * total } else { 0.0 };
        let mut chosen = 0;
        for (index, kind) in self.kinds.iter().enumerate() {
            chosen = index;
            left -= kind.share;
            if left < 0.0 {
                break;
            }
        }
        chosen
    }

    /// Draws when the next request of a cluster is sent.
    pub fn draw_next(&mut self, cluster: usize, chance: &mut Pcg64) {
        self.upcoming[cluster] = self.arrivals[cluster].next(chance);
    }
}
