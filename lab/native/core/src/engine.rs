//! The simulation: what is set, the event loop, and what is read.
//!
//! What a request does is in `serving` and `calling`.

use rand::SeedableRng;
use rand_pcg::Pcg64;

use crate::agenda::{Agenda, Happens, Next};
use crate::application::{Application, Call};
use crate::arrivals::Segment;
use crate::frames::Frames;
use crate::outcomes::Outcomes;
use crate::places::{Places, State};
use crate::routes::Routes;
use crate::statistics::{Counts, Ended};
use crate::users::{Keys, Kind, Sent, Users};

pub struct Engine {
    pub(crate) application: Application,
    pub(crate) users: Users,
    pub(crate) routes: Routes,
    pub(crate) places: Places,
    pub(crate) agenda: Agenda,
    pub(crate) frames: Frames,
    /// Of service times, errors and choices. Users have their own.
    pub(crate) chance: Pcg64,
    /// The calls of a stage and where they go. Kept for its memory.
    pub(crate) chosen: Vec<(Call, Option<usize>)>,
    pub(crate) now: f64,
    pub(crate) counts: Counts,
    pub(crate) ended: Ended,
    pub outcomes: Outcomes,
    pub entered: u64,
    pub happened: u64,
}

impl Engine {
    /// `user_timeout_s`: how long users wait for an answer.
    /// `keys`: of the variables of caches, by variable and cluster.
    pub fn new(
        application: Application,
        kinds: Vec<Kind>,
        keys: Vec<Vec<Keys>>,
        user_timeout_s: f64,
        seed: u64,
    ) -> Self {
        let clusters = application.clusters;
        let mut seeds = Pcg64::seed_from_u64(seed);
        Self {
            users: Users::new(kinds, keys, clusters, &mut seeds),
            routes: Routes::new(application.routes, clusters),
            places: Places::new(&application),
            agenda: Agenda::new(application.call_timeout_s, user_timeout_s),
            frames: Frames::default(),
            chance: Pcg64::from_rng(&mut seeds),
            chosen: vec![],
            now: 0.0,
            counts: Counts::new(application.endpoints.len(), application.routes, clusters),
            ended: Ended::default(),
            outcomes: Outcomes::default(),
            entered: 0,
            happened: 0,
            application,
        }
    }

    /// Sets the load of every cluster, from now on.
    pub fn set_load(&mut self, load: Vec<Vec<Segment>>, poisson: bool) {
        self.users.set_load(self.now, load, poisson);
    }

    /// Sets the requests of the users of every cluster, in the order of time.
    pub fn set_requests(&mut self, requests: Vec<Vec<Sent>>) {
        self.users.set_requests(requests);
    }

    /// Sets the round trips of calls between clusters, in seconds [from, to]. Calls fail where it is
    /// infinite.
    pub fn set_round_trips(&mut self, seconds: &[f64]) {
        self.routes.set_round_trips(seconds);
    }

    /// Sets the weights of all routes [route, from, to]. They need not sum to 1. Calls of rows without
    /// any weight fail.
    pub fn set_weights(&mut self, weights: &[f64]) {
        self.routes.set_weights(weights);
    }

    pub fn set_state(&mut self, service: usize, cluster: usize, state: State) {
        self.places.set_state(service, cluster, state);
    }

    /// Sets the workers of each pod of a service in a cluster. Those that are busy finish their work.
    pub fn set_workers(&mut self, service: usize, cluster: usize, workers: usize) {
        for pod in self.places.set_workers(service, cluster, workers) {
            self.serve_waiting(pod);
        }
    }

    /// Sets the number of pods. Pods that are removed serve what they have, and get no more requests.
    pub fn set_pods(&mut self, service: usize, cluster: usize, pods: usize) {
        self.places.set_pods(service, cluster, pods);
    }

    pub fn now(&self) -> f64 {
        self.now
    }

    /// Requests and calls in progress.
    pub fn in_progress(&self) -> usize {
        self.frames.in_progress()
    }

    /// Returns what was counted since the last time.
    pub fn take_counts(&mut self) -> Counts {
        let app = &self.application;
        std::mem::replace(&mut self.counts, Counts::new(app.endpoints.len(), app.routes, app.clusters))
    }

    /// Returns the requests of users that ended since the last time.
    pub fn take_ended(&mut self) -> Ended {
        std::mem::take(&mut self.ended)
    }

    /// Worker-seconds since the start [service, cluster].
    pub fn busy_seconds(&mut self) -> Vec<f64> {
        self.places.busy_seconds(self.now)
    }

    /// Runs until `until`, and no further. Infinite: until nothing is left to happen.
    pub fn run(&mut self, until: f64) {
        while let Some((at, next)) = self.agenda.next(until, &self.users, &self.frames) {
            self.now = at;
            self.happened += 1;
            match next {
                Next::Event(Happens::Reaches, frame) => self.reach(frame),
                Next::Event(Happens::Served, frame) => self.served(frame),
                Next::Event(Happens::Answers, frame) => self.answered(frame),
                Next::Enters(cluster) => self.enter(cluster),
                Next::LeavesQueue(frame) => {
                    self.leave_queue(frame);
                    self.answer(frame, true);
                }
                Next::GivesUp(frame) => self.give_up(frame),
            }
        }
        self.now = until;
    }

    /// Endpoint, service and cluster of a frame's callee.
    pub(crate) fn place(&self, frame: u32) -> (usize, usize, usize) {
        let frame = &self.frames[frame];
        let endpoint = frame.endpoint as usize;
        (endpoint, self.application.endpoints[endpoint].service, frame.cluster as usize)
    }

    /// Index of a frame's endpoint and cluster in the counters.
    pub(crate) fn row(&self, frame: u32) -> usize {
        let frame = &self.frames[frame];
        frame.endpoint as usize * self.application.clusters + frame.cluster as usize
    }
}
