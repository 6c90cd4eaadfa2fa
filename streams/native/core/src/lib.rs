//! OTLP payloads of one Kafka partition -> calls with exclusive time, edges, network times, load.
//!
//! decode (`otlp`, `semconv`, `sampling`, `template`) -> `Span` -> window (`window`, ticks of log time) -> `link`
//! -> `exclusive` -> `columns`. Everything is a function of the log alone: see `window`.

mod arrivals;
mod attributes;
mod caches;
pub mod class_id;
pub mod classes;
mod clock;
pub mod closed;
mod cohort;
pub mod columns;
pub mod counters;
mod exclusive;
mod ids;
pub mod keys;
pub mod limits;
mod link;
pub mod names;
mod network;
pub mod otlp;
mod outcome;
pub mod partition;
mod passed;
mod peer;
mod raw;
mod raw_spans;
mod reading;
mod rejects;
mod rows;
pub mod sampling;
mod seen;
mod semconv;
mod slots;
pub mod span;
pub mod template;
pub mod texts;
mod window;
pub mod wire;
