//! Turns OTLP payloads of one Kafka partition into calls with exclusive time, edges, network times
//! and load.
//!
//! The stages are: decode (`otlp`, `semconv`, `sampling`, `template`) -> `Span` -> window
//! (`window`, ticks of log time) -> `link` -> `exclusive` -> `columns`. The output is a function of
//! the log alone, as `window` explains.

// A panic loses the open traces of a partition. Slots of the trace memory are indexed, because their
// numbers are made there. What decodes payloads of strangers denies indexing too (decode/mod.rs).
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::string_slice,
        clippy::unreachable,
        clippy::todo,
        clippy::unimplemented
    )
)]

pub mod classes;
pub mod counters;
pub mod decode;
pub mod limits;
pub mod memory;
pub mod output;
pub mod partition;
pub mod span;
pub mod trace;
