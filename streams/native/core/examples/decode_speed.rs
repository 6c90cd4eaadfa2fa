//! Measures CPU nanoseconds per decoded span, for spans of our filter and of Istio's Envoys.
//!
//!     cargo run --release --example decode_speed [ROUNDS]
//!
//! Prints one line per kind of payload: the best and the median of ROUNDS (default 15) passes over
//! 200 messages of 500 spans. The best is the cost of the work. The median also contains the
//! machine's other work.

mod common;

use common::{int, now_ns, pair, text};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use spillway_spans::counters::Counters;
use spillway_spans::decode::otlp::Decoder;
use spillway_spans::memory::names::Names;

const NOW_US: u64 = 1_700_000_000_000_000;
const MESSAGES: u64 = 200;
const SERVICES: u64 = 10;
const SPANS: u64 = 50;

fn filter_span(number: u64) -> Vec<KeyValue> {
    let inbound = number.is_multiple_of(2);
    let class = number % 4;
    let mut attributes = vec![
        text("spillway.direction", if inbound { "inbound" } else { "outbound" }),
        text("http.request.method", "GET"),
        text("url.path", format!("/reservations/{number}/rooms")),
        text("url.scheme", "http"),
        text("server.address", "reservation.hotel.svc.cluster.local"),
        int("server.port", 8080),
        text(
            "spillway.class",
            format!("service-{} GET /reservations/{{id}}/rooms-{class}", number % SERVICES),
        ),
    ];
    if inbound {
        attributes.push(text("http.route", "/reservations/{id}/rooms"));
        attributes.push(int("spillway.load.in_flight", 17 + class));
        attributes.push(pair("spillway.load.arrival_rate", Value::DoubleValue(241.5)));
        attributes.push(int("spillway.load.class.in_flight", 3));
        attributes.push(pair("spillway.load.class.arrival_rate", Value::DoubleValue(80.25)));
        attributes.push(text("spillway.source.cluster", "cluster-1"));
        attributes.push(text("spillway.source.service", format!("service-{}", (number + 3) % SERVICES)));
    } else {
        attributes.push(text("url.template", "/reservations/{id}/rooms"));
        attributes.push(int("spillway.ruleset.version", 4711));
        attributes.push(int("spillway.network.time_us", 1_250));
        attributes.push(int("spillway.service.time_us", 8_400));
        attributes.push(text("spillway.destination.cluster", "cluster-2"));
        attributes.push(text("spillway.destination.service", format!("service-{}", (number + 1) % SERVICES)));
    }
    attributes.extend([
        int("http.response.status_code", 200),
        int("http.request.body.size", 312),
        int("http.response.body.size", 2_048 + number % 100),
        text("network.protocol.version", "1.1"),
    ]);
    attributes
}

fn istio_span(number: u64) -> Vec<KeyValue> {
    vec![
        text("node_id", "sidecar~10.1.2.3~reviews-v1-abc.default~default.svc.cluster.local"),
        text("zone", "zone-1a"),
        text("guid:x-request-id", format!("{number:08x}-0000-4000-8000-000000000000")),
        text("http.url", format!("http://reviews:9080/reviews/{}", number % 1_000)),
        text("http.method", "GET"),
        text("downstream_cluster", "-"),
        text("user_agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"),
        text("http.protocol", "HTTP/1.1"),
        text("peer.address", "10.1.2.4"),
        text("request_size", "0"),
        text("response_size", "379"),
        text("component", "proxy"),
        text("upstream_cluster", "outbound|9080||reviews.default.svc.cluster.local"),
        text("http.status_code", "200"),
        text("response_flags", "-"),
        text("istio.canonical_service", "reviews"),
        text("istio.mesh_id", "cluster.local"),
    ]
}

fn payload(message: u64, attributes: fn(u64) -> Vec<KeyValue>) -> Vec<u8> {
    let spans = |service: u64| {
        (0..SPANS).map(move |at| {
            let number = (message * SERVICES + service) * SPANS + at + 1;
            Span {
                trace_id: u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c).to_be_bytes().into(),
                span_id: number.to_be_bytes().into(),
                parent_span_id: (number + 1).to_be_bytes().into(),
                name: "GET /reservations/{id}/rooms".into(),
                kind: 2 + (number % 2) as i32,
                start_time_unix_nano: NOW_US * 1000 + number,
                end_time_unix_nano: NOW_US * 1000 + number + 12_345_678,
                attributes: attributes(number),
                flags: 0x101,
                ..Span::default()
            }
        })
    };
    let resource = |service: u64| Resource {
        attributes: vec![
            text("service.name", format!("service-{service}")),
            text("spillway.cluster", "cluster-2"),
        ],
        ..Resource::default()
    };
    let resource_spans = (0..SERVICES).map(|service| ResourceSpans {
        resource: Some(resource(service)),
        scope_spans: vec![ScopeSpans { spans: spans(service).collect(), ..ScopeSpans::default() }],
        ..ResourceSpans::default()
    });
    ExportTraceServiceRequest { resource_spans: resource_spans.collect() }.encode_to_vec()
}

fn measure(name: &str, rounds: usize, attributes: fn(u64) -> Vec<KeyValue>) {
    let payloads: Vec<_> = (0..MESSAGES).map(|message| payload(message, attributes)).collect();
    let spans = MESSAGES * SERVICES * SPANS;
    let bytes: usize = payloads.iter().map(Vec::len).sum();
    let (mut decoder, mut names, mut counters) = (Decoder::default(), Names::default(), Counters::default());
    let (mut out, mut times) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let begin = now_ns();
        for payload in &payloads {
            out.clear();
            let rejected = decoder.decode(payload, NOW_US as i64, None, &mut names, &mut out, &mut counters);
            assert!(rejected.expect("a request").is_empty());
            assert_eq!(out.len() as u64, SERVICES * SPANS);
        }
        times.push((now_ns() - begin) / spans as f64);
    }
    times.sort_by(f64::total_cmp);
    let (best, median) = (times[0], times[times.len() / 2]);
    let each = bytes as u64 / spans;
    println!("{name:8} {best:6.0} ns per span (median {median:.0}), {each} bytes, {} names", names.len());
}

fn main() {
    let rounds = std::env::args().nth(1).map_or(15, |rounds| rounds.parse().expect("ROUNDS: a number"));
    measure("filter", rounds, filter_span);
    measure("istio", rounds, istio_span);
}
