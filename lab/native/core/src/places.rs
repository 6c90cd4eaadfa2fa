//! Places: the pods of a service in a cluster.

use crate::application::Service;
use crate::pool::Pool;

/// What events change about a service in a cluster, as the emulator's state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    /// Divides service times.
    pub speed: f64,
    /// Probability that a request fails after its service time, in addition to the endpoint's own.
    pub error_rate: f64,
    /// If not, every request is answered with an error at once.
    pub available: bool,
    /// Added to every answer, without a worker.
    pub delay_s: f64,
}

impl Default for State {
    fn default() -> Self {
        Self { speed: 1.0, error_rate: 0.0, available: true, delay_s: 0.0 }
    }
}

#[derive(Clone, Debug)]
pub struct Place {
    /// Pods that were removed are kept: they serve what they have.
    pub pods: Vec<Pool>,
    /// The first pods, which get requests.
    used: usize,
    workers: usize,
    queue: usize,
    turn: usize,
    pub state: State,
}

impl Place {
    fn new(service: &Service, cluster: usize) -> Self {
        let mut place = Self {
            pods: vec![],
            used: 0,
            workers: service.workers[cluster],
            queue: service.queue,
            turn: 0,
            state: State::default(),
        };
        place.set_pods(service.pods[cluster]);
        place
    }

    /// Sets the number of pods. Pods that are removed serve what they have, and get no more requests.
    pub fn set_pods(&mut self, pods: usize) {
        self.used = pods;
        while self.pods.len() < pods {
            self.pods.push(Pool::new(self.workers, self.queue));
        }
    }

    /// Sets the workers of each pod. Those that are busy finish their work.
    pub fn set_workers(&mut self, workers: usize) {
        self.workers = workers;
        for pod in &mut self.pods {
            pod.workers = workers;
        }
    }

    /// Chooses the pod of a request: they take turns. None if there are none.
    pub fn choose(&mut self) -> Option<usize> {
        if self.used == 0 {
            return None;
        }
        self.turn = (self.turn + 1) % self.used;
        Some(self.turn)
    }
}

/// All places, [service, cluster].
#[derive(Clone, Debug)]
pub struct Places {
    clusters: usize,
    places: Vec<Place>,
}

impl Places {
    pub fn new(services: &[Service], clusters: usize) -> Self {
        let places = services.iter().flat_map(|s| (0..clusters).map(|c| Place::new(s, c))).collect();
        Self { clusters, places }
    }

    /// Worker-seconds since the start [service, cluster].
    pub fn busy_seconds(&mut self, now: f64) -> Vec<f64> {
        let busy = |place: &mut Place| place.pods.iter_mut().map(|pod| pod.busy_seconds(now)).sum();
        self.places.iter_mut().map(busy).collect()
    }
}

impl std::ops::Index<(usize, usize)> for Places {
    type Output = Place;
    fn index(&self, (service, cluster): (usize, usize)) -> &Place {
        &self.places[service * self.clusters + cluster]
    }
}

impl std::ops::IndexMut<(usize, usize)> for Places {
    fn index_mut(&mut self, (service, cluster): (usize, usize)) -> &mut Place {
        &mut self.places[service * self.clusters + cluster]
    }
}
