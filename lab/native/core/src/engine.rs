//! The event loop.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use crate::application::{Application, Call};
use crate::arrivals::{Arrivals, Segment};
use crate::deadlines::Deadlines;
use crate::frames::{Frame, Frames, NONE, Phase};
use crate::pool::{Admission, Pool};
use crate::statistics::{Counts, Ended};

/// A kind of request that users send: to which endpoint, and its share of all requests.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub endpoint: usize,
    pub share: f64,
}

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Happens {
    /// A request reaches its callee.
    Reaches,
    /// A worker has served it.
    Served,
    /// The answer reaches the caller.
    Answers,
}

#[derive(Clone, Copy, Debug)]
struct Event {
    at: f64,
    order: u64,
    frame: u32,
    what: Happens,
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.total_cmp(&self.at).then(other.order.cmp(&self.order))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Event {}

/// Who acts next.
#[derive(Clone, Copy)]
enum Next {
    Event,
    Arrival(usize),
    QueueTimeout(usize),
    CallTimeout,
    UserTimeout,
}

pub struct Engine {
    application: Application,
    kinds: Vec<Kind>,
    /// Pools [service][cluster][pod].
    pools: Vec<Vec<Vec<Pool>>>,
    turn: Vec<usize>,
    states: Vec<State>,
    /// Seconds one way [from, to].
    one_way_s: Vec<f64>,
    /// Cumulative weights [route, from, to]; the last is 1, or 0 where there are none.
    weights: Vec<f64>,
    arrivals: Vec<Arrivals>,
    upcoming: Vec<Option<f64>>,
    events: BinaryHeap<Event>,
    order: u64,
    frames: Frames,
    queue_deadlines: Vec<Deadlines>,
    call_deadlines: Deadlines,
    user_deadlines: Deadlines,
    chance: Pcg64,
    now: f64,
    counts: Counts,
    ended: Ended,
    pub entered: u64,
    pub happened: u64,
}

impl Engine {
    /// `user_timeout_s`: how long users wait for an answer.
    pub fn new(application: Application, kinds: Vec<Kind>, user_timeout_s: f64, seed: u64) -> Self {
        let clusters = application.clusters;
        let pools = application
            .services
            .iter()
            .map(|s| (0..clusters).map(|c| vec![Pool::new(s.workers[c], s.queue); s.pods[c]]).collect())
            .collect();
        Self {
            pools,
            turn: vec![0; application.services.len() * clusters],
            states: vec![State::default(); application.services.len() * clusters],
            one_way_s: vec![0.0; clusters * clusters],
            weights: vec![0.0; application.routes * clusters * clusters],
            arrivals: vec![],
            upcoming: vec![],
            events: BinaryHeap::new(),
            order: 0,
            frames: Frames::default(),
            queue_deadlines: application.services.iter().map(|s| Deadlines::new(s.queue_timeout_s)).collect(),
            call_deadlines: Deadlines::new(application.call_timeout_s),
            user_deadlines: Deadlines::new(user_timeout_s),
            chance: Pcg64::seed_from_u64(seed),
            now: 0.0,
            counts: Counts::new(application.endpoints.len(), application.routes, clusters),
            ended: Ended::default(),
            entered: 0,
            happened: 0,
            application,
            kinds,
        }
    }

    /// Sets the load of every cluster, from now on.
    pub fn set_load(&mut self, load: Vec<Vec<Segment>>, poisson: bool) {
        self.arrivals = load.into_iter().map(|segments| Arrivals::new(segments, poisson)).collect();
        let now = self.now;
        self.upcoming =
            self.arrivals.iter_mut().map(|a| a.next(&mut self.chance).map(|at| now + at)).collect();
        for arrivals in &mut self.arrivals {
            arrivals.shift(now);
        }
    }

    /// Sets the round trips between clusters, in seconds [from, to].
    pub fn set_round_trips(&mut self, seconds: &[f64]) {
        self.one_way_s = seconds.iter().map(|s| s / 2.0).collect();
    }

    /// Sets the weights of all routes [route, from, to]. They need not sum to 1. Calls of rows without
    /// any weight fail.
    pub fn set_weights(&mut self, weights: &[f64]) {
        self.weights = weights.to_vec();
        for row in self.weights.chunks_mut(self.application.clusters) {
            let total: f64 = row.iter().sum();
            let mut sum = 0.0;
            for weight in row {
                sum += *weight;
                *weight = if total > 0.0 { sum / total } else { 0.0 };
            }
        }
    }

