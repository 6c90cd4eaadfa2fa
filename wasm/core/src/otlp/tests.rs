use std::borrow::Cow;

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span as Decoded;
use proptest::prelude::*;
use prost::Message;

use super::arrival::Arrival;
use super::ending::{Ending, put_destination, put_protocol};
use super::envelope::{Envelope, SPANS_SCOPE, put_span, rejected_spans};
use crate::config::Config;
use crate::context::ids::Ids;
use crate::context::sampling::Sampler;
use crate::context::trace::TraceContext;
use crate::metering::class;
use crate::metering::load::{Load, Loads};
use crate::request::grpc;
use crate::request::headers::TraceHeaders;
use crate::{Direction, Party};

const TRACEPARENT: &[u8] = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn config() -> Config {
    Config::parse(br#"{"direction": "inbound", "edge": false, "cluster": "one", "service": "cart"}"#).unwrap()
}

fn continued() -> TraceContext<'static> {
    let headers = TraceHeaders {
        traceparent: Some(TRACEPARENT),
        tracestate: Some(b"vendor=1"),
        ..TraceHeaders::default()
    };
    let sampler = Box::leak(Box::new(Sampler::new(1.0)));
    TraceContext::read(&headers, sampler, &mut Ids::from_weak_seed(1))
}

fn arrival<'a>(trace: &'a TraceContext<'a>, path: &'a [u8], route: &'a str) -> Arrival<'a> {
    let load = Load { in_flight: 7, arrival_rate: Some(12.5) };
    Arrival {
        direction: Direction::Outbound,
        trace,
        start_ns: 1_700_000_000_000_000_000,
        method: b"GET",
        path,
        scheme: Some(b"http"),
        authority: Some(b"cart:8080"),
        rpc: None,
        class: class::of_route(route),
        loads: Some(Loads { service: load, class: Some(Load { in_flight: 2, arrival_rate: None }) }),
        source: Party { cluster: Some("one"), service: Some("front") },
        resends: Some(2),
    }
}

fn ending() -> Ending {
    Ending {
        end_ns: 1_700_000_000_012_345_678,
        status: Some(503),
        request_bytes: Some(300),
        response_bytes: Some(70_000),
        ruleset_version: Some(42),
        network_time_us: Some(25_000),
        service_time_us: Some(0),
        flags: Some("UF,URX".to_string()),
        details: Some("upstream_reset_before_response_started{connection_failure}".to_string()),
        error: Some(Cow::Borrowed("503")),
        ..Ending::default()
    }
}

fn decode(spans: &[Vec<u8>]) -> ExportTraceServiceRequest {
    let mut bytes = Vec::new();
    spans.iter().for_each(|span| put_span(span, &mut bytes));
    ExportTraceServiceRequest::decode(Envelope::new(&config(), "cart-1", SPANS_SCOPE).wrap(&bytes).as_slice())
        .unwrap()
}

fn decoded_spans(request: &ExportTraceServiceRequest) -> &[Decoded] {
    &request.resource_spans[0].scope_spans[0].spans
}

fn attribute(span: &Decoded, key: &str) -> Option<Value> {
    let mut pairs = span.attributes.iter().filter(|pair| pair.key == key);
    let value = pairs.next()?.value.as_ref()?.value.clone();
    assert!(pairs.next().is_none(), "{key} is recorded twice");
    value
}

