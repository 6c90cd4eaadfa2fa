//! Encodes OTLP exports directly from borrowed facts, without intermediate message types or copies
//! of names.
//!
//! A span is encoded into one buffer while its request is in progress. Protobuf allows fields in
//! any order, so facts known on arrival are written on arrival. Field numbers: opentelemetry-proto
//! v1, `trace.proto`, `common.proto`, `resource.proto`. The tests decode with the published message
//! types.

pub mod arrival;
mod attributes;
pub mod ending;
pub mod envelope;
pub mod totals;
mod wire;

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
