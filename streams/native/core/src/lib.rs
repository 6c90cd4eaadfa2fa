//! OTLP payloads of one Kafka partition -> calls with exclusive time, edges, network times, load.
//!
//! decode (`otlp`, `semconv`, `sampling`, `template`) -> `Span` -> window (`window`, ticks of log time) -> `link`
//! -> `exclusive` -> `columns`. Everything is a function of the log alone: see `window`.

pub mod classes;
pub mod counters;
pub mod decode;
pub mod limits;
pub mod memory;
pub mod output;
pub mod partition;
pub mod span;
pub mod trace;
