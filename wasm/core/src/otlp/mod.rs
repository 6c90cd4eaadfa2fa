//! OTLP export, encoded straight from borrowed facts into bytes: no message types in between,
//! no copy of a name. A span is written as its request goes on, into one buffer: protobuf lets fields
//! come in any order, so what is known at arrival is written then.
//!
//! Field numbers: opentelemetry-proto v1, `trace.proto`, `common.proto`, `resource.proto`. The tests
//! decode with the published message types.

pub mod arrival;
mod attributes;
pub mod ending;
pub mod envelope;
pub mod totals;
mod wire;

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
