//! OTLP trace export, encoded straight from borrowed facts into bytes: no message types in between,
//! no copy of a name. A span is written as its request goes on, into one buffer.
//!
//! Field numbers: opentelemetry-proto v1, `trace.proto`, `common.proto`, `resource.proto`. The tests
//! decode with the published message types.

pub mod envelope;
pub mod span;
mod wire;

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
