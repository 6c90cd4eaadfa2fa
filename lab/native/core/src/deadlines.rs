//! Deadlines in the order in which they were set.
//!
//! All deadlines of one queue are equally long, so the first that was set is the first to pass. That
//! is cheaper than events that hardly ever happen.

use std::collections::VecDeque;

#[derive(Clone, Debug)]
pub struct Deadlines {
    pub seconds: f64,
    waiting: VecDeque<(f64, u32, u32)>,
}

impl Deadlines {
    pub fn new(seconds: f64) -> Self {
        Self { seconds, waiting: VecDeque::new() }
    }

    /// Sets a deadline for a frame of this generation. Removes the first ones if `open` says that they
    /// no longer matter.
    pub fn set(&mut self, now: f64, frame: u32, generation: u32, open: impl Fn(u32, u32) -> bool) {
        while self.waiting.front().is_some_and(|&(_, frame, generation)| !open(frame, generation)) {
            self.waiting.pop_front();
        }
        self.waiting.push_back((now + self.seconds, frame, generation));
    }

    /// Returns the next deadline before `limit` that still matters, without removing it.
    ///
    /// Few deadlines are that near. The frames of the others are not looked at.
    pub fn next(&mut self, limit: f64, open: impl Fn(u32, u32) -> bool) -> Option<f64> {
        while let Some(&(at, frame, generation)) = self.waiting.front() {
            if at >= limit {
                return None;
            }
            if open(frame, generation) {
                return Some(at);
            }
            self.waiting.pop_front();
        }
        None
    }

    /// Removes the next deadline. Returns its frame.
    pub fn take(&mut self) -> Option<u32> {
        self.waiting.pop_front().map(|(_, frame, _)| frame)
    }
}
