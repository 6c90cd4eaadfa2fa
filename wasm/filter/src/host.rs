//! The interface through which the filter uses the proxy. [`crate::sdk::Sdk`] is Envoy, and tests
//! use a fake.
//!
//! Every method is total: it returns `None` for a value that the proxy does not have or fails to
//! return.

use proxy_wasm::types::{Bytes, LogLevel, MapType, MetricType};
use spillway_filter_core::request::property::{Properties, Property};

/// A gRPC call to one method, through an Envoy cluster.
pub struct Call<'a> {
    /// Name of the Envoy cluster.
    pub cluster: &'a str,
    /// Name of the gRPC service.
    pub service: &'a str,
    /// Name of the gRPC method.
    pub method: &'a str,
    /// The encoded request.
    pub message: &'a [u8],
    /// Time in milliseconds after which the proxy reports a failure.
    pub timeout_ms: u64,
}

/// The proxy, as seen by one plugin in one worker.
pub trait Host: Clone + 'static {
    /// Wall clock, in nanoseconds since the epoch.
    fn wall_ns(&self) -> u64;
    /// Monotonic clock in nanoseconds, which never steps back.
    fn mono_ns(&self) -> u64;
    /// Fills `bytes` with entropy. Returns whether entropy was available.
    fn random(&self, bytes: &mut [u8]) -> bool;
    /// Writes a line to the proxy's log.
    fn log(&self, level: LogLevel, message: &str);

    /// Returns the plugin's configuration, or empty bytes if there is none.
    fn configuration(&self) -> Bytes;
    /// Requests a tick of the current root context every `period_ms`.
    fn tick_every(&self, period_ms: u64);
    /// Lets the proxy delete the current root context, which had asked to be kept.
    fn done(&self);

    /// Returns every header, in order.
    fn headers(&self, map: MapType) -> Vec<(String, Bytes)>;
    /// Sets a header, or removes it if `value` is `None`.
    fn edit(&self, map: MapType, name: &str, value: Option<&str>);
    /// Returns a property of the request or the proxy.
    fn property(&self, path: &[&str]) -> Option<Bytes>;

    /// Returns the value that all workers share under `key`, with its version. The value is empty
    /// until a worker writes it.
    fn shared(&self, key: &str) -> Option<(Bytes, u32)>;
    /// Replaces the shared value if it still has the given `version`. Returns whether it was
    /// replaced.
    fn share(&self, key: &str, value: &[u8], version: u32) -> bool;

    /// Defines a stat, or finds an existing one. Workers that define the same name share the stat.
    fn define_metric(&self, kind: MetricType, name: &str) -> Option<u32>;
    /// Adds `offset` to a stat.
    fn increment_metric(&self, id: u32, offset: i64);
    /// Returns the value of a stat, over all workers.
    fn metric(&self, id: u32) -> Option<u64>;

    /// Starts a unary call. The answer carries the returned token.
    fn grpc_call(&self, call: Call<'_>) -> Option<u32>;
    /// Returns the first `size` bytes of the current answer.
    fn grpc_answer(&self, size: usize) -> Bytes;
}

/// Reads properties of the current request for the core. Each value is kept until the next read.
pub struct Asked<'a, H> {
    host: &'a H,
    answer: Bytes,
}

impl<'a, H: Host> Asked<'a, H> {
    pub fn new(host: &'a H) -> Self {
        Self { host, answer: Bytes::new() }
    }
}

impl<H: Host> Properties for Asked<'_, H> {
    fn get(&mut self, property: Property) -> Option<&[u8]> {
        self.answer = self.host.property(property.path())?;
        Some(&self.answer)
    }

    fn request_header_bytes(&mut self) -> Option<u64> {
        let headers = self.host.headers(MapType::HttpRequestHeaders);
        let bytes = headers.iter().map(|(name, value)| (name.len() + value.len()) as u64).sum();
        Some(bytes).filter(|bytes| *bytes > 0)
    }
}
