//! What the filter asks of the proxy. [`crate::sdk::Sdk`] is Envoy; tests have a fake.
//!
//! Every question is total: what the proxy does not have, or fails to give, is `None`.

use proxy_wasm::types::{Bytes, LogLevel, MapType, MetricType};
use spillway_filter_core::property::{Properties, Property};

/// A gRPC call to one method of a cluster.
pub struct Call<'a> {
    /// Envoy cluster.
    pub cluster: &'a str,
    /// gRPC service.
    pub service: &'a str,
    /// gRPC method.
    pub method: &'a str,
    /// Encoded request.
    pub message: &'a [u8],
    /// After this the proxy reports a failure.
    pub timeout_ms: u64,
}

/// The proxy, as one plugin in one worker sees it.
pub trait Host: Clone + 'static {
    /// Nanoseconds since the epoch.
    fn wall_ns(&self) -> u64;
    /// Nanoseconds of a clock that never steps back.
    fn mono_ns(&self) -> u64;
    /// Fills `bytes` with entropy. Returns whether it could.
    fn random(&self, bytes: &mut [u8]) -> bool;
    /// Writes a line to the proxy's log.
    fn log(&self, level: LogLevel, message: &str);

    /// The plugin's configuration; empty where there is none.
    fn configuration(&self) -> Bytes;
    /// Asks for a tick of the root context at hand every `period_ms`.
    fn tick_every(&self, period_ms: u64);
    /// Lets the proxy delete the root context at hand, which had asked to be kept.
    fn done(&self);

    /// Every header, in order.
    fn headers(&self, map: MapType) -> Vec<(String, Bytes)>;
    /// Sets a header, or removes it with `None`.
    fn edit(&self, map: MapType, name: &str, value: Option<&str>);
    /// A property of the request or the proxy.
    fn property(&self, path: &[&str]) -> Option<Bytes>;

    /// The value that all workers share under `key`, with its version. Empty where nobody wrote yet.
    fn shared(&self, key: &str) -> Option<(Bytes, u32)>;
    /// Replaces the value that was read with `version`. Returns whether nobody else was faster.
    fn share(&self, key: &str, value: &[u8], version: u32) -> bool;

    /// Defines a stat, or finds it; workers that define the same name share it.
    fn define_metric(&self, kind: MetricType, name: &str) -> Option<u32>;
    /// Adds to a stat.
    fn increment_metric(&self, id: u32, offset: i64);
    /// The value of a stat, over all workers.
    fn metric(&self, id: u32) -> Option<u64>;

    /// Starts a unary call; the answer carries the returned token.
    fn grpc_call(&self, call: Call<'_>) -> Option<u32>;
    /// The first `size` bytes of the answer at hand.
    fn grpc_answer(&self, size: usize) -> Bytes;
}

/// Answers the core's questions about the request at hand, and keeps the last answer for it.
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
