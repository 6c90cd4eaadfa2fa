//! Tests of input that is impossible or would cost too much. It is rejected with a reason, or
//! counted.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link};
use prost::Message;
use spillway_spans::span::Kind;

use crate::payload::*;

const HOUR_NS: u64 = 3_600_000_000_000;
/// A minute after the arrival: the latest end that is accepted.
const AHEAD_NS: u64 = (NOW_US as u64 + 60_000_000) * 1000;

fn valid() -> Wire {
    server(vec![pair("http.request.method", "GET"), pair("url.path", "/x")])
}

/// A single impossible span is rejected with its reason, complete and decodable. Its neighbours are
/// kept.
#[test]
fn absurd_spans_are_rejected_with_a_reason_and_their_neighbours_kept() {
    let absurd: [(Wire, &str); 12] = [
        (Wire { trace_id: vec![0; 16], ..valid() }, "trace id is not 16 bytes or is zero"),
        (Wire { trace_id: vec![1; 8], ..valid() }, "trace id is not 16 bytes or is zero"),
        (Wire { span_id: vec![0; 8], ..valid() }, "span id is not 8 bytes or is zero"),
        (Wire { span_id: vec![], ..valid() }, "span id is not 8 bytes or is zero"),
        (Wire { parent_span_id: vec![1], ..valid() }, "parent span id is not 8 bytes"),
        (Wire { start_time_unix_nano: 5, end_time_unix_nano: 6, ..valid() }, "started before the year 2000"),
        (Wire { end_time_unix_nano: START_NS - 1_000_000, ..valid() }, "negative duration"),
        (
            Wire {
                start_time_unix_nano: START_NS - HOUR_NS,
                end_time_unix_nano: START_NS + 1_000,
                ..valid()
            },
            "longer than an hour",
        ),
        (
            Wire { start_time_unix_nano: AHEAD_NS, end_time_unix_nano: AHEAD_NS + 1_000, ..valid() },
            "ends more than a minute after its arrival",
        ),
        (
            Wire { start_time_unix_nano: START_NS, end_time_unix_nano: START_NS + HOUR_NS, ..valid() },
            "ends more than a minute after its arrival",
        ),
        (
            Wire { start_time_unix_nano: u64::MAX, end_time_unix_nano: u64::MAX, ..valid() },
            "after its arrival",
        ),
        (server(vec![]), "server span without traffic class"),
    ];
    for (wire, reason) in absurd {
        let neighbour = Wire { span_id: vec![8; 8], ..valid() };
        let decoded = decode(&export(vec![wire.clone(), neighbour], identity()));
        let [rejected] = decoded.rejected.as_slice() else { panic!("{reason}") };
        assert!(rejected.reason.contains(reason), "{}", rejected.reason);
        assert_eq!(rejected.spans, 1);
        let request = ExportTraceServiceRequest::decode(rejected.request.as_slice()).unwrap();
        assert_eq!(request, export(vec![wire], identity()));
        let servers: Vec<_> = decoded.spans.iter().filter(|span| span.kind == Kind::Server).collect();
        assert_eq!(servers.iter().map(|span| span.span_id).collect::<Vec<_>>(), [u64::from_be_bytes([8; 8])]);
    }
}

/// A duration of an hour, the year 2000 and an end a minute ahead are still accepted. A parent id
/// of zeros counts as no parent.
#[test]
fn bounds_are_inside() {
    let first = 946_684_800_000_000_000;
    for (start, duration) in [(first, 0), (AHEAD_NS - HOUR_NS, HOUR_NS), (AHEAD_NS, 1)] {
        let times = Wire { start_time_unix_nano: start, end_time_unix_nano: start + duration, ..valid() };
        let decoded = decode_one(Wire { parent_span_id: vec![0; 8], ..times });
        assert_eq!((decoded.rejected.len(), decoded.span().parent_id), (0, 0));
    }
}

/// Rejected spans with one reason form one request, grouped by their resources.
#[test]
fn rejected_spans_keep_their_resources() {
    let other = vec![pair("service.name", "b"), pair("spillway.cluster", "c2")];
    let (bad, worse) = (Wire { span_id: vec![], ..valid() }, Wire { trace_id: vec![], ..valid() });
    let mut request = export(vec![bad.clone(), worse.clone(), bad.clone()], identity());
    request.resource_spans.extend(export(vec![bad.clone(), valid()], other.clone()).resource_spans);
    let decoded = decode(&request);
    let found: Vec<_> = decoded.rejected.iter().map(|part| (part.spans, part.request.clone())).collect();
    let mut of_span_id = export(vec![bad.clone(), bad.clone()], identity());
    of_span_id.resource_spans.extend(export(vec![bad], other).resource_spans);
    let of_trace_id = export(vec![worse], identity());
    assert_eq!(found, [(3, of_span_id.encode_to_vec()), (1, of_trace_id.encode_to_vec())]);
}