    pub fn set_state(&mut self, service: usize, cluster: usize, state: State) {
        self.states[service * self.application.clusters + cluster] = state;
    }

    /// Sets the workers of each pod of a service in a cluster. Those that are busy finish their work.
    pub fn set_workers(&mut self, service: usize, cluster: usize, workers: usize) {
        self.application.services[service].workers[cluster] = workers;
        for pod in 0..self.pools[service][cluster].len() {
            self.pools[service][cluster][pod].workers = workers;
            self.serve_next(service, cluster, pod);
        }
    }

    /// Sets the number of pods. Pods that are removed serve what they have, and get no more requests.
    pub fn set_pods(&mut self, service: usize, cluster: usize, pods: usize) {
        let settings = &mut self.application.services[service];
        settings.pods[cluster] = pods;
        let (workers, queue) = (settings.workers[cluster], settings.queue);
        let pools = &mut self.pools[service][cluster];
        while pools.len() < pods {
            pools.push(Pool::new(workers, queue));
        }
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
        let now = self.now;
        let sum = |pools: &mut Vec<Pool>| pools.iter_mut().map(|p| p.busy_seconds(now)).sum();
        self.pools.iter_mut().flatten().map(sum).collect()
    }

    /// Runs until `until`, and no further.
    pub fn run(&mut self, until: f64) {
        loop {
            let (at, next) = self.next();
            if at > until {
                break;
            }
            self.now = at;
            self.happened += 1;
            match next {
                Next::Event => {
                    let event = self.events.pop().expect("peeked");
                    match event.what {
                        Happens::Reaches => self.reach(event.frame),
                        Happens::Served => self.served(event.frame),
                        Happens::Answers => self.answered(event.frame),
                    }
                }
                Next::Arrival(cluster) => self.enter(cluster),
                Next::QueueTimeout(service) => {
                    let (_, frame, _) = self.queue_deadlines[service].take().expect("peeked");
                    self.leave_queue(frame);
                    self.answer(frame, true);
                }
                Next::CallTimeout => {
                    let (_, frame, _) = self.call_deadlines.take().expect("peeked");
                    self.give_up(frame);
                }
                Next::UserTimeout => {
                    let (_, frame, _) = self.user_deadlines.take().expect("peeked");
                    self.give_up(frame);
                }
            }
        }
        self.now = until;
    }

    fn next(&mut self) -> (f64, Next) {
        let mut best = (self.events.peek().map_or(f64::INFINITY, |event| event.at), Next::Event);
        for (cluster, at) in self.upcoming.iter().enumerate() {
            if let Some(at) = *at
                && at < best.0
            {
                best = (at, Next::Arrival(cluster));
            }
        }
        let frames = &self.frames;
        for (service, deadlines) in self.queue_deadlines.iter_mut().enumerate() {
            if let Some(at) = deadlines.next(|f, g| frames.is(f, g, Phase::Waiting))
                && at < best.0
            {
                best = (at, Next::QueueTimeout(service));
            }
        }
        let timeouts =
            [(&mut self.call_deadlines, Next::CallTimeout), (&mut self.user_deadlines, Next::UserTimeout)];
        for (deadlines, next) in timeouts {
            if let Some(at) = deadlines.next(|f, g| frames.is_awaited(f, g))
                && at < best.0
            {
                best = (at, next);
            }
        }
        best
    }

    fn push(&mut self, at: f64, frame: u32, what: Happens) {
        self.order += 1;
        self.events.push(Event { at, order: self.order, frame, what });
    }

    fn enter(&mut self, cluster: usize) {
        self.entered += 1;
        let total: f64 = self.kinds.iter().map(|kind| kind.share).sum();
        let mut left = if self.kinds.len() > 1 { self.chance.random::<f64>() * total } else { 0.0 };
        let mut chosen = 0;
        for (index, kind) in self.kinds.iter().enumerate() {
            chosen = index;
            left -= kind.share;
            if left < 0.0 {
                break;
            }
        }
        let endpoint = self.kinds[chosen].endpoint;
        let frame = self.send(endpoint, cluster, cluster, NONE, chosen, false);
        self.user_deadlines.set(self.now, frame, self.frames[frame].generation);
        self.upcoming[cluster] = self.arrivals[cluster].next(&mut self.chance);
        self.reach(frame);
    }

