//! Trace context: W3C and B3 in, `traceparent` out, sampling, ids. Knows nothing of load or export.

pub mod b3;
pub mod hex;
pub mod ids;
pub mod sampling;
pub mod trace;
pub mod tracestate;
