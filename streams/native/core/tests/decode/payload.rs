//! Builders of payloads, and decoded spans with their strings.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
pub use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
pub use opentelemetry_proto::tonic::trace::v1::Span as Wire;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans};
use prost::Message;
use spillway_spans::counters::Counters;
use spillway_spans::decode::otlp::{Decoder, PayloadError, Rejected};
use spillway_spans::memory::names::{Names, Sym};
use spillway_spans::span::Span;

pub const NOW_US: i64 = 1_700_000_100_000_000;
pub const START_NS: u64 = 1_700_000_000_000_000_000;

/// Shorthand for attribute values.
pub trait IntoValue {
    fn into_value(self) -> Value;
}
impl IntoValue for &str {
    fn into_value(self) -> Value {
        Value::StringValue(self.into())
    }
}
impl IntoValue for i64 {
    fn into_value(self) -> Value {
        Value::IntValue(self)
    }
}
impl IntoValue for f64 {
    fn into_value(self) -> Value {
        Value::DoubleValue(self)
    }
}
impl IntoValue for bool {
    fn into_value(self) -> Value {
        Value::BoolValue(self)
    }
}

pub fn pair(key: &str, value: impl IntoValue) -> KeyValue {
    of(key, value.into_value())
}

pub fn of(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.into(), value: Some(AnyValue { value: Some(value) }) }
}

/// A valid server span with the given attributes.
pub fn server(attributes: Vec<KeyValue>) -> Wire {
    Wire {
        trace_id: vec![1; 16],
        span_id: vec![7; 8],
        kind: 2,
        start_time_unix_nano: START_NS,
        end_time_unix_nano: START_NS + 5_000_000,
        attributes,
        ..Wire::default()
    }
}

pub fn client(attributes: Vec<KeyValue>) -> Wire {
    Wire { kind: 3, ..server(attributes) }
}

pub fn identity() -> Vec<KeyValue> {
    vec![pair("service.name", "a"), pair("spillway.cluster", "c1")]
}

pub fn export(spans: Vec<Wire>, resource: Vec<KeyValue>) -> ExportTraceServiceRequest {
    let resource = Some(Resource { attributes: resource, ..Resource::default() });
    let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans { resource, scope_spans, ..ResourceSpans::default() }],
    }
}

/// The result of decoding one payload.
pub struct Decoded {
    pub spans: Vec<Span>,
    pub rejected: Vec<Rejected>,
    pub counters: Counters,
    names: Names,
}

impl Decoded {
    pub fn text(&self, sym: Sym) -> &str {
        self.names.text(sym)
    }

    pub fn span(&self) -> &Span {
        let [span] = self.spans.as_slice() else { panic!("{} spans", self.spans.len()) };
        span
    }

    /// Method and template of the only span.
    pub fn asked(&self) -> (&str, &str) {
        (self.text(self.span().method), self.text(self.span().template))
    }
}

pub fn decode_bytes(payload: &[u8]) -> Result<Decoded, PayloadError> {
    decode_admitted(payload, None)
}

/// Decodes a message as if it was admitted for this cluster.
pub fn decode_admitted(payload: &[u8], cluster: Option<&str>) -> Result<Decoded, PayloadError> {
    let (mut names, mut counters, mut spans) = (Names::default(), Counters::default(), Vec::new());
    let rejected =
        Decoder::default().decode(payload, NOW_US, cluster, &mut names, &mut spans, &mut counters)?;
    Ok(Decoded { spans, rejected, counters, names })
}

pub fn decode(request: &ExportTraceServiceRequest) -> Decoded {
    decode_bytes(&request.encode_to_vec()).expect("a request")
}

/// Decodes one span of service `a` in cluster `c1`.
pub fn decode_one(span: Wire) -> Decoded {
    decode(&export(vec![span], identity()))
}
