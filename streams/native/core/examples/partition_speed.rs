//! Measures CPU nanoseconds per span from OTLP bytes to columns, by stage, and the peak of memory.
//!
//!     cargo run --release --example partition_speed [SECONDS [SPANS_PER_SECOND]]
//!
//! Processes a log of SECONDS (default 60) with SPANS_PER_SECOND (default 100 000). Traces are
//! chains of five services as our filter writes them (9 spans of ~600 bytes). The log has 100
//! messages a second, and a third of the traces are spread over two of them.
//!
//! The last line reports the part after decoding alone, and the total. Less than 400 ns there and
//! 1000 ns in total means a million spans a second. Memory is printed by quarter. For a log of many
//! horizons (100 s) it must not rise after the first quarter.

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
use spillway_spans::limits::Limits;
use spillway_spans::memory::names::Names;
use spillway_spans::partition::Partition;

const START_MS: u64 = 1_700_000_000_000;
const MESSAGE_MS: u64 = 10;
const DEPTH: usize = 5;

fn mixed(number: u64) -> u64 {
    let mut x = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Attributes that the filter records for a request from service `depth - 1` to `depth`, on either
/// side.
fn attributes(trace: u64, depth: usize, inbound: bool) -> Vec<KeyValue> {
    let mut attributes = vec![
        text("spillway.direction", if inbound { "inbound" } else { "outbound" }),
        text("http.request.method", "GET"),
        text("url.path", format!("/items/{}", trace % 10_000)),
        text("url.scheme", "http"),
        text("server.address", format!("service-{depth}.shop.svc.cluster.local")),
        int("server.port", 8080),
        text("spillway.class", format!("service-{depth} GET /items/{{id}}/{}", trace % 4)),
    ];
    if inbound {
        attributes.push(int("spillway.load.in_flight", 17));
        attributes.push(pair("spillway.load.arrival_rate", Value::DoubleValue(241.5)));
        attributes.push(int("spillway.load.class.in_flight", 3));
        attributes.push(pair("spillway.load.class.arrival_rate", Value::DoubleValue(80.25)));
        if depth > 0 {
            attributes.push(text("spillway.source.cluster", "cluster-1"));
            attributes.push(text("spillway.source.service", format!("service-{}", depth - 1)));
        }
    } else {
        attributes.push(int("spillway.ruleset.version", 4711));
        attributes.push(int("spillway.network.time_us", 300 + mixed(trace) % 2_000));
        attributes.push(text(
            "spillway.destination.cluster",
            if trace.is_multiple_of(5) { "cluster-2" } else { "cluster-1" },
        ));
        attributes.push(text("spillway.destination.service", format!("service-{depth}")));
    }
    attributes.push(int("http.response.status_code", 200));
    attributes.push(int("http.request.body.size", 312));
    attributes.push(int("http.response.body.size", 2_048 + trace % 100));
    attributes.push(text("network.protocol.version", "1.1"));
    attributes
}

/// The spans of a trace, each with the service whose proxy wrote it.
fn spans(trace: u64, at_ms: u64) -> Vec<(usize, Span)> {
    let started = (at_ms.wrapping_sub(200)) * 1_000_000 + mixed(trace) % 100_000_000;
    let id =
        |hop: usize, inbound: bool| mixed(trace * 64 + hop as u64 * 2 + u64::from(inbound)).to_be_bytes();
    let span = |hop: usize, inbound: bool| {
        let inset = hop as u64 * 2_000_000 + if inbound { 500_000 } else { 0 };
        let parent = match (hop, inbound) {
            (0, true) => Vec::new(),
            (_, true) => id(hop, false).to_vec(),
            (_, false) => id(hop - 1, true).to_vec(),
        };
        Span {
            trace_id: (u128::from(mixed(trace)) << 64 | u128::from(mixed(!trace))).to_be_bytes().to_vec(),
            span_id: id(hop, inbound).to_vec(),
            parent_span_id: parent,
            name: "GET /items/{id}".into(),
            kind: if inbound { 2 } else { 3 },
            start_time_unix_nano: started + inset,
            end_time_unix_nano: started + 40_000_000 - inset,
            attributes: attributes(trace, hop, inbound),
            flags: 0x101,
            ..Span::default()
        }
    };
    let hop = |hop: usize| {
        (hop > 0).then(|| (hop - 1, span(hop, false))).into_iter().chain([(hop, span(hop, true))])
    };
    (0..DEPTH).flat_map(hop).collect()
}

/// The message for one interval of 10 ms. A third of the traces leave half of their spans to the
/// next message.
fn message(number: u64, traces: u64) -> Vec<u8> {
    let mut by_service: Vec<Vec<Span>> = vec![Vec::new(); DEPTH];
    for (message, late) in [(number.wrapping_sub(1), true), (number, false)] {
        for trace in (0..traces).map(|i| message.wrapping_mul(traces).wrapping_add(i)) {
            for (i, (service, span)) in
                spans(trace, START_MS.wrapping_add(message.wrapping_mul(MESSAGE_MS))).into_iter().enumerate()
            {
                let goes_late = mixed(trace).is_multiple_of(3) && i.is_multiple_of(2);
                if goes_late == late {
                    by_service[service].push(span);
                }
            }
        }
    }
    let resource_spans = by_service.into_iter().enumerate().map(|(service, spans)| ResourceSpans {
        resource: Some(Resource {
            attributes: vec![
                text("service.name", format!("service-{service}")),
                text("spillway.cluster", "cluster-1"),
            ],
            ..Resource::default()
        }),
        scope_spans: vec![ScopeSpans { spans, ..ScopeSpans::default() }],
        ..ResourceSpans::default()
    });
    ExportTraceServiceRequest { resource_spans: resource_spans.collect() }.encode_to_vec()
}

fn memory_mb(field: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(field));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

fn main() {
    let number = |at: usize, default: u64| {
        std::env::args()
            .nth(at)
            .map_or(default, |text| text.parse().expect("SECONDS SPANS_PER_SECOND: numbers"))
    };
    let (seconds, rate) = (number(1, 60), number(2, 100_000));
    let traces = rate / 100 / (2 * DEPTH as u64 - 1);
    let mut partition = Partition::new(Limits::default(), 0, true, 8).expect("limits are allowed");
    let (mut decoder, mut names, mut counters) = (Decoder::default(), Names::default(), Counters::default());
    let (mut out, mut decode_ns, mut add_ns, mut close_ns) = (Vec::new(), 0.0, 0.0, 0.0);
    let (mut seen, mut rows, mut most_open) = (0_u64, 0_u64, 0);
    let messages = seconds * 1000 / MESSAGE_MS;
    let mut resident_mb = Vec::new();
    for number in 0..messages {
        let payload = message(number, traces);
        let at_ms = (START_MS + number * MESSAGE_MS) as i64;
        let begin = now_ns();
        out.clear();
        decoder.decode(&payload, at_ms * 1000, None, &mut names, &mut out, &mut counters).expect("a request");
        let decoded = now_ns();
        partition.add(&payload, number as i64, at_ms, false, None).expect("a request");
        let added = now_ns();
        let closed = partition.close(usize::MAX);
        close_ns += now_ns() - added;
        (decode_ns, add_ns) = (decode_ns + decoded - begin, add_ns + added - decoded);
        seen += out.len() as u64;
        rows += closed.map_or(0, |closed| (closed.calls.rows + closed.edges.rows) as u64);
        most_open = most_open.max(partition.open_spans());
        if (number + 1) % (messages / 4).max(1) == 0 {
            resident_mb.push(memory_mb("VmRSS").round());
        }
    }
    let each = |ns: f64| ns / seen as f64;
    println!("{seen} spans, {rows} rows, {most_open} spans held at most, {:?}", partition.counters());
    println!(
        "decode {:.0} ns, window {:.0} ns, rows and columns {:.0} ns per span",
        each(decode_ns),
        each(add_ns - decode_ns),
        each(close_ns)
    );
    println!(
        "known traces {}, resident by quarter {resident_mb:?} MB, peak {:.0} MB",
        partition.known_traces(),
        memory_mb("VmHWM")
    );
    println!(
        "after decoding {:.0} ns, in all {:.0} ns per span",
        each(add_ns - decode_ns + close_ns),
        each(add_ns + close_ns)
    );
}
