//! Spans of one worker between the end of their request and the collector's answer.
//!
//! Memory is bounded: at most `max_queue` spans wait, at most [`MAX_OUTSTANDING`] batches are under
//! way or wait for their second try. What does not fit pushes the oldest out, and is counted.

use std::collections::VecDeque;

/// Batches that are sent and unanswered, or failed once and kept.
pub const MAX_OUTSTANDING: usize = 4;
const MAX_TRIES: u8 = 2;

/// An encoded export request.
#[derive(Debug, PartialEq, Eq)]
pub struct Batch {
    /// ExportTraceServiceRequest.
    pub payload: Vec<u8>,
    /// Spans in it.
    pub spans: u64,
    tries: u8,
}

/// What an answer did to its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The collector has these spans.
    Sent(u64),
    /// Failed once, kept for the next flush.
    Kept,
    /// Failed for good.
    Dropped(u64),
    /// An answer to nothing that was asked.
    Unknown,
}

/// Queue, batches under way, batches to be sent again.
#[derive(Debug)]
pub struct Outbox {
    queue: VecDeque<Vec<u8>>,
    kept: VecDeque<Batch>,
    under_way: Vec<(u32, Batch)>,
    max_batch: usize,
    max_queue: usize,
}

impl Outbox {
    /// Bounds in spans; `max_queue >= max_batch >= 1`.
    pub fn new(max_batch: usize, max_queue: usize) -> Self {
        Self { queue: VecDeque::new(), kept: VecDeque::new(), under_way: Vec::new(), max_batch, max_queue }
    }

    /// Adds an encoded span; returns how many old ones had to go for it.
    pub fn push(&mut self, span: Vec<u8>) -> u64 {
        let mut dropped = 0;
        while self.queue.len() >= self.max_queue && self.queue.pop_front().is_some() {
            dropped += 1;
        }
        self.queue.push_back(span);
        dropped
    }

    /// Spans that wait for a batch.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Whether a full batch waits.
    pub fn full(&self) -> bool {
        self.queue.len() >= self.max_batch
    }

    /// A batch that failed before, to be sent again.
    pub fn take_kept(&mut self) -> Option<Batch> {
        self.kept.pop_front()
    }

    /// A new batch of the oldest spans, encoded by `wrap`; None when there are no spans, or as many
    /// batches outstanding as allowed.
    pub fn take_new(&mut self, wrap: impl FnOnce(&[Vec<u8>]) -> Vec<u8>) -> Option<Batch> {
        if self.queue.is_empty() || self.under_way.len() + self.kept.len() >= MAX_OUTSTANDING {
            return None;
        }
        let count = self.queue.len().min(self.max_batch);
        let spans: Vec<_> = self.queue.drain(..count).collect();
        Some(Batch { payload: wrap(&spans), spans: count as u64, tries: 0 })
    }

    /// The batch is under way; its answer will carry `token`.
    pub fn sent(&mut self, token: u32, mut batch: Batch) {
        batch.tries += 1;
        self.under_way.push((token, batch));
    }

    /// The proxy would not even send it.
    pub fn refused(&mut self, mut batch: Batch) -> Outcome {
        batch.tries += 1;
        self.failed(batch)
    }

    /// The collector's answer.
    pub fn answered(&mut self, token: u32, accepted: bool) -> Outcome {
        let Some(at) = self.under_way.iter().position(|(t, _)| *t == token) else {
            return Outcome::Unknown;
        };
        let (_, batch) = self.under_way.swap_remove(at);
        if accepted { Outcome::Sent(batch.spans) } else { self.failed(batch) }
    }

    /// Every span not yet accepted, for the account of a worker that stops.
    pub fn abandon(&mut self) -> u64 {
        let batches = self.kept.drain(..).map(|batch| batch.spans).sum::<u64>()
            + self.under_way.drain(..).map(|(_, batch)| batch.spans).sum::<u64>();
        batches + self.queue.drain(..).count() as u64
    }

    fn failed(&mut self, batch: Batch) -> Outcome {
        if batch.tries >= MAX_TRIES {
            return Outcome::Dropped(batch.spans);
        }
        self.kept.push_back(batch);
        Outcome::Kept
    }
}

#[cfg(test)]
#[path = "outbox_tests.rs"]
mod tests;
