//! Spans of one worker between the end of their request and the collector's answer.
//!
//! Memory is bounded in spans and in bytes: what waits by the queue's bounds, what is under way or
//! waits for its second try by [`MAX_OUTSTANDING`] batches. What does not fit pushes the oldest batch
//! out, and is counted.

use std::collections::VecDeque;

use crate::otlp::envelope::put_span;

/// Batches that are sent and unanswered, or failed once and kept.
pub const MAX_OUTSTANDING: usize = 8;
const MAX_TRIES: u8 = 2;

/// Bounds of an outbox. A queue holds at least one batch of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Spans of one export.
    pub batch_spans: usize,
    /// Encoded bytes of one export; one span alone may be more.
    pub batch_bytes: usize,
    /// Spans that wait.
    pub queue_spans: usize,
    /// Encoded bytes that wait.
    pub queue_bytes: usize,
}

/// Encoded spans that go together.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Fields `spans` of ScopeSpans, one after the other.
    pub bytes: Vec<u8>,
    /// How many.
    pub spans: u64,
    tries: u8,
}

/// What an answer did to its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The collector has these spans.
    Sent {
        /// How many.
        spans: u64,
        /// Their encoded size.
        bytes: u64,
    },
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
    bounds: Bounds,
    /// Full batches, the oldest first.
    full: VecDeque<Batch>,
    /// The one that fills.
    open: Batch,
    kept: VecDeque<Batch>,
    under_way: Vec<(u32, Batch)>,
    waiting_spans: u64,
    waiting_bytes: usize,
}

impl Outbox {
    /// Empty.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            full: VecDeque::new(),
            open: Batch::default(),
            kept: VecDeque::new(),
            under_way: Vec::new(),
            waiting_spans: 0,
            waiting_bytes: 0,
        }
    }

    /// Adds a finished span's message; returns how many old ones had to go for it.
    pub fn push(&mut self, span: &[u8]) -> u64 {
        // Tag and length of the field around it take at most this.
        let size = span.len() + 6;
        let fits = self.open.bytes.len() + size <= self.bounds.batch_bytes;
        if self.open.spans >= self.bounds.batch_spans as u64 || (!fits && self.open.spans > 0) {
            self.full.push_back(std::mem::take(&mut self.open));
        }
        let mut dropped = 0;
        while self.waiting_spans >= self.bounds.queue_spans as u64
            || (self.waiting_bytes + size > self.bounds.queue_bytes && self.waiting_spans > 0)
        {
            dropped += self.take_oldest().map_or(0, |batch| batch.spans);
        }
        let before = self.open.bytes.len();
        put_span(span, &mut self.open.bytes);
        self.waiting_bytes += self.open.bytes.len() - before;
        self.waiting_spans += 1;
        self.open.spans += 1;
        dropped
    }

    /// Spans that wait for a batch.
    pub fn waiting(&self) -> u64 {
        self.waiting_spans
    }

    /// Encoded bytes that wait for a batch.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Spans not yet accepted: they wait, are under way, or are kept.
    pub fn held(&self) -> u64 {
        let batches = self.kept.iter().chain(self.under_way.iter().map(|(_, batch)| batch));
        self.waiting_spans + batches.map(|batch| batch.spans).sum::<u64>()
    }

    /// Whether an answer is still to come.
    pub fn expects_answers(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// A batch that failed before, to be sent again.
    pub fn take_kept(&mut self) -> Option<Batch> {
        self.kept.pop_front()
    }

    /// The oldest full batch, with `all` also one that is not full; None when there is none, or as many
    /// are outstanding as allowed.
    pub fn take_new(&mut self, all: bool) -> Option<Batch> {
        let full = !self.full.is_empty() || self.open.spans >= self.bounds.batch_spans as u64;
        if !(all || full) || self.under_way.len() + self.kept.len() >= MAX_OUTSTANDING {
            return None;
        }
        self.take_oldest()
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
        if accepted {
            return Outcome::Sent { spans: batch.spans, bytes: batch.bytes.len() as u64 };
        }
        self.failed(batch)
    }

    /// Every span not yet accepted, for the account of a worker that stops.
    pub fn abandon(&mut self) -> u64 {
        let waiting = std::iter::from_fn(|| self.take_oldest()).map(|batch| batch.spans).sum::<u64>();
        let kept = self.kept.drain(..).map(|batch| batch.spans).sum::<u64>();
        waiting + kept + self.under_way.drain(..).map(|(_, batch)| batch.spans).sum::<u64>()
    }

    fn take_oldest(&mut self) -> Option<Batch> {
        let open = || (self.open.spans > 0).then(|| std::mem::take(&mut self.open));
        let batch = self.full.pop_front().or_else(open)?;
        self.waiting_spans = self.waiting_spans.saturating_sub(batch.spans);
        self.waiting_bytes = self.waiting_bytes.saturating_sub(batch.bytes.len());
        Some(batch)
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
