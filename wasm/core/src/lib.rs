//! The logic of the Spillway filter, independent of proxy-wasm.
//!
//! Every input and every output is a plain value. The shell crate (`spillway-filter`) carries these
//! values to and from Envoy.
//!
//! A request passes through the modules in this order. [`request::headers`] finds the headers that
//! the filter reads. [`context::trace`] continues the caller's trace or starts one.
//! [`metering::load`] measures the load that the request met on arrival. [`request::exchange`]
//! collects the facts of the request and encodes them through [`otlp`]. [`export::outbox`] keeps
//! the finished span until the collector has accepted it.
#![warn(missing_docs)]

pub mod config;
pub mod context;
pub mod export;
pub mod metering;
pub mod otlp;
pub mod request;
pub mod short;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

/// The side of the application on which this proxy listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Requests to the application beside the proxy. Their spans have kind SERVER.
    Inbound,
    /// Requests that the application makes. Their spans have kind CLIENT.
    Outbound,
}

impl Direction {
    /// The contract's name of the direction, as used in the configuration and in spans.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Inbound => spillway_contracts::VALUE_DIRECTION_INBOUND,
            Self::Outbound => spillway_contracts::VALUE_DIRECTION_OUTBOUND,
        }
    }
}

/// A service in a cluster. Either of the two may be unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Party<'a> {
    /// Cluster name, as in the topology.
    pub cluster: Option<&'a str>,
    /// Service name.
    pub service: Option<&'a str>,
}
