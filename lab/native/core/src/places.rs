//! Places: the pods of a service in a cluster, and which of them gets a request.

use rand::Rng;
use rand_pcg::Pcg64;

use crate::application::Application;
use crate::frames::NONE;
use crate::memory::Memory;
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
    /// Added to an answer, without a worker.
    pub delay_s: f64,
    /// Probability that an answer is delayed.
    pub delay_share: f64,
}

impl Default for State {
    fn default() -> Self {
        Self { speed: 1.0, error_rate: 0.0, available: true, delay_s: 0.0, delay_share: 1.0 }
    }
}

#[derive(Clone, Debug)]
struct Place {
    /// Numbers of the pods. Pods that were removed are kept: they serve what they have.
    pods: Vec<u32>,
    /// The first pods, which get requests.
    used: usize,
    workers: usize,
    queue: usize,
    /// Of a new pod.
    memory: Memory,
    state: State,
}

#[derive(Clone, Debug)]
struct Pod {
    pool: Pool,
    memory: Memory,
    /// Calls in progress of the pod's proxy, by the number of the called pod.
    calls: Vec<u32>,
}

/// All places, and their pods, which are numbered.
#[derive(Clone, Debug)]
pub struct Places {
    clusters: usize,
    places: Vec<Place>,
    pods: Vec<Pod>,
}

impl Places {
    pub fn new(application: &Application) -> Self {
        let clusters = application.clusters;
        let mut all = Self { clusters, places: vec![], pods: vec![] };
        for (number, service) in application.services.iter().enumerate() {
            for cluster in 0..clusters {
                all.places.push(Place {
                    pods: vec![],
                    used: 0,
                    workers: service.workers[cluster],
                    queue: service.queue,
                    memory: Memory::new(application, number),
                    state: State::default(),
                });
                all.set_pods(number, cluster, service.pods[cluster]);
            }
        }
        all
    }

    pub fn state(&self, service: usize, cluster: usize) -> State {
        self.places[self.index(service, cluster)].state
    }

    pub fn set_state(&mut self, service: usize, cluster: usize, state: State) {
        let index = self.index(service, cluster);
        self.places[index].state = state;
    }

    /// Sets the number of pods. Pods that are removed serve what they have, and get no more requests.
    pub fn set_pods(&mut self, service: usize, cluster: usize, pods: usize) {
        let index = self.index(service, cluster);
        let place = &mut self.places[index];
        place.used = pods;
        while place.pods.len() < pods {
            place.pods.push(self.pods.len() as u32);
            let pool = Pool::new(place.workers, place.queue);
            self.pods.push(Pod { pool, memory: place.memory.clone(), calls: vec![] });
        }
    }

    /// Sets the workers of each pod, and returns the pods. Workers that are busy finish their work.
    pub fn set_workers(&mut self, service: usize, cluster: usize, workers: usize) -> Vec<u32> {
        let index = self.index(service, cluster);
        let place = &mut self.places[index];
        place.workers = workers;
        for &pod in &place.pods {
            self.pods[pod as usize].pool.workers = workers;
        }
        place.pods.clone()
    }

    pub fn pool(&mut self, pod: u32) -> &mut Pool {
        &mut self.pods[pod as usize].pool
    }

    pub fn memory(&mut self, pod: u32) -> &mut Memory {
        &mut self.pods[pod as usize].memory
    }

    /// Draws the pod that a user's request goes to: any. NONE if there are no pods.
    pub fn any(&self, service: usize, cluster: usize, chance: &mut Pcg64) -> u32 {
        match self.used(service, cluster) {
            [] => NONE,
            [pod] => *pod,
            pods => pods[chance.random_range(0..pods.len())],
        }
    }

    /// Draws the pod that a call goes to, as Envoy's LEAST_REQUEST does. NONE if there are no pods.
    ///
    /// Of two random pods it is that with fewer calls in progress, or else the first. The proxy of
    /// each caller counts its own calls only.
    pub fn least_requests(&self, service: usize, cluster: usize, caller: u32, chance: &mut Pcg64) -> u32 {
        match self.used(service, cluster) {
            [] => NONE,
            [pod] => *pod,
            pods => {
                let [first, second] = [0; 2].map(|_| pods[chance.random_range(0..pods.len())]);
                let calls = |pod| self.pods[caller as usize].calls.get(pod as usize).unwrap_or(&0);
                if calls(second) < calls(first) { second } else { first }
            }
        }
    }

    pub fn call_begins(&mut self, caller: u32, called: u32) {
        let calls = &mut self.pods[caller as usize].calls;
        if calls.len() <= called as usize {
            calls.resize(called as usize + 1, 0);
        }
        calls[called as usize] += 1;
    }

    pub fn call_ends(&mut self, caller: u32, called: u32) {
        self.pods[caller as usize].calls[called as usize] -= 1;
    }

    /// Worker-seconds since the start [service, cluster].
    pub fn busy_seconds(&mut self, now: f64) -> Vec<f64> {
        let pods = &mut self.pods;
        let mut busy = |pod: &u32| pods[*pod as usize].pool.busy_seconds(now);
        self.places.iter().map(|place| place.pods.iter().map(&mut busy).sum()).collect()
    }

    fn used(&self, service: usize, cluster: usize) -> &[u32] {
        let place = &self.places[self.index(service, cluster)];
        &place.pods[..place.used]
    }

    fn index(&self, service: usize, cluster: usize) -> usize {
        service * self.clusters + cluster
    }
}
