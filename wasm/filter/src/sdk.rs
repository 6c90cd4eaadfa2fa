//! Envoy, through the host calls of the SDK. No other file calls them.
//!
//! The SDK's traits unwrap what these functions return, so the filter calls the functions directly.
//! A function panics on a status that it does not expect. docs/adr/0020 lists the affected calls,
//! and why Envoy never sends such a status.

use std::time::{Duration, Instant, UNIX_EPOCH};

use proxy_wasm::hostcalls;
use proxy_wasm::types::{BufferType, Bytes, LogLevel, MapType, MetricType};

use crate::host::{Call, Host};

/// A version that Envoy never assigns, because its versions count up from 1. Version 0 would
/// replace any existing value. With this one, only the first writer succeeds. Source:
/// proxy-wasm-cpp-host, `SharedData::set`.
const NO_VERSION: u32 = u32::MAX;

/// The host of a filter that runs in Envoy.
#[derive(Clone, Copy)]
pub struct Sdk {
    /// Zero of the monotonic clock.
    started: Instant,
}

impl Sdk {
    /// Starts the monotonic clock.
    pub fn start() -> Self {
        Self { started: Instant::now() }
    }
}

impl Host for Sdk {
    fn wall_ns(&self) -> u64 {
        let now = hostcalls::get_current_time().ok().and_then(|now| now.duration_since(UNIX_EPOCH).ok());
        now.map_or(0, nanoseconds)
    }

    fn mono_ns(&self) -> u64 {
        nanoseconds(self.started.elapsed())
    }

    fn random(&self, bytes: &mut [u8]) -> bool {
        getrandom::fill(bytes).is_ok()
    }

    fn log(&self, level: LogLevel, message: &str) {
        let _ = hostcalls::log(level, message);
    }

    fn configuration(&self) -> Bytes {
        let found = hostcalls::get_buffer(BufferType::PluginConfiguration, 0, usize::MAX);
        found.ok().flatten().unwrap_or_default()
    }

    fn tick_every(&self, period_ms: u64) {
        let _ = hostcalls::set_tick_period(Duration::from_millis(period_ms));
    }

    fn done(&self) {
        let _ = hostcalls::done();
    }

    fn headers(&self, map: MapType) -> Vec<(String, Bytes)> {
        hostcalls::get_map_bytes(map).unwrap_or_default()
    }

    /// Ignores errors: a header that cannot be changed costs a link in the trace, never the
    /// request.
    fn edit(&self, map: MapType, name: &str, value: Option<&str>) {
        let _ = hostcalls::set_map_value(map, name, value);
    }

    fn property(&self, path: &[&str]) -> Option<Bytes> {
        hostcalls::get_property(path.to_vec()).ok().flatten()
    }

    fn shared(&self, key: &str) -> Option<(Bytes, u32)> {
        let (value, version) = hostcalls::get_shared_data(key).ok()?;
        Some((value.unwrap_or_default(), version.unwrap_or(NO_VERSION)))
    }

    fn share(&self, key: &str, value: &[u8], version: u32) -> bool {
        hostcalls::set_shared_data(key, Some(value), Some(version)).is_ok()
    }

    fn define_metric(&self, kind: MetricType, name: &str) -> Option<u32> {
        hostcalls::define_metric(kind, name).ok()
    }

    fn increment_metric(&self, id: u32, offset: i64) {
        let _ = hostcalls::increment_metric(id, offset);
    }

    fn metric(&self, id: u32) -> Option<u64> {
        hostcalls::get_metric(id).ok()
    }

    fn grpc_call(&self, call: Call<'_>) -> Option<u32> {
        let timeout = Duration::from_millis(call.timeout_ms);
        let Call { cluster, service, method, message, .. } = call;
        hostcalls::dispatch_grpc_call(cluster, service, method, Vec::new(), Some(message), timeout).ok()
    }

    fn grpc_answer(&self, size: usize) -> Bytes {
        hostcalls::get_buffer(BufferType::GrpcReceiveBuffer, 0, size).ok().flatten().unwrap_or_default()
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
