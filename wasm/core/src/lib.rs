//! The thinking of the Spillway filter. Knows nothing of proxy-wasm: every input is a value, every
//! output is a value, and the shell (`spillway-filter`) carries them to and from Envoy.
//!
//! The way of a request: [`headers`] finds what it carries, [`trace`] continues or starts its trace,
//! [`load`] tells what load it met, [`exchange`] gathers what happens to it and writes it through
//! [`otlp`], [`outbox`] keeps the span until the collector has it.
#![warn(missing_docs)]

pub mod b3;
pub mod caller;
pub mod class;
pub mod classes;
pub mod config;
pub mod exchange;
pub mod flags;
pub mod grpc;
pub mod headers;
pub mod hex;
pub mod ids;
pub mod load;
pub mod message;
pub mod otlp;
pub mod outbox;
pub mod outcome;
pub mod property;
pub mod sampling;
pub mod short;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod trace;
pub mod tracestate;
pub mod turn;

/// Where this proxy stands in relation to its application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Requests towards the application beside the proxy: spans of kind SERVER.
    Inbound,
    /// Requests that the application makes: spans of kind CLIENT.
    Outbound,
}

impl Direction {
    /// The contract's word for it, as configured and as written into spans.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Inbound => spillway_contracts::VALUE_DIRECTION_INBOUND,
            Self::Outbound => spillway_contracts::VALUE_DIRECTION_OUTBOUND,
        }
    }
}

/// A service in a cluster; either may be unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Party<'a> {
    /// Cluster name, as in the topology.
    pub cluster: Option<&'a str>,
    /// Service name.
    pub service: Option<&'a str>,
}