/// The published message types decode every fact that was written.
#[test]
fn decodes_with_the_published_types() {
    let trace = continued();
    let mut bytes = Vec::new();
    arrival(&trace, b"/users/7?secret=1", "cart GET /users/{id}").put(&mut bytes);
    put_destination(Party { cluster: Some("two"), service: Some("cart") }, &mut bytes);
    put_protocol(b"1.1", &mut bytes);
    ending().put(&mut bytes);
    let request = decode(&[bytes]);
    let resource = request.resource_spans[0].resource.as_ref().unwrap();
    let keys: Vec<_> = resource.attributes.iter().map(|pair| pair.key.as_str()).collect();
    assert_eq!(keys, ["service.name", "spillway.cluster", "service.instance.id"]);
    assert_eq!(request.resource_spans[0].scope_spans[0].scope.as_ref().unwrap().name, "spillway-filter");
    let got = &decoded_spans(&request)[0];
    assert_eq!((got.trace_id.as_slice(), got.span_id.as_slice()), (&trace.trace_id[..], &trace.span_id[..]));
    assert_eq!(got.parent_span_id, trace.parent.unwrap());
    assert_eq!((got.trace_state.as_str(), got.name.as_str(), got.kind), ("vendor=1", "GET /users/{id}", 3));
    assert_eq!(got.end_time_unix_nano - got.start_time_unix_nano, 12_345_678);
    assert_eq!((got.status.as_ref().unwrap().code, got.flags), (2, 1));
    let text = |text: &str| Value::StringValue(text.into());
    for (key, value) in [
        ("http.request.method", text("GET")),
        ("http.response.status_code", Value::IntValue(503)),
        ("http.request.body.size", Value::IntValue(300)),
        ("http.response.body.size", Value::IntValue(70_000)),
        ("url.template", text("/users/{id}")),
        ("http.request.resend_count", Value::IntValue(2)),
        ("url.path", text("/users/7")),
        ("url.scheme", text("http")),
        ("server.address", text("cart")),
        ("server.port", Value::IntValue(8080)),
        ("network.protocol.version", text("1.1")),
        ("error.type", text("503")),
        ("spillway.class", text("cart GET /users/{id}")),
        ("spillway.direction", text("outbound")),
        ("spillway.load.in_flight", Value::IntValue(7)),
        ("spillway.load.arrival_rate", Value::DoubleValue(12.5)),
        ("spillway.load.class.in_flight", Value::IntValue(2)),
        ("spillway.source.cluster", text("one")),
        ("spillway.source.service", text("front")),
        ("spillway.destination.cluster", text("two")),
        ("spillway.destination.service", text("cart")),
        ("spillway.ruleset.version", Value::IntValue(42)),
        ("spillway.network.time_us", Value::IntValue(25_000)),
        ("spillway.service.time_us", Value::IntValue(0)),
        ("spillway.response.flags", text("UF,URX")),
        ("spillway.response.details", text("upstream_reset_before_response_started{connection_failure}")),
    ] {
        assert_eq!(attribute(got, key), Some(value), "{key}");
    }
    assert_eq!(attribute(got, "spillway.load.class.arrival_rate"), None);
    assert_eq!(attribute(got, "http.route"), None);
    let mut bytes = Vec::new();
    Arrival { direction: Direction::Inbound, ..arrival(&trace, b"/users/7", "cart GET /users/{id}") }
        .put(&mut bytes);
    let request = decode(&[bytes]);
    let served = &decoded_spans(&request)[0];
    assert_eq!(attribute(served, "http.route"), Some(text("/users/{id}")));
    assert_eq!((attribute(served, "url.template"), served.kind), (None, 2));
}

/// The span of a trace that started here has the flag of a random id, as its traceparent does.
#[test]
fn flags_are_those_sent_on() {
    let sampler = Sampler::new(1.0);
    let trace = TraceContext::read(&TraceHeaders::default(), &sampler, &mut Ids::from_weak_seed(1));
    let mut bytes = Vec::new();
    arrival(&trace, b"/", "other").put(&mut bytes);
    assert_eq!(decoded_spans(&decode(&[bytes]))[0].flags, 3);
}

/// Unknown facts are absent rather than empty. An unknown method does not become a span name.
#[test]
fn unknown_facts_are_absent() {
    let trace = continued();
    let mut facts = arrival(&trace, b"/", "other");
    (facts.method, facts.authority, facts.loads, facts.resends) = (b"BREW", None, None, Some(0));
    facts.source = Party::default();
    let mut bytes = Vec::new();
    facts.put(&mut bytes);
    Ending { status: Some(200), ..Ending::default() }.put(&mut bytes);
    let request = decode(&[bytes]);
    let got = &decoded_spans(&request)[0];
    assert_eq!(got.name, "HTTP");
    assert!(got.status.is_none());
    assert_eq!(attribute(got, "http.request.method"), Some(Value::StringValue("_OTHER".into())));
    let keys: Vec<_> = got.attributes.iter().map(|pair| pair.key.as_str()).collect();
    let expected = [
        "spillway.direction",
        "http.request.method",
        "http.request.method_original",
        "url.path",
        "url.scheme",
        "http.response.status_code",
    ];
    assert_eq!(keys, expected);
    assert_eq!(attribute(got, "http.request.method_original"), Some(Value::StringValue("BREW".into())));
}

