//! Envoy's stats, which are atomic and shared by all workers. `/stats` shows them under
//! `wasmcustom.`.

use proxy_wasm::types::MetricType;
use spillway_contracts::*;
use spillway_filter_core::Direction;
use spillway_filter_core::otlp::totals::Spans;

use crate::host::Host;

/// One stat of Envoy.
#[derive(Clone, Copy)]
pub struct Metric(u32);

impl Metric {
    /// Defines or finds a counter.
    pub fn counter(host: &impl Host, name: &str) -> Option<Self> {
        host.define_metric(MetricType::Counter, name).map(Self)
    }

    /// Defines or finds a gauge.
    pub fn gauge(host: &impl Host, name: &str) -> Option<Self> {
        host.define_metric(MetricType::Gauge, name).map(Self)
    }

    /// Adds to a counter, or moves a gauge. If the stat cannot be written, only this count is lost.
    pub fn add(self, host: &impl Host, offset: i64) {
        if offset != 0 {
            host.increment_metric(self.0, offset);
        }
    }

    /// Returns the value over all workers.
    pub fn get(self, host: &impl Host) -> Option<u64> {
        host.metric(self.0)
    }
}

/// Fills in the placeholders of a name from the contract.
pub fn named(template: &str, direction: Direction, class: &str) -> String {
    template.replace("{direction}", direction.as_str()).replace("{class}", class)
}

/// A counter that is published to the proxy on each tick instead of on each event.
pub struct Tally {
    metric: Metric,
    untold: u64,
}

impl Tally {
    fn new(host: &impl Host, name: &str) -> Option<Self> {
        Some(Self { metric: Metric::counter(host, name)?, untold: 0 })
    }

    pub fn add(&mut self, events: u64) {
        self.untold += events;
    }

    /// Returns the value over all workers, as far as they have published it.
    fn get(&self, host: &impl Host) -> Option<u64> {
        self.metric.get(host)
    }

    fn tell(&mut self, host: &impl Host) {
        self.metric.add(host, i64::try_from(std::mem::take(&mut self.untold)).unwrap_or(i64::MAX));
    }
}

/// The reason why spans were dropped.
#[derive(Clone, Copy)]
pub enum Reason {
    /// The queue was full, so the oldest batch was dropped.
    QueueFull,
    /// The second try failed too.
    ExportFailed,
    /// The collector accepted the call and rejected the spans.
    Rejected,
    /// The worker stopped before the spans were accepted.
    Shutdown,
}

/// Statistics of the spans of one plugin in one worker.
pub struct SpanStats {
    pub finished: Tally,
    pub sent: Tally,
    pub bytes: Tally,
    pub callout_failures: Tally,
    pub totals_failures: Tally,
    pub long_lived: Tally,
    pub malformed_traces: Tally,
    pub ignored_sources: Tally,
    dropped: Tally,
    dropped_by: [Tally; 4],
}

impl SpanStats {
    /// Defines the stats. Returns None when the proxy refuses to define them.
    pub fn define(host: &impl Host, direction: Direction) -> Option<Self> {
        let by = |reason: &str| Tally::new(host, &FILTER_STAT_SPANS_DROPPED_BY.replace("{reason}", reason));
        Some(Self {
            finished: Tally::new(host, FILTER_STAT_SPANS_FINISHED)?,
            sent: Tally::new(host, FILTER_STAT_SPANS_SENT)?,
            bytes: Tally::new(host, FILTER_STAT_EXPORT_BYTES)?,
            callout_failures: Tally::new(host, FILTER_STAT_CALLOUT_FAILURES)?,
            totals_failures: Tally::new(host, FILTER_STAT_TOTALS_FAILURES)?,
            long_lived: Tally::new(host, &named(FILTER_STAT_LONG_LIVED, direction, ""))?,
            ignored_sources: Tally::new(host, &named(FILTER_STAT_IGNORED_SOURCES, direction, ""))?,
            malformed_traces: Tally::new(host, &named(FILTER_STAT_MALFORMED_TRACES, direction, ""))?,
            dropped: Tally::new(host, FILTER_STAT_SPANS_DROPPED)?,
            dropped_by: [by("queue_full")?, by("export_failed")?, by("rejected")?, by("shutdown")?],
        })
    }

    /// Counts dropped spans, in total and by reason.
    pub fn drop(&mut self, reason: Reason, spans: u64) {
        self.dropped.add(spans);
        if let Some(tally) = self.dropped_by.get_mut(reason as usize) {
            tally.add(spans);
        }
    }

    /// Returns the span counts over all workers and both directions. None when a stat cannot be
    /// read.
    pub fn totals(&self, host: &impl Host) -> Option<Spans> {
        let (sent, dropped) = (self.sent.get(host)?, self.dropped.get(host)?);
        Some(Spans { finished: self.finished.get(host)?, sent, dropped })
    }

    /// Publishes the events counted since the last call.
    pub fn tell(&mut self, host: &impl Host) {
        let all = [
            &mut self.finished,
            &mut self.sent,
            &mut self.bytes,
            &mut self.callout_failures,
            &mut self.totals_failures,
            &mut self.long_lived,
            &mut self.malformed_traces,
            &mut self.ignored_sources,
            &mut self.dropped,
        ];
        all.into_iter().chain(&mut self.dropped_by).for_each(|tally| tally.tell(host));
    }
}
