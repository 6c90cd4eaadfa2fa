//! Turns calls into rows, columns and batches, which are cut in the same way in every process.

pub(crate) mod arrivals;
pub mod closed;
pub mod columns;
pub(crate) mod network;
pub(crate) mod raw_spans;
pub(crate) mod rows;
