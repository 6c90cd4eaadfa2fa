//! Writes one export request of a filter: a server span, and the client span of a call from it.
use std::io::Write;

use spillway_filter_core::headers::TraceHeaders;
use spillway_filter_core::ids::Ids;
use spillway_filter_core::load::{Load, Loads};
use spillway_filter_core::otlp::arrival::Arrival;
use spillway_filter_core::otlp::ending::{Ending, put_destination, put_protocol};
use spillway_filter_core::otlp::envelope::{Envelope, put_span};
use spillway_filter_core::sampling::Sampler;
use spillway_filter_core::trace::TraceContext;
use spillway_filter_core::{Direction, Party, class, config::Config};

const TRACEPARENT: &[u8] = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const START_NS: u64 = 1_767_225_616_000_000_000;

fn span(direction: Direction, traceparent: &[u8], route: &str, start_ns: u64, end_ns: u64) -> Vec<u8> {
    let headers = TraceHeaders { traceparent: Some(traceparent), ..TraceHeaders::default() };
    let sampler = Sampler::new(1.0);
    let trace = TraceContext::read(&headers, &sampler, &mut Ids::from_weak_seed(start_ns));
    let inbound = direction == Direction::Inbound;
    let load = Load { in_flight: 7, arrival_rate: Some(12.5) };
    let mut out = Vec::new();
    Arrival {
        direction,
        trace: &trace,
        start_ns,
        method: b"GET",
        path: b"/items/7?secret=1",
        scheme: Some(b"http"),
        authority: Some(b"shop:8080"),
        rpc: None,
        class: class::of_route(route),
        loads: inbound.then_some(Loads { service: load, class: Some(load) }),
        source: if inbound {
            Party { cluster: Some("east"), service: Some("front") }
        } else {
            Party::default()
        },
        resends: None,
    }
    .put(&mut out);
    if !inbound {
        put_destination(Party { cluster: Some("east"), service: Some("store") }, &mut out);
    }
    put_protocol(b"1.1", &mut out);
    Ending {
        end_ns,
        status: Some(200),
        request_bytes: Some(300),
        response_bytes: Some(70_000),
        ruleset_version: (!inbound).then_some(42),
        network_time_us: (!inbound).then_some(25_000),
        service_time_us: (!inbound).then_some(15_000),
        ..Ending::default()
    }
    .put(&mut out);
    out
}

fn main() {
    let config = Config::parse(br#"{"direction": "inbound", "cluster": "west", "service": "shop"}"#).unwrap();
    let server =
        span(Direction::Inbound, TRACEPARENT, "shop GET /items/{id}", START_NS, START_NS + 60_000_000);
    // The id of the server span (field 2) is the parent of the client span.
    let id: String = server[20..28].iter().map(|byte| format!("{byte:02x}")).collect();
    let parent = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{id}-01");
    let (begin, end) = (START_NS + 10_000_000, START_NS + 50_000_000);
    let client = span(Direction::Outbound, parent.as_bytes(), "store GET /items/{id}", begin, end);
    let mut spans = Vec::new();
    put_span(&server, &mut spans);
    put_span(&client, &mut spans);
    std::io::stdout().write_all(&Envelope::new(&config).wrap(&spans)).unwrap();
}
