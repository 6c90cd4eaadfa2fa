//! Random trace and span ids.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

/// Id of a trace: 16 bytes, not all zero.
pub type TraceId = [u8; 16];
/// Id of a span: 8 bytes, not all zero.
pub type SpanId = [u8; 8];

/// Random generator of ids. Each VM has its own, so that drawing an id needs no host call.
pub struct Ids(Xoshiro256PlusPlus);

impl Ids {
    /// Creates a generator from the host's entropy.
    pub fn from_entropy(seed: [u8; 32]) -> Self {
        Self(Xoshiro256PlusPlus::from_seed(seed))
    }

    /// Creates a generator when the host offers no entropy.
    ///
    /// `seed` mixes values that differ between VMs (time, context id, an address). SplitMix64
    /// spreads it over the generator's state.
    pub fn from_weak_seed(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Draws a new trace id.
    pub fn trace_id(&mut self) -> TraceId {
        let mut id = [0; 16];
        self.fill(&mut id);
        id
    }

    /// Draws a new span id.
    pub fn span_id(&mut self) -> SpanId {
        let mut id = [0; 8];
        self.fill(&mut id);
        id
    }

    fn fill(&mut self, id: &mut [u8]) {
        self.0.fill_bytes(id);
        // An id of all zeros means "no id" in every trace format.
        if id.iter().all(|byte| *byte == 0)
            && let Some(last) = id.last_mut()
        {
            *last = 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Ids do not repeat within a generator. Generators with different seeds share no ids.
    #[test]
    fn ids_are_distinct_within_and_between_generators() {
        let mut seen = HashSet::new();
        for mut ids in [Ids::from_weak_seed(1), Ids::from_weak_seed(2), Ids::from_entropy([7; 32])] {
            for _ in 0..10_000 {
                assert!(seen.insert(ids.trace_id().to_vec()));
                assert!(seen.insert(ids.span_id().to_vec()));
            }
        }
    }
}