/// The span of a gRPC call is named by its method. Service and method are recorded separately.
#[test]
fn rpc_conventions() {
    let trace = continued();
    let mut facts = arrival(&trace, b"/shop.Cart/Add", "other");
    (facts.method, facts.rpc) = (b"POST", grpc::method(b"/shop.Cart/Add"));
    let mut bytes = Vec::new();
    facts.put(&mut bytes);
    Ending { status: Some(200), grpc_status: Some(14), ..Ending::default() }.put(&mut bytes);
    let request = decode(&[bytes]);
    let got = &decoded_spans(&request)[0];
    assert_eq!(got.name, "shop.Cart/Add");
    for (key, value) in [
        ("rpc.system", Value::StringValue("grpc".into())),
        ("rpc.service", Value::StringValue("shop.Cart".into())),
        ("rpc.method", Value::StringValue("Add".into())),
        ("rpc.grpc.status_code", Value::IntValue(14)),
    ] {
        assert_eq!(attribute(got, key), Some(value), "{key}");
    }
}

/// Hosts with and without a port are split correctly, for names and IPv6 addresses.
#[test]
fn addresses() {
    for (authority, host, port) in [
        ("cart", "cart", None),
        ("cart:80", "cart", Some(80)),
        ("[::1]:8080", "[::1]", Some(8080)),
        ("[::1]", "[::1]", None),
        ("cart:99999", "cart:99999", None),
        ("cart:", "cart:", None),
    ] {
        let trace = continued();
        let mut facts = arrival(&trace, b"/", "other");
        facts.authority = Some(authority.as_bytes());
        let mut bytes = Vec::new();
        facts.put(&mut bytes);
        let request = decode(&[bytes]);
        let got = &decoded_spans(&request)[0];
        assert_eq!(attribute(got, "server.address"), Some(Value::StringValue(host.into())));
        assert_eq!(attribute(got, "server.port"), port.map(Value::IntValue), "{authority}");
    }
}

/// A partial success, encoded with the published type, is parsed. A plain success rejects nothing.
#[test]
fn rejections_are_read() {
    for (rejected, error_message) in [(3, "too late"), (0, "be slower"), (0, ""), (-7, "odd")] {
        let partial =
            ExportTracePartialSuccess { rejected_spans: rejected, error_message: error_message.into() };
        let response = ExportTraceServiceResponse { partial_success: Some(partial) };
        assert_eq!(rejected_spans(&response.encode_to_vec()), rejected.max(0) as u64);
    }
    assert_eq!(rejected_spans(&[]), 0);
}

proptest! {
    /// Parsing never fails, whatever bytes a collector answers with.
    #[test]
    fn any_response_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        rejected_spans(&bytes);
    }

    /// Every batch decodes completely and in order, and every span is bounded, whatever the bytes
    /// and numbers.
    #[test]
    fn any_batch_decodes(
        paths in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..2_000), 0..12),
        route in "\\PC{0,200}", number: u64, rate: f64, authority: Vec<u8>,
    ) {
        let trace = continued();
        let encoded: Vec<_> = paths.iter().map(|path| {
            let mut facts = arrival(&trace, path, &route);
            facts.authority = Some(&authority);
            let service = Load { in_flight: number, arrival_rate: Some(rate) };
            facts.loads = Some(Loads { service, class: None });
            let mut bytes = Vec::new();
            facts.put(&mut bytes);
            Ending { request_bytes: Some(number), end_ns: number, ..ending() }.put(&mut bytes);
            bytes
        }).collect();
        let request = decode(&encoded);
        let spans = decoded_spans(&request);
        prop_assert_eq!(spans.len(), paths.len());
        for (got, path) in spans.iter().zip(&paths) {
            let Some(Value::StringValue(recorded)) = attribute(got, "url.path") else { panic!("no path") };
            if path.is_ascii() {
                prop_assert!(path.starts_with(recorded.as_bytes()) && recorded.len() <= 1_024);
            }
            prop_assert!(got.encoded_len() < 10_000);
        }
    }

    /// A path of valid text is kept unchanged. A path that is too long is cut at a character
    /// boundary.
    #[test]
    fn paths_of_text_stay_text(path in "/[^?#\\p{Cc}]{0,1500}") {
        let trace = continued();
        let mut bytes = Vec::new();
        arrival(&trace, path.as_bytes(), "other").put(&mut bytes);
        let request = decode(&[bytes]);
        let expected = path.get(..path.floor_char_boundary(1_024)).unwrap();
        let got = attribute(&decoded_spans(&request)[0], "url.path");
        prop_assert_eq!(got, Some(Value::StringValue(expected.to_string())));
    }
}