    fn send(
        &mut self,
        endpoint: usize,
        from: usize,
        to: usize,
        parent: u32,
        kind: usize,
        optional: bool,
    ) -> u32 {
        let parent_generation = if parent == NONE { 0 } else { self.frames[parent].generation };
        self.frames.add(Frame {
            generation: 0,
            phase: Phase::Sent,
            parent,
            parent_generation,
            abandoned: false,
            optional,
            failed: false,
            endpoint: endpoint as u32,
            cluster: to as u16,
            from: from as u16,
            pod: 0,
            kind: kind as u16,
            stage: 0,
            left: 0,
            sent: self.now,
            arrived: self.now,
            started: self.now,
        })
    }

    fn place(&self, frame: u32) -> (usize, usize, usize) {
        let frame = &self.frames[frame];
        let endpoint = frame.endpoint as usize;
        (endpoint, self.application.endpoints[endpoint].service, frame.cluster as usize)
    }

    fn reach(&mut self, frame: u32) {
        if self.frames[frame].abandoned {
            self.frames.remove(frame);
            return;
        }
        let (endpoint, service, cluster) = self.place(frame);
        let clusters = self.application.clusters;
        self.counts.arrived[endpoint * clusters + cluster] += 1;
        self.frames[frame].arrived = self.now;
        let pods = self.application.services[service].pods[cluster];
        if pods == 0 || !self.states[service * clusters + cluster].available {
            self.counts.failed[endpoint * clusters + cluster] += 1;
            self.answer(frame, true);
            return;
        }
        let turn = &mut self.turn[service * clusters + cluster];
        *turn = (*turn + 1) % pods;
        let pod = *turn;
        self.frames[frame].pod = pod as u32;
        let generation = self.frames[frame].generation;
        match self.pools[service][cluster][pod].arrive(self.now, frame, generation) {
            Admission::Serve => self.serve(frame),
            Admission::Wait => {
                self.frames[frame].phase = Phase::Waiting;
                self.queue_deadlines[service].set(self.now, frame, generation);
            }
            Admission::Full => {
                self.counts.failed[endpoint * clusters + cluster] += 1;
                self.answer(frame, true);
            }
        }
    }

    fn serve(&mut self, frame: u32) {
        let (endpoint, service, cluster) = self.place(frame);
        let speed = self.states[service * self.application.clusters + cluster].speed;
        let endpoint = &self.application.endpoints[endpoint];
        let seconds = endpoint.mean_s[cluster] / speed * endpoint.shape.draw(&mut self.chance);
        self.frames[frame].phase = Phase::Serving;
        self.frames[frame].started = self.now;
        self.push(self.now + seconds, frame, Happens::Served);
    }

    fn serve_next(&mut self, service: usize, cluster: usize, pod: usize) {
        loop {
            let frames = &self.frames;
            let open = |f: u32, g: u32| frames.is(f, g, Phase::Waiting);
            let Some(next) = self.pools[service][cluster][pod].next(self.now, open) else { return };
            self.serve(next);
        }
    }

    fn served(&mut self, frame: u32) {
        let (endpoint, service, cluster) = self.place(frame);
        let pod = self.frames[frame].pod as usize;
        let frames = &self.frames;
        let open = |f: u32, g: u32| frames.is(f, g, Phase::Waiting);
        if let Some(next) = self.pools[service][cluster][pod].release(self.now, open) {
            self.serve(next);
        }
        let at = endpoint * self.application.clusters + cluster;
        let state = self.states[service * self.application.clusters + cluster];
        let error_rate = self.application.endpoints[endpoint].error_rate.max(state.error_rate);
        if error_rate > 0.0 && self.chance.random::<f64>() < error_rate {
            self.counts.failed[at] += 1;
            self.answer(frame, true);
            return;
        }
        let Frame { arrived, started, .. } = self.frames[frame];
        self.counts.served[at] += 1;
        self.counts.own_s[at] += self.now - arrived;
        self.counts.waited_s[at] += started - arrived;
        self.frames[frame].phase = Phase::Calling;
        self.call(frame);
    }

