//! What happens next: events at known times, and deadlines.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::deadlines::Deadlines;
use crate::frames::{Frames, NONE, is_awaited, waits};
use crate::users::Users;

/// What happens to a frame at a known time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happens {
    /// A request reaches its callee.
    Reaches,
    /// A worker has served it.
    Served,
    /// The answer reaches the caller.
    Answers,
}

#[derive(Clone, Copy, Debug)]
pub enum Next {
    Event(Happens, u32),
    /// A request of a user enters in this cluster.
    Enters(usize),
    /// This frame has waited in a queue for too long.
    LeavesQueue(u32),
    /// The caller of this frame waits no longer.
    GivesUp(u32),
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

enum Source {
    Events,
    Users(usize),
    Queue(usize),
    Calls,
    Requests,
}

#[derive(Clone, Debug)]
pub struct Agenda {
    events: BinaryHeap<Event>,
    order: u64,
    /// Of waiting in queues, by timeout. Few services have a timeout of their own.
    queues: Vec<Deadlines>,
    calls: Deadlines,
    requests: Deadlines,
}

impl Agenda {
    pub fn new(call_timeout_s: f64, user_timeout_s: f64) -> Self {
        Self {
            events: BinaryHeap::new(),
            order: 0,
            queues: vec![],
            calls: Deadlines::new(call_timeout_s),
            requests: Deadlines::new(user_timeout_s),
        }
    }

    pub fn user_timeout_s(&self) -> f64 {
        self.requests.seconds
    }

    pub fn add(&mut self, at: f64, frame: u32, what: Happens) {
        self.order += 1;
        self.events.push(Event { at, order: self.order, frame, what });
    }

    /// Sets the deadline of a frame that waits in a queue with this timeout.
    pub fn wait(&mut self, now: f64, timeout_s: f64, frame: u32, frames: &Frames) {
        let found = self.queues.iter().position(|deadlines| deadlines.seconds == timeout_s);
        let index = found.unwrap_or_else(|| {
            self.queues.push(Deadlines::new(timeout_s));
            self.queues.len() - 1
        });
        self.queues[index].set(now, frame, frames[frame].generation, waits(frames));
    }

    /// Sets the deadline of a user's request or of a call.
    pub fn await_answer(&mut self, now: f64, frame: u32, frames: &Frames) {
        let deadlines = if frames[frame].parent == NONE { &mut self.requests } else { &mut self.calls };
        deadlines.set(now, frame, frames[frame].generation, is_awaited(frames));
    }

    /// Takes out what happens next, and when, if that is not after `until`.
    pub fn next(&mut self, until: f64, users: &Users, frames: &Frames) -> Option<(f64, Next)> {
        let (at, source) = self.first(users, frames);
        if at > until {
            return None;
        }
        let next = match source {
            Source::Events => self.events.pop().map(|event| Next::Event(event.what, event.frame))?,
            Source::Users(cluster) => Next::Enters(cluster),
            Source::Queue(index) => Next::LeavesQueue(self.queues[index].take()?),
            Source::Calls => Next::GivesUp(self.calls.take()?),
            Source::Requests => Next::GivesUp(self.requests.take()?),
        };
        Some((at, next))
    }

    fn first(&mut self, users: &Users, frames: &Frames) -> (f64, Source) {
        let mut first = (self.events.peek().map_or(f64::INFINITY, |event| event.at), Source::Events);
        for (cluster, &(at, _)) in users.upcoming().iter().enumerate() {
            if at < first.0 {
                first = (at, Source::Users(cluster));
            }
        }
        for (index, deadlines) in self.queues.iter_mut().enumerate() {
            if let Some(at) = deadlines.next(first.0, waits(frames)) {
                first = (at, Source::Queue(index));
            }
        }
        for (deadlines, source) in [(&mut self.calls, Source::Calls), (&mut self.requests, Source::Requests)]
        {
            if let Some(at) = deadlines.next(first.0, is_awaited(frames)) {
                first = (at, source);
            }
        }
        first
    }
}
