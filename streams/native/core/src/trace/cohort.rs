//! The spans that arrived in one tick.

use crate::memory::names::Names;
use crate::memory::texts::Texts;
use crate::span::Span;
use crate::trace::seen::{self, Arrival};
use crate::trace::slots::{Slot, Slots};

/// The spans of one trace that arrived in one tick.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub slot: u32,
    /// The trace's previous group: its tick, and its number in that tick.
    pub before: (i64, u32),
    /// Its new spans, as (start, count) in `Cohort::order`.
    pub spans: (u32, u32),
    /// Its remembered keys, as (start, count) in `Cohort::keys`.
    pub keys: (u32, u32),
}

/// The spans of one tick, grouped by trace.
#[derive(Debug, Default)]
pub(crate) struct Cohort {
    /// In the order of arrival, including repeats. After `shrink`, only the spans that are still
    /// needed.
    pub spans: Vec<Span>,
    pub order: Vec<u32>,
    pub keys: Vec<u64>,
    pub groups: Vec<Group>,
}

/// Reusable memory for ordering the spans of a tick.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    arrivals: Vec<Arrival>,
    other: Vec<Arrival>,
    counts: Vec<u32>,
}

impl Scratch {
    pub fn capacity(&self) -> usize {
        self.arrivals.capacity().max(self.other.capacity())
    }

    /// Returns the tick's spans, ordered by trace.
    pub fn group(&mut self, spans: &[Span], names: &Names, texts: &mut Texts) -> &mut [Arrival] {
        self.arrivals.clear();
        self.arrivals.extend(spans.iter().enumerate().map(|(at, span)| Arrival {
            trace_id: span.trace_id,
            key: seen::key(span, names, texts),
            at: at as u32,
            is_repeat: false,
        }));
        seen::group(&mut self.arrivals, &mut self.other, &mut self.counts);
        &mut self.arrivals
    }
}

impl Cohort {
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty() && self.groups.is_empty()
    }

    /// Returns a trace's new spans with their positions in `spans`.
    pub fn new_spans(&self, group: &Group) -> impl Iterator<Item = (u32, &Span)> {
        let (start, count) = group.spans;
        self.order[start as usize..][..count as usize].iter().map(|at| (*at, &self.spans[*at as usize]))
    }

    pub fn known_keys(&self, group: &Group) -> &[u64] {
        let (start, count) = group.keys;
        &self.keys[start as usize..][..count as usize]
    }

    /// Adds the arrivals of one trace: new spans to `order`, and all keys to `keys`. Returns the
    /// number of new spans.
    pub fn push(&mut self, slot: u32, before: (i64, u32), arrivals: &[Arrival]) -> u32 {
        let (start, first_key) = (self.order.len() as u32, self.keys.len() as u32);
        self.order.extend(arrivals.iter().filter(|arrival| !arrival.is_repeat).map(|arrival| arrival.at));
        let distinct = arrivals.chunk_by(|a, b| a.key == b.key);
        self.keys.extend(distinct.map(|copies| copies[0].key));
        let count = self.order.len() as u32 - start;
        let keys = (first_key, self.keys.len() as u32 - first_key);
        self.groups.push(Group { slot, before, spans: (start, count), keys });
        count
    }

    /// Removes the spans of closed traces. Returns the old vector, so that its memory can be
    /// reused.
    pub fn shrink(&mut self, tick: i64, slots: &Slots) -> Vec<Span> {
        let spans = std::mem::take(&mut self.spans);
        let order = std::mem::take(&mut self.order);
        for group in &mut self.groups {
            let (start, count) = group.spans;
            group.spans = (self.order.len() as u32, 0);
            if count > 0 && needs(slots.get(group.slot), tick) {
                for at in &order[start as usize..][..count as usize] {
                    self.order.push(self.spans.len() as u32);
                    self.spans.push(spans[*at as usize].clone());
                }
                group.spans.1 = count;
            }
        }
        self.spans.shrink_to_fit();
        self.keys.shrink_to_fit();
        self.groups.shrink_to_fit();
        spans
    }
}

fn needs(slot: &Slot, tick: i64) -> bool {
    slot.is_open() && tick >= slot.open_since
}
