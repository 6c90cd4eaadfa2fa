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

    /// Sets a deadline for a frame of this generation.
    pub fn set(&mut self, now: f64, frame: u32, generation: u32) {
        self.waiting.push_back((now + self.seconds, frame, generation));
    }

    /// Returns the next deadline that `open` says still matters, without removing it.
    pub fn next(&mut self, open: impl Fn(u32, u32) -> bool) -> Option<f64> {
        while let Some(&(at, frame, generation)) = self.waiting.front() {
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
