//! Index of traces by id, for as long as anything about them is remembered.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

use crate::memory::texts::fold;

/// A trace of which a span arrived within the memory. All ticks are ticks of arrival.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub trace_id: u128,
    /// Tick of the last arrival that followed more than `hold` of silence. The trace's life is
    /// counted from it.
    pub run_first: i64,
    /// Tick of the last arrival, including repeats. `head` lies in its cohort.
    pub last_arrival: i64,
    /// The newest group of the trace, in the cohort of `last_arrival`.
    pub head: u32,
    /// Number of spans in the open trace. 0 when no trace is open.
    pub spans: u32,
    pub open_since: i64,
    pub last_span: i64,
}

impl Slot {
    pub fn is_open(&self) -> bool {
        self.spans > 0
    }
}

/// The slots of all remembered traces.
#[derive(Debug)]
pub(crate) struct Slots {
    table: HashTable<u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Differs between processes, so that nobody can choose ids that collide. No result depends on
    /// it.
    seed: u64,
}

impl Default for Slots {
    fn default() -> Self {
        let seed = RandomState::new().hash_one(0) | 1;
        Slots { table: HashTable::new(), slots: Vec::new(), free: Vec::new(), seed }
    }
}

impl Slots {
    /// Returns the slot of a trace, if anything about the trace is remembered.
    pub fn find(&self, trace_id: u128) -> Option<u32> {
        let is_it = |at: &u32| self.slots[*at as usize].trace_id == trace_id;
        self.table.find(hash(self.seed, trace_id), is_it).copied()
    }

    /// Returns the slot of a trace, and whether it is new. In a new slot, `head` and all ticks are
    /// 0.
    pub fn find_or_insert(&mut self, trace_id: u128) -> (u32, bool) {
        if let Some(known) = self.find(trace_id) {
            return (known, false);
        }
        let slot =
            Slot { trace_id, run_first: 0, last_arrival: 0, head: 0, spans: 0, open_since: 0, last_span: 0 };
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at as usize] = slot;
                at
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        };
        let (slots, seed) = (&self.slots, self.seed);
        self.table.insert_unique(hash(seed, trace_id), at, |at| hash(seed, slots[*at as usize].trace_id));
        (at, true)
    }

    pub fn get(&self, at: u32) -> &Slot {
        &self.slots[at as usize]
    }

    pub fn get_mut(&mut self, at: u32) -> &mut Slot {
        &mut self.slots[at as usize]
    }

    /// Frees a slot. Its number may be given to another trace from now on.
    pub fn remove(&mut self, at: u32) {
        let hash = hash(self.seed, self.slots[at as usize].trace_id);
        if let Ok(entry) = self.table.find_entry(hash, |known| *known == at) {
            entry.remove();
            self.free.push(at);
        }
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Removes all slots when nothing is remembered, and releases the memory of a peak.
    pub fn clear(&mut self) {
        self.table = HashTable::new();
        self.slots = Vec::new();
        self.free = Vec::new();
    }
}

fn hash(seed: u64, trace_id: u128) -> u64 {
    fold(trace_id as u64 ^ seed, (trace_id >> 64) as u64 ^ seed.rotate_left(32))
}
