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
        let endpoint = &self.application.endpoints[endpoint];
        let seconds = endpoint.mean_s[cluster] / speed * endpoint.shape.draw(&mut self.chance);
        self.frames[frame].phase = Phase::Serving;
        self.frames[frame].started = self.now;
        self.agenda.add(self.now + seconds, frame, Happens::Served);
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
        self.frames[frame].phase = Phase::Calling;
        self.call(frame);
    }

    pub(crate) fn leave_queue(&mut self, frame: u32) {
        self.places.pool(self.frames[frame].pod).leave();
        let row = self.row(frame);
        self.counts.failed[row] += 1;
    }
}
