//! A request at its callee: it waits for a worker, and is served.

use rand::Rng;

use crate::agenda::Happens;
use crate::engine::Engine;
use crate::frames::{Frame, NONE, Phase, waits};
use crate::pool::Admission;

impl Engine {
    pub(crate) fn reach(&mut self, frame: u32) {
        if self.frames[frame].abandoned {
            self.frames.remove(frame);
            return;
        }
        let (_, service, cluster) = self.place(frame);
        let row = self.row(frame);
        self.counts.arrived[row] += 1;
        self.frames[frame].arrived = self.now;
        let Frame { pod, generation, .. } = self.frames[frame];
        let admission = if pod == NONE || !self.places.state(service, cluster).available {
            Admission::Refused
        } else {
            self.places.pool(pod).arrive(self.now, frame, generation)
        };
        match admission {
            Admission::Serve => self.serve(frame),
            Admission::Wait => {
                self.frames[frame].phase = Phase::Waiting;
                let timeout_s = self.application.services[service].queue_timeout_s;
                self.agenda.wait(self.now, timeout_s, frame, &self.frames);
            }
            Admission::Refused => {
                self.counts.failed[row] += 1;
                self.answer(frame, true);
            }
        }
    }

    fn serve(&mut self, frame: u32) {
        let (endpoint, service, cluster) = self.place(frame);
        let speed = self.places.state(service, cluster).speed;
        let key = self.key(frame);
        let memory = self.places.memory(self.frames[frame].pod);
        let slowdown = memory.serves(endpoint, self.now);
        let hit = key.is_some_and(|key| memory.knows(endpoint, key));
        let endpoint = &self.application.endpoints[endpoint];
        let (shape, mean_s) = match &endpoint.cache {
            Some(cache) if hit => (cache.hit, cache.hit_s[cluster]),
            _ => (endpoint.shape, endpoint.mean_s[cluster]),
        };
        let seconds = mean_s * slowdown / speed * shape.draw(&mut self.chance);
        self.frames[frame].phase = Phase::Serving;
        self.frames[frame].started = self.now;
        self.frames[frame].hit = hit;
        self.agenda.add(self.now + seconds, frame, Happens::Served);
    }

    /// The frame's key, if its endpoint has a cache.
    fn key(&self, frame: u32) -> Option<u64> {
        let Frame { endpoint, home, asks, .. } = self.frames[frame];
        let cache = self.application.endpoints[endpoint as usize].cache.as_ref()?;
        Some(self.users.key(cache.variable, home as usize, asks))
    }

    /// A frame has succeeded: its key is in the cache of its pod from now on.
    pub(crate) fn remember(&mut self, frame: u32) {
        if let Some(key) = self.key(frame) {
            let Frame { endpoint, pod, .. } = self.frames[frame];
            self.places.memory(pod).remember(endpoint as usize, key);
        }
    }

    /// Serves waiting requests of a pod while it has free workers.
    pub(crate) fn serve_waiting(&mut self, pod: u32) {
        while let Some(next) = self.places.pool(pod).next(self.now, waits(&self.frames)) {
            self.serve(next);
        }
    }

    pub(crate) fn served(&mut self, frame: u32) {
        let (endpoint, service, cluster) = self.place(frame);
        let Frame { pod, arrived, started, .. } = self.frames[frame];
        let row = self.row(frame);
        if let Some(next) = self.places.pool(pod).release(self.now, waits(&self.frames)) {
            self.serve(next);
        }
        let state = self.places.state(service, cluster);
        let error_rate = self.application.endpoints[endpoint].error_rate.max(state.error_rate);
        if error_rate > 0.0 && self.chance.random::<f64>() < error_rate {
            self.counts.failed[row] += 1;
            self.answer(frame, true);
            return;
        }
        self.counts.served[row] += 1;
        self.counts.own_s[row] += self.now - arrived;
        self.counts.waited_s[row] += started - arrived;
        if self.frames[frame].hit {
            self.counts.hits[row] += 1;
            self.answer(frame, false);
            return;
        }
        self.frames[frame].phase = Phase::Calling;
        self.call(frame);
    }

    pub(crate) fn leave_queue(&mut self, frame: u32) {
        self.places.pool(self.frames[frame].pod).leave();
        let row = self.row(frame);
        self.counts.failed[row] += 1;
    }
}
