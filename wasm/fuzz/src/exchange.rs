//! Fuzz target of a whole request: any headers, any properties, and the resulting span.

use opentelemetry_proto::tonic::trace::v1::ScopeSpans;
use prost::Message;
use spillway_filter_core::config::Config;
use spillway_filter_core::context::ids::Ids;
use spillway_filter_core::context::sampling::Sampler;
use spillway_filter_core::context::trace::TraceContext;
use spillway_filter_core::metering::class;
use spillway_filter_core::otlp::envelope::put_span;
use spillway_filter_core::request::caller::Caller;
use spillway_filter_core::request::exchange::{Arriving, Exchange, Moment, source_edits};
use spillway_filter_core::request::headers::{RequestHeaders, ResponseHeaders};
use spillway_filter_core::request::property::{Properties, Property};

const START: Moment = Moment { wall_ns: 1_000_000_000, mono_ns: 5 };

/// A proxy that answers each property with a line of the input.
struct Given<'a>(&'a [&'a [u8]]);

impl Properties for Given<'_> {
    fn get(&mut self, property: Property) -> Option<&[u8]> {
        self.0.get(property as usize).copied().filter(|line| !line.is_empty())
    }

    fn request_header_bytes(&mut self) -> Option<u64> {
        self.0.last().map(|line| line.len() as u64)
    }
}

/// Runs one request from the lines of the input.
///
/// Line 1 holds flags: outbound, end of stream, and whether anybody may call. The properties
/// follow, then request headers `name=value`, an empty line, and response headers. Whatever the
/// headers hold, the span decodes as OTLP, belongs to the forwarded trace, ends after it starts,
/// and has no attribute twice.
pub fn exchange(data: &[u8]) {
    let lines: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    let (head, rest) = lines.split_at(lines.len().min(12));
    let [first, properties @ ..] = head else { return };
    let (ends, direction) =
        (first.contains(&b'e'), if first.contains(&b'o') { "outbound" } else { "inbound" });
    let edge = match direction {
        "inbound" => format!(r#""edge": {},"#, first.contains(&b'a')),
        _ => String::new(),
    };
    let json = format!(r#"{{"direction": "{direction}", {edge} "cluster": "one", "service": "cart"}}"#);
    let config = Config::parse(json.as_bytes()).expect("a configuration");
    let mut maps = rest.split(|line| line.is_empty()).map(|lines| pairs(lines).collect::<Vec<_>>());
    let (asked, answered) = (maps.next().unwrap_or_default(), maps.next());

    let (sampler, mut ids) = (Sampler::new(1.0), Ids::from_weak_seed(1));
    let headers = RequestHeaders::read(asked.iter().copied());
    let caller = Caller::of(&config, &headers, None);
    let trace = TraceContext::of(caller.anonymous, &headers.trace, &sampler, &mut ids);
    let mut given = Given(properties);
    let route = given.text(Property::RouteName).unwrap_or_default().to_string();
    let arriving = Arriving {
        now: START,
        headers: &headers,
        caller,
        end_of_stream: ends,
        class: class::of_route(&route),
        loads: None,
        buffer: Vec::new(),
    };
    let mut exchange = Exchange::arrive(&config, &trace, arriving);
    source_edits(&config, &headers, caller, |_, value| assert!(value.is_some() || direction == "inbound"));
    if let Some(answered) = answered {
        exchange.respond(&config, 2_000_005, &ResponseHeaders::read(answered.iter().copied()), ends);
        exchange.response_edits(&config, |_, value| assert!(value.is_some_and(|value| value.is_ascii())));
    }
    let long_lived = exchange.long_lived();
    let span = exchange.finish(&config, 3_000_005, &mut given);
    assert_eq!(span.is_some(), trace.sampled && !long_lived);
    if let Some(span) = span {
        check(&span, &trace);
    }
}

/// Splits the lines `name=value` into names and values.
fn pairs<'a>(lines: &[&'a [u8]]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    lines.iter().filter_map(|line| {
        let at = line.iter().position(|byte| *byte == b'=')?;
        Some((&line[..at], &line[at + 1..]))
    })
}

fn check(span: &[u8], trace: &TraceContext<'_>) {
    let mut framed = Vec::new();
    put_span(span, &mut framed);
    let decoded = ScopeSpans::decode(framed.as_slice()).expect("OTLP");
    let [span] = decoded.spans.as_slice() else { panic!("one span, not {}", decoded.spans.len()) };
    assert_eq!(
        (span.trace_id.as_slice(), span.span_id.as_slice()),
        (&trace.trace_id[..], &trace.span_id[..])
    );
    assert_eq!((span.start_time_unix_nano, span.end_time_unix_nano), (1_000_000_000, 1_003_000_000));
    assert!(!span.name.is_empty());
    let mut keys: Vec<_> = span.attributes.iter().map(|pair| pair.key.as_str()).collect();
    keys.sort_unstable();
    assert!(keys.windows(2).all(|two| two[0] != two[1]), "an attribute twice: {keys:?}");
}
