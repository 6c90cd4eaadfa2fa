//! Envoy's own stats, atomic and shared by all workers; seen in `/stats` under `wasmcustom.`.

use proxy_wasm::hostcalls;
use proxy_wasm::types::{MetricType, Status};
use spillway_filter_core::Direction;

/// One stat.
#[derive(Clone, Copy)]
pub struct Metric(u32);

impl Metric {
    fn define(kind: MetricType, name: &str) -> Result<Self, Status> {
        hostcalls::define_metric(kind, name).map(Self)
    }

    /// Adds to a counter, or moves a gauge. A stat that cannot be written costs its count only.
    pub fn add(self, offset: i64) {
        if offset != 0 {
            let _ = hostcalls::increment_metric(self.0, offset);
        }
    }

    /// Its value over all workers.
    pub fn get(self) -> Option<u64> {
        hostcalls::get_metric(self.0).ok()
    }
}

/// The stats of one direction of one proxy.
pub struct Metrics {
    /// Gauge: requests inside.
    pub in_flight: Metric,
    /// Counter: requests arrived.
    pub arrivals: Metric,
    /// Counter: spans that the collector accepted.
    pub sent: Metric,
    /// Counter: spans given up, by a full queue or after the second try.
    pub dropped: Metric,
    /// Counter: export calls that failed.
    pub callout_failures: Metric,
    /// Counter: tunnels, upgrades and event streams, which leave no span.
    pub long_lived: Metric,
    /// Counter: trace headers that were not understood.
    pub malformed_traces: Metric,
}

impl Metrics {
    /// Defines (or finds) the stats; the error is the proxy's status.
    pub fn define(direction: Direction) -> Result<Self, Status> {
        let counter = |name: &str| Metric::define(MetricType::Counter, name);
        let side = direction.as_str();
        Ok(Self {
            in_flight: Metric::define(MetricType::Gauge, &format!("spillway_{side}_in_flight"))?,
            arrivals: counter(&format!("spillway_{side}_arrivals"))?,
            sent: counter("spillway_spans_sent")?,
            dropped: counter("spillway_spans_dropped")?,
            callout_failures: counter("spillway_callout_failures")?,
            long_lived: counter(&format!("spillway_{side}_long_lived"))?,
            malformed_traces: counter(&format!("spillway_{side}_malformed_traces"))?,
        })
    }
}

/// One request's share of the in-flight gauge: taken once, given back once, however it ends.
pub struct InFlight(Metric);

impl InFlight {
    /// Counts the request in.
    pub fn enter(gauge: Metric) -> Self {
        gauge.add(1);
        Self(gauge)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}
