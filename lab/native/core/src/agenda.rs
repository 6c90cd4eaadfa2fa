//! What happens next: events at known times, and deadlines.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::deadlines::Deadlines;
use crate::frames::{Frames, Phase};
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
    Answers,
}

#[derive(Clone, Debug)]
pub struct Agenda {
    events: BinaryHeap<Event>,
    order: u64,
    /// Of waiting in the queues of each service.
    pub queues: Vec<Deadlines>,
    /// Of calls.
    pub calls: Deadlines,
    /// Of the users' requests.
    pub answers: Deadlines,
}

impl Agenda {
    pub fn new(
        queue_timeouts_s: impl Iterator<Item = f64>,
        call_timeout_s: f64,
        user_timeout_s: f64,
    ) -> Self {
        Self {
            events: BinaryHeap::new(),
            order: 0,
            queues: queue_timeouts_s.map(Deadlines::new).collect(),
            calls: Deadlines::new(call_timeout_s),
            answers: Deadlines::new(user_timeout_s),
        }
    }

    pub fn add(&mut self, at: f64, frame: u32, what: Happens) {
        self.order += 1;
        self.events.push(Event { at, order: self.order, frame, what });
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
            Source::Queue(service) => Next::LeavesQueue(self.queues[service].take()?),
            Source::Calls => Next::GivesUp(self.calls.take()?),
            Source::Answers => Next::GivesUp(self.answers.take()?),
        };
        Some((at, next))
    }

    fn first(&mut self, users: &Users, frames: &Frames) -> (f64, Source) {
        let mut first = (self.events.peek().map_or(f64::INFINITY, |event| event.at), Source::Events);
        for (cluster, &at) in users.upcoming().iter().enumerate() {
            if at < first.0 {
                first = (at, Source::Users(cluster));
            }
        }
        for (service, deadlines) in self.queues.iter_mut().enumerate() {
            if let Some(at) = deadlines.next(|f, g| frames.is(f, g, Phase::Waiting))
                && at < first.0
            {
                first = (at, Source::Queue(service));
            }
        }
        for (deadlines, source) in [(&mut self.calls, Source::Calls), (&mut self.answers, Source::Answers)] {
            if let Some(at) = deadlines.next(|f, g| frames.is_awaited(f, g))
                && at < first.0
            {
                first = (at, source);
            }
        }
        first
    }
}
