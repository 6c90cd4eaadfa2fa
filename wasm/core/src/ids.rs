//! Random trace and span ids.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

/// Sixteen bytes, not all zero.
pub type TraceId = [u8; 16];
/// Eight bytes, not all zero.
pub type SpanId = [u8; 8];

/// A generator of its own per VM: ids cost no host call.
pub struct Ids(Xoshiro256PlusPlus);

impl Ids {
    /// From the host's entropy.
    pub fn from_entropy(seed: [u8; 32]) -> Self {
        Self(Xoshiro256PlusPlus::from_seed(seed))
    }

    /// Where the host has no entropy to give: `seed` mixes what differs between VMs (time, context
    /// id, an address); SplitMix64 spreads it over the state.
    pub fn from_weak_seed(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// A new trace id.
    pub fn trace_id(&mut self) -> TraceId {
        let mut id = [0; 16];
        self.fill(&mut id);
        id
    }

    /// A new span id.
    pub fn span_id(&mut self) -> SpanId {
        let mut id = [0; 8];
        self.fill(&mut id);
        id
    }

    fn fill(&mut self, id: &mut [u8]) {
        self.0.fill_bytes(id);
        // All zero means "no id" in every trace format.
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

    /// Ids do not repeat within a generator, and two VMs with different seeds do not share any.
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
