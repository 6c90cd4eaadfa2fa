//! Index of the spans of one trace by id. It is small, and cleared for every trace.

use std::hash::{BuildHasher, RandomState};

use crate::memory::texts::fold;
use crate::span::{Kind, Span};

pub(crate) const NONE: u32 = u32::MAX;

/// For each kind, the first span that has a given id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    by_kind: [u32; 3],
}

impl Found {
    pub fn internal(self) -> u32 {
        self.by_kind[Kind::Internal as usize]
    }

    pub fn server(self) -> u32 {
        self.by_kind[Kind::Server as usize]
    }

    pub fn client(self) -> u32 {
        self.by_kind[Kind::Client as usize]
    }

    pub fn is_none(self) -> bool {
        self.by_kind == [NONE; 3]
    }
}

/// Hash table with open addressing and a load of at most one half.
#[derive(Debug)]
pub(crate) struct Ids {
    /// (id, index of the span or NONE, kind)
    entries: Vec<(u64, u32, Kind)>,
    mask: usize,
    /// Differs between processes, so that nobody can choose ids that collide. No result depends on
    /// it.
    seed: u64,
    /// Number of look-ups and probes so far. Tests count work instead of time.
    #[cfg(test)]
    pub looked: std::cell::Cell<usize>,
}

impl Default for Ids {
    fn default() -> Self {
        Ids {
            entries: Vec::new(),
            mask: 0,
            seed: RandomState::new().hash_one(0) | 1,
            #[cfg(test)]
            looked: std::cell::Cell::default(),
        }
    }
}

impl Ids {
    /// Removes all spans and makes room for `spans` new ones.
    pub fn clear(&mut self, spans: usize) {
        let size = (2 * spans).next_power_of_two().max(8);
        self.mask = size - 1;
        self.entries.clear();
        self.entries.resize(size, (0, NONE, Kind::Internal));
    }

    /// Adds a span. Of several spans with the same id and kind, the first is kept.
    pub fn insert(&mut self, id: u64, kind: Kind, span: u32) {
        let mut at = self.start(id);
        while self.entries[at].1 != NONE {
            if self.entries[at].0 == id && self.entries[at].2 == kind {
                return;
            }
            at = (at + 1) & self.mask;
        }
        self.entries[at] = (id, span, kind);
    }

    /// Replaces the content with the given spans.
    pub fn fill(&mut self, spans: &[Span]) {
        self.clear(spans.len());
        for (i, span) in spans.iter().enumerate() {
            self.insert(span.span_id, span.kind, i as u32);
        }
    }

    /// Returns the spans that have an id, by kind.
    pub fn find(&self, id: u64) -> Found {
        #[cfg(test)]
        self.looked.set(self.looked.get() + 1);
        let mut found = Found { by_kind: [NONE; 3] };
        let mut at = self.start(id);
        while self.entries[at].1 != NONE {
            #[cfg(test)]
            self.looked.set(self.looked.get() + 1);
            let (known, span, kind) = self.entries[at];
            if known == id {
                found.by_kind[kind as usize] = span;
            }
            at = (at + 1) & self.mask;
        }
        found
    }

    fn start(&self, id: u64) -> usize {
        fold(id ^ self.seed, 0x9E37_79B9_7F4A_7C15) as usize & self.mask
    }
}
