use super::*;
use crate::class;
use crate::ids::Ids;
use crate::load::Load;
use crate::trace::TraceContext;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span as Decoded;
use proptest::prelude::*;
use prost::Message;

fn config() -> Config {
    Config::parse(br#"{"direction": "inbound", "cluster": "one", "service": "cart"}"#).unwrap()
}

fn trace(headers: &[(&str, &str)]) -> TraceContext {
    let header = |name: &str| headers.iter().find(|(n, _)| *n == name).map(|(_, v)| v.as_bytes().to_vec());
    TraceContext::read(header, &mut Ids::from_weak_seed(1))
}

fn span<'a>(trace: &'a TraceContext, path: &'a str, route: &'a str) -> Span<'a> {
    Span {
        direction: Direction::Outbound,
        trace,
        start_ns: 1_700_000_000_000_000_000,
        end_ns: 1_700_000_000_012_345_678,
        method: "GET",
        path,
        server_address: Some("cart"),
        status: Some(503),
        request_bytes: 300,
        response_bytes: 70_000,
        class: class::of_route(route),
        load: Some(Load { in_flight: 7, arrival_rate: 12.5 }),
        source: Party { cluster: Some("one"), service: Some("front") },
        destination: Party { cluster: Some("two"), service: Some("cart") },
        ruleset_version: Some(42),
        network_time_us: Some(25_000),
        service_time_us: Some(0),
    }
}

fn decode(spans: &[Vec<u8>]) -> ExportTraceServiceRequest {
    ExportTraceServiceRequest::decode(Envelope::new(&config()).wrap(spans).as_slice()).unwrap()
}

fn decoded_spans(request: &ExportTraceServiceRequest) -> &[Decoded] {
    &request.resource_spans[0].scope_spans[0].spans
}

fn attribute(span: &Decoded, key: &str) -> Option<Value> {
    let pair = span.attributes.iter().find(|pair| pair.key == key)?;
    pair.value.as_ref()?.value.clone()
}

/// The published message types read back every fact that was written.
#[test]
fn decodes_with_the_published_types() {
    let trace = trace(&[
        ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        ("tracestate", "vendor=1"),
    ]);
    let request = decode(&[encode_span(&span(&trace, "/users/7", "cart GET /users/{id}"))]);
    let resource = request.resource_spans[0].resource.as_ref().unwrap();
    let keys: Vec<_> = resource.attributes.iter().map(|pair| pair.key.as_str()).collect();
    assert_eq!(keys, ["service.name", "spillway.cluster"]);
    assert_eq!(request.resource_spans[0].scope_spans[0].scope.as_ref().unwrap().name, "spillway-filter");
    let got = &decoded_spans(&request)[0];
    assert_eq!((got.trace_id.as_slice(), got.span_id.as_slice()), (&trace.trace_id[..], &trace.span_id[..]));
    assert_eq!(got.parent_span_id, trace.parent.unwrap());
    assert_eq!((got.trace_state.as_str(), got.name.as_str(), got.kind), ("vendor=1", "GET /users/{id}", 3));
    assert_eq!(got.end_time_unix_nano - got.start_time_unix_nano, 12_345_678);
    assert_eq!(got.status.as_ref().unwrap().code, 2);
    assert_eq!(got.flags, 1);
    for (key, value) in [
        ("http.response.status_code", Value::IntValue(503)),
        ("http.response.size", Value::IntValue(70_000)),
        ("http.route", Value::StringValue("/users/{id}".into())),
        ("spillway.class", Value::StringValue("cart GET /users/{id}".into())),
        ("spillway.load.in_flight", Value::IntValue(7)),
        ("spillway.load.arrival_rate", Value::DoubleValue(12.5)),
        ("spillway.destination.cluster", Value::StringValue("two".into())),
        ("spillway.ruleset.version", Value::IntValue(42)),
        ("spillway.service.time_us", Value::IntValue(0)),
    ] {
        assert_eq!(attribute(got, key), Some(value), "{key}");
    }
}

/// What is not known is absent, not empty; a foreign method does not become a span name.
#[test]
fn unknown_facts_are_absent() {
    let trace = trace(&[]);
    let mut facts = span(&trace, "/", "other");
    (facts.method, facts.status, facts.network_time_us) = ("BREW", Some(200), None);
    facts.source = Party::default();
    let request = decode(&[encode_span(&facts)]);
    let got = &decoded_spans(&request)[0];
    assert_eq!(got.name, "HTTP");
    assert!(got.parent_span_id.is_empty() && got.status.is_none());
    assert_eq!(attribute(got, "http.request.method"), Some(Value::StringValue("_OTHER".into())));
    for key in ["spillway.class", "http.route", "spillway.network.time_us", "spillway.source.cluster"] {
        assert_eq!(attribute(got, key), None, "{key}");
    }
}

/// A partial success is read from the published type's bytes; a plain success rejects nothing.
#[test]
fn rejected_spans_are_read() {
    for (rejected_spans, error_message) in [(3, "too late"), (0, "be slower"), (0, "")] {
        let partial = ExportTracePartialSuccess { rejected_spans, error_message: error_message.into() };
        let response = ExportTraceServiceResponse { partial_success: Some(partial) };
        assert_eq!(super::rejected_spans(&response.encode_to_vec()), rejected_spans as u64);
    }
    assert_eq!(super::rejected_spans(&[]), 0);
}

proptest! {
    /// Whatever a collector answers, reading it is survived.
    #[test]
    fn any_response_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        super::rejected_spans(&bytes);
    }

    /// Whatever the strings and numbers, every batch decodes, whole and in order.
    #[test]
    fn any_batch_decodes(
        paths in proptest::collection::vec("\\PC{0,1200}", 0..20), route in "\\PC{0,200}", bytes: u64, rate: f64,
    ) {
        let trace = trace(&[]);
        let encoded: Vec<_> = paths.iter().map(|path| {
            let mut facts = span(&trace, path, &route);
            facts.request_bytes = bytes;
            facts.load = Some(Load { in_flight: bytes, arrival_rate: rate });
            encode_span(&facts)
        }).collect();
        let request = decode(&encoded);
        let spans = decoded_spans(&request);
        prop_assert_eq!(spans.len(), paths.len());
        for (got, path) in spans.iter().zip(&paths) {
            prop_assert_eq!(attribute(got, "url.path"), Some(Value::StringValue(cut(path).to_string())));
            prop_assert!(got.encoded_len() < 8_192);
        }
    }
}
