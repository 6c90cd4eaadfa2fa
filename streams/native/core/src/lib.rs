//! Turns OTLP payloads of one Kafka partition into calls with exclusive time, edges, network times
//! and load.
//!
//! The stages are: decode (`otlp`, `semconv`, `sampling`, `template`) -> `Span` -> window
//! (`window`, ticks of log time) -> `link` -> `exclusive` -> `columns`. The output is a function of
//! the log alone, as `window` explains.

pub mod classes;
pub mod counters;
pub mod decode;
pub mod limits;
pub mod memory;
pub mod output;
pub mod partition;
pub mod span;
pub mod trace;
