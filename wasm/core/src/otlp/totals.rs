//! The totals of a proxy as OTLP metrics. They are cumulative sums, so the next export makes up for
//! a lost one.
//!
//! Field numbers: opentelemetry-proto v1, `metrics.proto`.

use spillway_contracts::*;

use super::wire::*;

/// gRPC service of the export call. The method is the same as for spans.
pub const TOTALS_SERVICE: &str = "opentelemetry.proto.collector.metrics.v1.MetricsService";

const CUMULATIVE: u64 = 2;

/// The period that the counters cover, in nanoseconds since the epoch.
#[derive(Clone, Copy, Debug)]
pub struct Period {
    /// Time at which the counters were zero. A later time than before indicates a reset.
    pub began_ns: u64,
    /// Time at which the counters were read.
    pub now_ns: u64,
}

/// Number of requests of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requests<'a> {
    /// The class id. None when no class matched.
    pub class: Option<&'a str>,
    /// Whether no service of the mesh made the requests.
    pub entry: bool,
    /// Number of requests.
    pub count: u64,
}

/// Number of spans by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spans {
    /// Spans created.
    pub finished: u64,
    /// Spans accepted by the collector.
    pub sent: u64,
    /// Spans dropped.
    pub dropped: u64,
}

/// Encodes metrics as fields of ScopeMetrics (`metrics = 2`), one after the other, for
/// [`super::envelope::Envelope::wrap`].
pub fn metrics<'a>(
    period: Period,
    requests: impl Iterator<Item = Requests<'a>>,
    spans: Option<Spans>,
) -> Vec<u8> {
    let mut out = Vec::new();
    let mut points = Vec::new();
    for of_class in requests {
        put_point(period, of_class.count, &mut points, |point| {
            if let Some(class) = of_class.class {
                put_string(ATTRIBUTES, SPAN_ATTRIBUTE_CLASS, class.as_bytes(), point);
            }
            put_bool(ATTRIBUTES, SPAN_ATTRIBUTE_ENTRY, of_class.entry, point);
        });
    }
    put_sum(OTEL_METRIC_REQUESTS, "{request}", &points, &mut out);
    let Some(spans) = spans else { return out };
    points.clear();
    for (outcome, count) in [
        (VALUE_OUTCOME_FINISHED, spans.finished),
        (VALUE_OUTCOME_SENT, spans.sent),
        (VALUE_OUTCOME_DROPPED, spans.dropped),
    ] {
        put_point(period, count, &mut points, |point| {
            put_string(ATTRIBUTES, SPAN_ATTRIBUTE_OUTCOME, outcome.as_bytes(), point);
        });
    }
    put_sum(OTEL_METRIC_SPANS, "{span}", &points, &mut out);
    out
}

/// Field number of NumberDataPoint.attributes.
const ATTRIBUTES: u32 = 7;

/// Writes a NumberDataPoint as Sum.data_points = 1.
fn put_point(period: Period, count: u64, out: &mut Vec<u8>, attributes: impl FnOnce(&mut Vec<u8>)) {
    let mut point = Vec::new();
    attributes(&mut point);
    put_fixed64(2, period.began_ns, &mut point);
    put_fixed64(3, period.now_ns, &mut point);
    put_fixed64(6, count.min(i64::MAX as u64), &mut point);
    put_bytes(1, &point, out);
}

/// Writes a Metric {name = 1, unit = 3, sum = 7 {data_points = 1, aggregation_temporality = 2,
/// is_monotonic = 3}}.
fn put_sum(name: &str, unit: &str, points: &[u8], out: &mut Vec<u8>) {
    let mut metric = Vec::with_capacity(points.len() + name.len() + 32);
    put_bytes(1, name.as_bytes(), &mut metric);
    put_bytes(3, unit.as_bytes(), &mut metric);
    put_header(7, points.len() + 4, &mut metric);
    metric.extend_from_slice(points);
    put_varint(2, CUMULATIVE, &mut metric);
    put_varint(3, 1, &mut metric);
    put_bytes(2, &metric, out);
}

#[cfg(test)]
#[path = "totals_tests.rs"]
mod tests;
