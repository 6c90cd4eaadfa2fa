//! A request at its caller: users and pods send it, and wait for the answer.

use rand::Rng;

use crate::agenda::Happens;
use crate::application::Call;
use crate::engine::Engine;
use crate::frames::{Frame, NONE, Phase};
use crate::places::State;

impl Engine {
    /// A user of a cluster sends a request.
    pub(crate) fn enter(&mut self, cluster: usize) {
        self.entered += 1;
        let (kind, endpoint, asks) = self.users.take(cluster);
        let service = self.application.endpoints[endpoint].service;
        let pod = self.places.any(service, cluster, &mut self.chance);
        let frame = self.frames.add(Frame {
            endpoint: endpoint as u32,
            cluster: cluster as u16,
            from: cluster as u16,
            pod,
            kind: kind as u16,
            home: cluster as u16,
            asks,
            ..Frame::sent(self.now)
        });
        self.agenda.await_answer(self.now, frame, &self.frames);
        self.reach(frame);
    }

    /// Makes the calls of the next stages, until one has calls to wait for.
    pub(crate) fn call(&mut self, frame: u32) {
        let endpoint = self.frames[frame].endpoint as usize;
        let from = self.frames[frame].cluster as usize;
        loop {
            let stage = self.frames[frame].stage as usize;
            if stage == self.application.endpoints[endpoint].stages.len() {
                self.remember(frame);
                self.answer(frame, false);
                return;
            }
            self.frames[frame].stage += 1;
            let mut chosen = std::mem::take(&mut self.chosen);
            for call in &self.application.endpoints[endpoint].stages[stage] {
                for _ in 0..call.times.draw(&mut self.chance) {
                    chosen.push((*call, self.routes.destination(call.route, from, &mut self.chance)));
                }
            }
            let left = chosen.len() as u32;
            self.frames[frame].left = left;
            for (call, to) in chosen.drain(..) {
                self.send(frame, from, &call, to);
            }
            self.chosen = chosen;
            if left > 0 {
                return;
            }
        }
    }

    /// Sends a call of `parent`. It fails at once if it has no destination.
    fn send(&mut self, parent: u32, from: usize, call: &Call, to: Option<usize>) {
        let Some(to) = to else {
            self.returned(parent, !call.optional);
            return;
        };
        let clusters = self.application.clusters;
        let service = self.application.endpoints[call.endpoint].service;
        let Frame { pod: caller, home, asks, .. } = self.frames[parent];
        let pod = self.places.least_requests(service, to, caller, &mut self.chance);
        if pod != NONE {
            self.places.call_begins(caller, pod);
        }
        let frame = self.frames.add(Frame {
            parent,
            optional: call.optional,
            endpoint: call.endpoint as u32,
            route: call.route as u32,
            cluster: to as u16,
            from: from as u16,
            pod,
            home,
            asks,
            ..Frame::sent(self.now)
        });
        self.agenda.await_answer(self.now, frame, &self.frames);
        self.counts.calls[(call.route * clusters + from) * clusters + to] += 1;
        if to != from {
            self.counts.bytes[from * clusters + to] += call.request_bytes;
        }
        self.agenda.add(self.now + self.routes.one_way_s(from, to), frame, Happens::Reaches);
    }

    /// Sends the answer back.
    pub(crate) fn answer(&mut self, frame: u32, failed: bool) {
        let (endpoint, service, cluster) = self.place(frame);
        let from = self.frames[frame].from as usize;
        self.frames[frame].phase = Phase::Answered;
        self.frames[frame].failed = failed;
        if self.frames[frame].abandoned {
            self.frames.remove(frame);
            return;
        }
        if !failed && from != cluster {
            self.counts.bytes[cluster * self.application.clusters + from] +=
                self.application.endpoints[endpoint].response_bytes;
        }
        let State { delay_s, delay_share, .. } = self.places.state(service, cluster);
        // A delay that all have, or none, takes no chance: seeds mean what they meant without shares.
        let delayed = delay_s > 0.0 && (delay_share >= 1.0 || self.chance.random::<f64>() < delay_share);
        let delay = if delayed { delay_s } else { 0.0 };
        let way = self.routes.one_way_s(from, cluster);
        if delay + way > 0.0 {
            self.agenda.add(self.now + delay + way, frame, Happens::Answers);
        } else {
            self.answered(frame);
        }
    }

    pub(crate) fn answered(&mut self, frame: u32) {
        let Frame { abandoned, failed, .. } = self.frames[frame];
        if !abandoned {
            self.end(frame, failed);
        }
        self.frames.remove(frame);
    }

    /// The caller of a frame waits no longer. What is being served is finished.
    pub(crate) fn give_up(&mut self, frame: u32) {
        let waiting = self.frames[frame].phase == Phase::Waiting;
        if waiting {
            self.leave_queue(frame);
        }
        self.frames[frame].abandoned = true;
        self.end(frame, true);
        if waiting {
            self.frames.remove(frame);
        }
    }

    /// A frame has come to an end for its caller. Failed requests of users have the timeout's latency.
    fn end(&mut self, frame: u32, failed: bool) {
        let Frame { parent, optional, pod, sent, from, kind, .. } = self.frames[frame];
        if parent == NONE {
            let latency_s = if failed { self.agenda.user_timeout_s() } else { self.now - sent };
            self.ended.push(sent, latency_s, !failed, from as usize, kind as usize);
            return;
        }
        let Frame { route, cluster, .. } = self.frames[frame];
        self.outcomes.add(route, from, cluster, self.now - sent, failed);
        if pod != NONE {
            self.places.call_ends(self.frames[parent].pod, pod);
        }
        self.returned(parent, failed && !optional);
    }

    /// A call of `parent` has returned. A frame waits for all its calls, so `parent` is still there.
    fn returned(&mut self, parent: u32, failed: bool) {
        self.frames[parent].failed |= failed;
        self.frames[parent].left -= 1;
        if self.frames[parent].left > 0 {
            return;
        }
        if self.frames[parent].failed { self.answer(parent, true) } else { self.call(parent) }
    }
}
