//! Users of every cluster: when they send requests, and of which kind.

use rand::{Rng, RngCore, SeedableRng};
use rand_pcg::Pcg64;

use crate::arrivals::{Arrivals, Segment};

/// A kind of request that users send: to which endpoint, and its share of each cluster's requests.
#[derive(Clone, Debug)]
pub struct Kind {
    pub endpoint: usize,
    pub shares: Vec<f64>,
}

/// The values that a cluster's users give to a variable.
#[derive(Clone, Debug)]
pub struct Keys {
    pub first: u64,
    /// Cumulative weights of the keys from the first on.
    pub weights: Vec<f64>,
}

impl Keys {
    fn draw(&self, chance: &mut Pcg64) -> u64 {
        let last = self.weights.len() - 1;
        let drawn = chance.random::<f64>() * self.weights[last];
        self.first + self.weights.partition_point(|weight| *weight <= drawn).min(last) as u64
    }
}

/// The time and the kind of a request of a user.
pub type Sent = (f64, usize);

/// After the last request.
const NEVER: Sent = (f64::INFINITY, 0);

#[derive(Clone, Debug)]
enum Source {
    Drawn(Arrivals),
    /// What is left, in the order of time.
    Recorded(std::vec::IntoIter<Sent>),
}

/// Each cluster's users have a random stream of their own. Whatever happens to requests, the same
/// seed gives the same arrivals of the same kinds.
#[derive(Clone, Debug)]
pub struct Users {
    kinds: Vec<Kind>,
    /// [variable][cluster]
    keys: Vec<Vec<Keys>>,
    chances: Vec<Pcg64>,
    sources: Vec<Source>,
    /// The next request of each cluster.
    upcoming: Vec<Sent>,
}

impl Users {
    pub fn new(kinds: Vec<Kind>, keys: Vec<Vec<Keys>>, clusters: usize, seeds: &mut impl RngCore) -> Self {
        let chances = (0..clusters).map(|_| Pcg64::from_rng(seeds)).collect();
        Self { kinds, keys, chances, sources: vec![], upcoming: vec![] }
    }

    /// Sets the load of every cluster, from now on.
    pub fn set_load(&mut self, now: f64, load: Vec<Vec<Segment>>, poisson: bool) {
        self.begin(load.into_iter().map(|pieces| Source::Drawn(Arrivals::new(now, pieces, poisson))));
    }

    /// Sets the requests of every cluster, in the order of time.
    pub fn set_requests(&mut self, requests: Vec<Vec<Sent>>) {
        self.begin(requests.into_iter().map(|recorded| Source::Recorded(recorded.into_iter())));
    }

    fn begin(&mut self, sources: impl Iterator<Item = Source>) {
        self.sources = sources.collect();
        self.upcoming = (0..self.sources.len()).map(|cluster| self.next(cluster)).collect();
    }

    pub fn upcoming(&self) -> &[Sent] {
        &self.upcoming
    }

    /// Takes the upcoming request of a cluster. Returns its kind, its endpoint and what it asks for.
    pub fn take(&mut self, cluster: usize) -> (usize, usize, u64) {
        let (_, kind) = self.upcoming[cluster];
        let asks = if self.keys.is_empty() { 0 } else { self.chances[cluster].next_u64() };
        self.upcoming[cluster] = self.next(cluster);
        (kind, self.kinds[kind].endpoint, asks)
    }

    /// Returns the value of a variable in a request of a user of a cluster that asks for this.
    pub fn key(&self, variable: usize, cluster: usize, asks: u64) -> u64 {
        self.keys[variable][cluster].draw(&mut Pcg64::seed_from_u64(asks.wrapping_add(variable as u64)))
    }

    fn next(&mut self, cluster: usize) -> Sent {
        let chance = &mut self.chances[cluster];
        match &mut self.sources[cluster] {
            Source::Drawn(arrivals) => (arrivals.next(chance), draw_kind(&self.kinds, cluster, chance)),
            Source::Recorded(requests) => requests.next().unwrap_or(NEVER),
        }
    }
}

fn draw_kind(kinds: &[Kind], cluster: usize, chance: &mut Pcg64) -> usize {
    if kinds.len() == 1 {
        return 0;
    }
    let total: f64 = kinds.iter().map(|kind| kind.shares[cluster]).sum();
    let mut left = chance.random::<f64>() * total;
    let chosen = kinds.iter().position(|kind| {
        left -= kind.shares[cluster];
        left < 0.0
    });
    chosen.or_else(|| kinds.iter().rposition(|kind| kind.shares[cluster] > 0.0)).unwrap_or(0)
}