    /// Makes the calls of the next stages, until one has calls to wait for.
    fn call(&mut self, frame: u32) {
        let endpoint = self.frames[frame].endpoint as usize;
        loop {
            let stage = self.frames[frame].stage as usize;
            if stage == self.application.endpoints[endpoint].stages.len() {
                self.answer(frame, false);
                return;
            }
            self.frames[frame].stage += 1;
            let mut chosen: Vec<(Call, usize)> = Vec::new();
            let from = self.frames[frame].cluster as usize;
            for number in 0..self.application.endpoints[endpoint].stages[stage].len() {
                let call = self.application.endpoints[endpoint].stages[stage][number].clone();
                for _ in 0..call.times.draw(&mut self.chance) {
                    chosen.push((call.clone(), self.destination(call.route, from)));
                }
            }
            if chosen.is_empty() {
                continue;
            }
            self.frames[frame].left = chosen.len() as u32;
            let clusters = self.application.clusters;
            for (call, to) in chosen {
                let child = self.send(call.endpoint, from, to.min(clusters - 1), frame, 0, call.optional);
                let generation = self.frames[child].generation;
                self.call_deadlines.set(self.now, child, generation);
                if to == clusters {
                    // No destination has a weight.
                    self.frames[child].cluster = from as u16;
                    self.answer(child, true);
                    continue;
                }
                self.counts.calls[(call.route * clusters + from) * clusters + to] += 1;
                if to != from {
                    self.counts.bytes[from * clusters + to] += call.request_bytes;
                }
                self.push(self.now + self.one_way_s[from * clusters + to], child, Happens::Reaches);
            }
            return;
        }
    }

    /// Returns the cluster that a call goes to; the number of clusters if there is none.
    fn destination(&mut self, route: usize, from: usize) -> usize {
        let clusters = self.application.clusters;
        let row = &self.weights[(route * clusters + from) * clusters..][..clusters];
        if row[clusters - 1] == 0.0 {
            return clusters;
        }
        let chance: f64 = self.chance.random();
        row.iter().position(|&sum| chance < sum).unwrap_or(clusters - 1)
    }

    /// Sends the answer back.
    fn answer(&mut self, frame: u32, failed: bool) {
        let (endpoint, service, cluster) = self.place(frame);
        let clusters = self.application.clusters;
        let from = self.frames[frame].from as usize;
        self.frames[frame].phase = Phase::Answered;
        self.frames[frame].failed = failed;
        if self.frames[frame].abandoned {
            self.frames.remove(frame);
            return;
        }
        if !failed && from != cluster {
            self.counts.bytes[cluster * clusters + from] +=
                self.application.endpoints[endpoint].response_bytes;
        }
        let delay = self.states[service * clusters + cluster].delay_s;
        let way = self.one_way_s[cluster * clusters + from];
        if delay + way > 0.0 {
            self.push(self.now + delay + way, frame, Happens::Answers);
        } else {
            self.answered(frame);
        }
    }

    fn answered(&mut self, frame: u32) {
        let Frame { abandoned, parent, parent_generation, failed, optional, .. } = self.frames[frame];
        if !abandoned {
            if parent == NONE {
                self.end(frame, self.now - self.frames[frame].sent, !failed);
            } else {
                self.returned(parent, parent_generation, failed && !optional);
            }
        }
        self.frames.remove(frame);
    }

    /// A call of `parent` has come to an end.
    fn returned(&mut self, parent: u32, generation: u32, failed: bool) {
        if self.frames[parent].generation != generation {
            return;
        }
        self.frames[parent].failed |= failed;
        self.frames[parent].left -= 1;
        if self.frames[parent].left > 0 {
            return;
        }
        if self.frames[parent].failed { self.answer(parent, true) } else { self.call(parent) }
    }

    /// The caller of a frame waits no longer. What is being served is finished.
    fn give_up(&mut self, frame: u32) {
        let Frame { parent, parent_generation, optional, phase, sent, .. } = self.frames[frame];
        if phase == Phase::Waiting {
            self.leave_queue(frame);
        }
        if parent == NONE {
            self.end(frame, self.now - sent, false);
        }
        self.frames[frame].abandoned = true;
        if phase == Phase::Waiting {
            self.frames.remove(frame);
        }
        if parent != NONE {
            self.returned(parent, parent_generation, !optional);
        }
    }

    fn leave_queue(&mut self, frame: u32) {
        let (endpoint, service, cluster) = self.place(frame);
        let pod = self.frames[frame].pod as usize;
        self.pools[service][cluster][pod].leave();
        self.counts.failed[endpoint * self.application.clusters + cluster] += 1;
    }

    fn end(&mut self, frame: u32, latency: f64, ok: bool) {
        let Frame { sent, from, kind, .. } = self.frames[frame];
        let latency = if ok { latency } else { self.user_deadlines.seconds };
        self.ended.push(sent, latency, ok, from as usize, kind as usize);
    }
}
