//! What a pod keeps of what it has served: caches, and the rates of endpoints that slow others, as in
//! lab/emulator/work.go.

use lru::LruCache;

use crate::application::{Application, Rival};

#[derive(Clone, Debug)]
pub struct Memory {
    /// Endpoints and their caches.
    caches: Vec<(usize, LruCache<u64, ()>)>,
    /// Endpoints and what slows them.
    slowed: Vec<(usize, Vec<Rate>)>,
}

/// An exponentially weighted rate of a rival.
#[derive(Clone, Debug)]
struct Rate {
    rival: Rival,
    rps: f64,
    since: f64,
}

impl Rate {
    fn decay(&mut self, now: f64) {
        self.rps *= (-(now - self.since) / self.rival.window_s).exp();
        self.since = now;
    }
}

impl Memory {
    /// Of a new pod of a service.
    pub fn new(application: &Application, service: usize) -> Self {
        let mut memory = Self { caches: vec![], slowed: vec![] };
        for (number, endpoint) in application.endpoints.iter().enumerate() {
            if endpoint.service != service {
                continue;
            }
            if let Some(cache) = &endpoint.cache {
                memory.caches.push((number, LruCache::new(cache.capacity)));
            }
            if !endpoint.rivals.is_empty() {
                let rate = |rival: &Rival| Rate { rival: *rival, rps: 0.0, since: 0.0 };
                memory.slowed.push((number, endpoint.rivals.iter().map(rate).collect()));
            }
        }
        memory
    }

    /// Counts a request that begins. Returns the factor that stretches its service time.
    pub fn serves(&mut self, endpoint: usize, now: f64) -> f64 {
        let mut factor = 1.0;
        for (slowed, rates) in &mut self.slowed {
            for rate in rates {
                rate.decay(now);
                if rate.rival.endpoint == endpoint {
                    rate.rps += 1.0 / rate.rival.window_s;
                }
                if *slowed == endpoint {
                    factor += rate.rps / rate.rival.doubles_at_rps;
                }
            }
        }
        factor
    }

    /// Whether the endpoint's cache has the key, which thereby becomes the last one to be evicted.
    pub fn knows(&mut self, endpoint: usize, key: u64) -> bool {
        self.cache(endpoint).is_some_and(|cache| cache.get(&key).is_some())
    }

    /// Puts a key into the endpoint's cache. The one that was not used for the longest time leaves it
    /// if it is full.
    pub fn remember(&mut self, endpoint: usize, key: u64) {
        if let Some(cache) = self.cache(endpoint) {
            cache.put(key, ());
        }
    }

    fn cache(&mut self, endpoint: usize) -> Option<&mut LruCache<u64, ()>> {
        self.caches.iter_mut().find(|(number, _)| *number == endpoint).map(|(_, cache)| cache)
    }
}
