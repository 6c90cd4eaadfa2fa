//! Holds the spans of one worker from the end of their request until the collector's answer.
//!
//! Memory is bounded in spans and in bytes. The queue's limits bound waiting spans.
//! [`MAX_OUTSTANDING`] bounds the batches that are in flight or wait for their second try. A span
//! that does not fit displaces the oldest batch, whose spans are counted as dropped.

use std::collections::VecDeque;

use crate::otlp::envelope::put_span;

/// Largest number of batches that are in flight, or failed once and are kept.
pub const MAX_OUTSTANDING: usize = 8;
const MAX_TRIES: u8 = 2;

/// Limits of an outbox. The queue holds at least one batch, in spans and in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Spans per export.
    pub batch_spans: usize,
    /// Encoded bytes per export. A single larger span is still exported.
    pub batch_bytes: usize,
    /// Spans that may wait, per worker and direction; at least `max_batch_spans`.
    pub queue_spans: usize,
    /// Encoded bytes that may wait, per worker and direction; at least `max_batch_bytes`.
    pub queue_bytes: usize,
}

/// Encoded spans that are exported together.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The fields `spans` of ScopeSpans, one after the other.
    pub bytes: Vec<u8>,
    /// Number of spans.
    pub spans: u64,
    tries: u8,
}

/// The effect of an answer on its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The collector has accepted the spans.
    Sent {
        /// Number of spans.
        spans: u64,
        /// Encoded size of the spans, in bytes.
        bytes: u64,
    },
    /// The export failed once. The batch is kept for the next flush.
    Kept,
    /// The export failed for good. Holds the number of dropped spans.
    Dropped(u64),
    /// The answer belongs to no batch in flight.
    Unknown,
}

/// The queue, the batches in flight, and the batches to be sent again.
#[derive(Debug)]
pub struct Outbox {
    bounds: Bounds,
    /// Full batches, oldest first.
    full: VecDeque<Batch>,
    /// The batch that is being filled.
    open: Batch,
    kept: VecDeque<Batch>,
    under_way: Vec<(u32, Batch)>,
    waiting_spans: u64,
    waiting_bytes: usize,
}

impl Outbox {
    /// Creates an empty outbox.
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

    /// Adds the encoded message of a finished span. Returns the number of older spans dropped to
    /// make room.
    pub fn push(&mut self, span: &[u8]) -> u64 {
        // Upper bound of the tag and length that precede the span.
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

    /// Number of spans that wait for export.
    pub fn waiting(&self) -> u64 {
        self.waiting_spans
    }

    /// Encoded bytes that wait for export.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Number of spans not yet accepted: waiting, in flight, or kept.
    pub fn held(&self) -> u64 {
        let batches = self.kept.iter().chain(self.under_way.iter().map(|(_, batch)| batch));
        self.waiting_spans + batches.map(|batch| batch.spans).sum::<u64>()
    }

    /// Whether any batch in flight still expects an answer.
    pub fn expects_answers(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Takes a batch that failed before, to be sent again.
    pub fn take_kept(&mut self) -> Option<Batch> {
        self.kept.pop_front()
    }

    /// Takes the oldest full batch. With `all`, takes a batch that is not full if there is no full
    /// one.
    ///
    /// Returns None when there is no such batch, or when [`MAX_OUTSTANDING`] batches are
    /// outstanding.
    pub fn take_new(&mut self, all: bool) -> Option<Batch> {
        let full = !self.full.is_empty() || self.open.spans >= self.bounds.batch_spans as u64;
        if !(all || full) || self.under_way.len() + self.kept.len() >= MAX_OUTSTANDING {
            return None;
        }
        self.take_oldest()
    }

    /// Records that the batch is in flight. Its answer will carry `token`.
    pub fn sent(&mut self, token: u32, mut batch: Batch) {
        batch.tries += 1;
        self.under_way.push((token, batch));
    }

    /// Records that the proxy refused to send the batch.
    pub fn refused(&mut self, mut batch: Batch) -> Outcome {
        batch.tries += 1;
        self.failed(batch)
    }

    /// Records the collector's answer to a batch.
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

    /// Discards every span not yet accepted and returns their number, for the statistics of a
    /// worker that stops.
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