/// Bytes that are not protobuf are an error, and leave previously decoded spans unchanged.
#[test]
fn garbage_is_an_error() {
    let error = decode_bytes(b"\xff\xff\xff").err().unwrap().to_string();
    assert!(error.starts_with("not an ExportTraceServiceRequest: "), "{error}");
    let mut payload = export(vec![valid()], identity()).encode_to_vec();
    payload.extend_from_slice(&[0x0a, 0x50]);
    let (mut names, mut counters) = Default::default();
    let mut spans = decode_one(valid()).spans;
    let mut decoder = spillway_spans::decode::otlp::Decoder::default();
    decoder.decode(&payload, NOW_US, None, &mut names, &mut spans, &mut counters).unwrap_err();
    assert_eq!(spans.len(), 1);
}

/// Negative, infinite or malformed numbers count as absent. Huge texts are cut or skipped, and
/// counted.
#[test]
fn absurd_attribute_values_are_not_said() {
    let huge = "x".repeat(1_000_000);
    let wire = Wire {
        trace_state: "ot=th:xyz".into(),
        name: "é".repeat(500_000),
        ..client(vec![
            pair("http.method", "GET"),
            pair("http.target", format!("/{huge}").as_str()),
            pair("spillway.load.arrival_rate", f64::INFINITY),
            pair("spillway.load.class.arrival_rate", "5"),
            pair("spillway.load.in_flight", -1),
            pair("spillway.load.class.in_flight", 1 << 32),
            pair("http.request.size", "many"),
            pair("http.response.size", 1e300),
            pair("spillway.network.time_us", f64::NAN),
            pair("http.status_code", 99_999_999),
            pair("spillway.class", format!("a GET /{huge}").as_str()),
            pair("spillway.source.service", huge.as_str()),
        ])
    };
    let decoded = decode_one(wire);
    let span = decoded.span();
    assert_eq!((span.arrival_rate, span.class_arrival_rate), (0.0, 0.0));
    assert_eq!((span.in_flight, span.class_in_flight, span.status), (0, 0, 0));
    assert_eq!((span.request_bytes, span.response_bytes, span.network_us), (0, 0, None));
    assert!(span.class.is_none() && span.source_service.is_none());
    assert_eq!((decoded.asked(), span.adjusted_count), (("GET", "/{id}"), 1.0));
    assert_eq!(decoded.text(span.name), "é".repeat(126));
    for reason in
        ["class_id_invalid", "path_cut", "name_too_long", "span_name_cut", "tracestate_threshold_broken"]
    {
        assert_eq!(decoded.counters.get(reason), 1, "{reason}");
    }
}

/// A finite but impossible rate or time counts as absent, because sums over such numbers would
/// become infinite.
#[test]
fn absurd_but_finite_numbers_are_not_said() {
    for (rate, time_us, counts) in [(1e9, 3_600_000_000, true), (1.7e308, 3_600_000_001, false)] {
        let decoded = decode_one(client(vec![
            pair("spillway.load.arrival_rate", rate),
            pair("spillway.load.class.arrival_rate", rate),
            pair("spillway.network.time_us", time_us),
        ]));
        let (span, expected) = (decoded.span(), if counts { rate } else { 0.0 });
        assert_eq!((span.arrival_rate, span.class_arrival_rate), (expected, expected));
        assert_eq!(span.network_us, counts.then_some(time_us as u64));
    }
}

/// Attributes beyond the limit are counted and not read. Events, links and nested values are
/// skipped.
#[test]
fn too_many_attributes_and_what_nobody_reads_are_passed_over() {
    let mut attributes: Vec<_> = (0..1_024).map(|number| pair(&format!("k{number}"), number)).collect();
    attributes.extend([pair("spillway.class", "a GET /x"), pair("url.path", "/x")]);
    let decoded = decode_one(Wire { kind: 3, ..server(attributes) });
    assert_eq!(decoded.counters.get("attribute_beyond_bound"), 2);
    assert!(decoded.span().class.is_none());
    let wire = Wire {
        events: vec![Event { attributes: vec![pair("spillway.class", "z GET /")], ..Event::default() }; 100],
        links: vec![Link { trace_id: vec![5; 3], ..Link::default() }; 100],
        flags: 0x101,
        dropped_attributes_count: 9,
        ..valid()
    };
    assert_eq!(decode_one(wire).asked(), ("GET", "/x"));
}

/// A message with 100 000 spans is decoded completely.
#[test]
fn a_message_may_hold_very_many_spans() {
    let spans = (1..=100_000u64).map(|id| Wire { span_id: id.to_be_bytes().into(), ..valid() }).collect();
    let decoded = decode(&export(spans, identity()));
    assert_eq!(decoded.spans.len(), 100_000);
    assert!((1..=100_000).eq(decoded.spans.iter().map(|span| span.span_id)));
}

/// A payload that is cut at any point is an error. Only the empty payload decodes.
#[test]
fn every_truncation_of_a_payload_is_survived() {
    let payload = export(vec![valid(), Wire { span_id: vec![], ..valid() }], identity()).encode_to_vec();
    let whole = (0..payload.len()).filter(|end| decode_bytes(&payload[..*end]).is_ok()).count();
    assert_eq!(whole, 1, "only the empty payload is a request as well");
}
