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
    chances: Vec<Pcg64>,
    sources: Vec<Source>,
    /// The next request of each cluster.
    upcoming: Vec<Sent>,
}

impl Users {
    pub fn new(kinds: Vec<Kind>, clusters: usize, seeds: &mut impl RngCore) -> Self {
        let chances = (0..clusters).map(|_| Pcg64::from_rng(seeds)).collect();
        Self { kinds, chances, sources: vec![], upcoming: vec![] }
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

    /// Takes the upcoming request of a cluster. Returns its kind and its endpoint.
    pub fn take(&mut self, cluster: usize) -> (usize, usize) {
        let (_, kind) = self.upcoming[cluster];
        self.upcoming[cluster] = self.next(cluster);
        (kind, self.kinds[kind].endpoint)
    }

    fn next(&mut self, cluster: usize) -> Sent {
        let chance = &mut self.chances[cluster];
        match &mut self.sources[cluster] {
            Source::Drawn(arrivals) => (arrivals.next(chance), draw_kind(&self.kinds, chance)),
            Source::Recorded(requests) => requests.next().unwrap_or(NEVER),
        }
    }
}

fn draw_kind(kinds: &[Kind], chance: &mut Pcg64) -> usize {
    let last = kinds.len() - 1;
    if last == 0 {
        return 0;
    }
    let total: f64 = kinds.iter().map(|kind| kind.share).sum();
    let mut left = chance.random::<f64>() * total;
    let chosen = kinds.iter().position(|kind| {
        left -= kind.share;
        left < 0.0
    });
    chosen.unwrap_or(last)
}
