//! Finished spans on their way to the collector: bounded, in batches, each accounted for.

pub mod outbox;
pub mod turn;
