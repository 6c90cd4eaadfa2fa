//! The workers of one pod, and the bounded first-in-first-out queue in front of them, as in
//! lab/emulator/pool.go.

use std::collections::VecDeque;

#[derive(Clone, Debug)]
pub struct Pool {
    pub workers: usize,
    bound: usize,
    busy: usize,
    waiting: VecDeque<(u32, u32)>,
    gone: usize,
    since: f64,
    /// Worker-seconds until `since`.
    busy_s: f64,
}

/// What happens to a request that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    Serve,
    Wait,
    Refused,
}

impl Pool {
    pub fn new(workers: usize, bound: usize) -> Self {
        Self { workers, bound, busy: 0, waiting: VecDeque::new(), gone: 0, since: 0.0, busy_s: 0.0 }
    }

    pub fn arrive(&mut self, now: f64, frame: u32, generation: u32) -> Admission {
        if self.busy < self.workers {
            self.account(now);
            self.busy += 1;
            return Admission::Serve;
        }
        if self.waiting.len() - self.gone >= self.bound {
            return Admission::Refused;
        }
        self.waiting.push_back((frame, generation));
        Admission::Wait
    }

    /// A request that waited has left. Its place is taken out when its turn comes.
    pub fn leave(&mut self) {
        self.gone += 1;
    }

    /// A worker is free again. Returns the request that it serves next.
    pub fn release(&mut self, now: f64, open: impl Fn(u32, u32) -> bool) -> Option<u32> {
        self.account(now);
        self.busy -= 1;
        self.next(now, open)
    }

    /// Returns the next request if a worker is free for it.
    pub fn next(&mut self, now: f64, open: impl Fn(u32, u32) -> bool) -> Option<u32> {
        while self.busy < self.workers {
            let (frame, generation) = self.waiting.pop_front()?;
            if open(frame, generation) {
                self.account(now);
                self.busy += 1;
                return Some(frame);
            }
            self.gone -= 1;
        }
        None
    }

    /// Worker-seconds of work until now.
    pub fn busy_seconds(&mut self, now: f64) -> f64 {
        self.account(now);
        self.busy_s
    }

    pub fn is_idle(&self) -> bool {
        self.busy == 0 && self.waiting.len() == self.gone
    }

    fn account(&mut self, now: f64) {
        self.busy_s += self.busy as f64 * (now - self.since);
        self.since = now;
    }
}
