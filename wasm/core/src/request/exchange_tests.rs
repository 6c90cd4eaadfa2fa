use std::collections::HashMap;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

use super::*;
use crate::context::ids::Ids;
use crate::context::sampling::Sampler;

const MS: u64 = 1_000_000;
const HEADER_BYTES: u64 = 300;

/// Properties with the values that the proxy would return.
#[derive(Default)]
struct Fake(HashMap<Property, Vec<u8>>);

impl Fake {
    fn with(mut self, property: Property, value: &[u8]) -> Self {
        self.0.insert(property, value.to_vec());
        self
    }

    fn number(self, property: Property, value: u64) -> Self {
        self.with(property, &value.to_le_bytes())
    }
}

impl Properties for Fake {
    fn get(&mut self, property: Property) -> Option<&[u8]> {
        self.0.get(&property).map(Vec::as_slice)
    }

    fn request_header_bytes(&mut self) -> Option<u64> {
        Some(HEADER_BYTES)
    }
}

fn config(direction: &str) -> Config {
    let edge = if direction == "inbound" { r#""edge": false,"# } else { "" };
    let json = format!(r#"{{"direction": "{direction}", {edge} "cluster": "one", "service": "front"}}"#);
    Config::parse(json.as_bytes()).unwrap()
}

fn pairs<'a>(headers: &'a [(&'a str, &'a str)]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()))
}

fn arrive(config: &Config, extra: &[(&str, &str)]) -> Exchange {
    arrive_as(config, extra, true)
}

fn arrive_with_body(config: &Config, extra: &[(&str, &str)]) -> Exchange {
    arrive_as(config, extra, false)
}

fn arrive_as(config: &Config, extra: &[(&str, &str)], end_of_stream: bool) -> Exchange {
    let mut all = vec![(":method", "GET"), (":path", "/users/7?q=1"), (":authority", "cart")];
    all.retain(|(name, _)| !extra.iter().any(|(other, _)| other == name));
    all.extend_from_slice(extra);
    let headers = RequestHeaders::read(pairs(&all));
    let sampler = Sampler::new(1.0);
    let trace = TraceContext::read(&headers.trace, &sampler, &mut Ids::from_weak_seed(9));
    let now = Moment { wall_ns: 5_000 * MS, mono_ns: 100 * MS };
    let arriving = Arriving {
        now,
        headers: &headers,
        caller: Caller::of(config, &headers, None),
        end_of_stream,
        class: crate::metering::class::of_route("cart GET /users/{id}"),
        loads: None,
        buffer: Vec::new(),
    };
    Exchange::arrive(config, &trace, arriving)
}

fn respond(exchange: &mut Exchange, config: &Config, at_ms: u64, headers: &[(&str, &str)]) {
    exchange.respond(config, at_ms * MS, &ResponseHeaders::read(pairs(headers)), false);
}

/// A finished span, with its attributes as text.
struct Told {
    span: Span,
    attributes: HashMap<String, String>,
}

fn finish(exchange: Exchange, config: &Config, at_ms: u64, mut fake: Fake) -> Option<Told> {
    let span = Span::decode(exchange.finish(config, at_ms * MS, &mut fake)?.as_slice()).unwrap();
    let text = |value: Value| match value {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    let attributes =
        span.attributes.iter().map(|p| (p.key.clone(), text(p.value.clone().unwrap().value.unwrap())));
    let told = attributes.collect::<HashMap<_, _>>();
    assert_eq!(told.len(), span.attributes.len(), "an attribute is told twice: {:?}", span.attributes);
    Some(Told { attributes: told, span })
}

impl Told {
    fn get(&self, key: &str) -> Option<&str> {
        self.attributes.get(key).map(String::as_str)
    }

    fn failed(&self) -> bool {
        self.span.status.as_ref().is_some_and(|status| status.code == 2)
    }
}

fn routed() -> Fake {
    Fake::default()
        .with(Property::ClusterName, b"cart|two")
        .with(Property::RulesetVersion, &3f64.to_le_bytes())
        .with(Property::Protocol, b"HTTP/1.1")
        .number(Property::AttemptCount, 1)
        .number(Property::ResponseSize, 77)
}

fn edits(
    tell: impl FnOnce(&mut dyn FnMut(&'static str, Option<&str>)),
) -> HashMap<&'static str, Option<String>> {
    let mut all = HashMap::new();
    tell(&mut |name, value| {
        all.insert(name, value.map(str::to_string));
    });
    all
}

/// Outbound, the caller's cluster and service are written into the request. Network time is the
/// wait that the callee does not account for. The destination is the routed one unless the response
/// names another.
#[test]
fn outbound_measures_the_network() {
    let config = config("outbound");
    let headers = RequestHeaders::default();
    let asked = edits(|edit| source_edits(&config, &headers, Caller::of(&config, &headers, None), edit));
    assert_eq!(asked["x-spillway-source-cluster"].as_deref(), Some("one"));
    assert_eq!(asked["x-spillway-source-service"].as_deref(), Some("front"));
    for (cluster, told) in [("three", "three"), ("a b", "two"), ("", "two")] {
        let mut exchange = arrive(&config, &[]);
        let answer =
            [(":status", "200"), ("x-spillway-service-time-us", "12000"), ("x-spillway-cluster", cluster)];
        respond(&mut exchange, &config, 137, &answer);
        assert!(edits(|edit| exchange.response_edits(&config, edit)).is_empty());
        let span = finish(exchange, &config, 140, routed()).unwrap();
        assert_eq!(span.get("spillway.network.time_us"), Some("25000"));
        assert_eq!(span.get("spillway.service.time_us"), Some("12000"));
        assert_eq!(span.get("spillway.destination.cluster"), Some(told), "{cluster:?}");
        assert_eq!(span.get("spillway.destination.service"), Some("cart"));
        assert_eq!(span.get("spillway.ruleset.version"), Some("3"));
        assert_eq!(span.get("http.response.body.size"), Some("77"));
        assert_eq!(span.get("http.request.resend_count"), None);
        assert_eq!((span.span.start_time_unix_nano, span.span.end_time_unix_nano), (5_000 * MS, 5_040 * MS));
        assert!(!span.failed());
    }
}

/// Network time is clamped at zero when the callee claims more than the whole. It is absent when
/// the callee's header is invalid.
#[test]
fn network_time_is_honest() {
    let config = config("outbound");
    for (header, network) in
        [("999999999", Some("0")), ("soon", None), ("-5", None), ("1e3", None), ("", None)]
    {
        let mut exchange = arrive(&config, &[]);
        respond(&mut exchange, &config, 137, &[(":status", "200"), ("x-spillway-service-time-us", header)]);
        let span = finish(exchange, &config, 140, routed()).unwrap();
        assert_eq!(span.get("spillway.network.time_us"), network, "{header}");
    }
}

/// At an edge, no Spillway header reaches the application or the span. Requests without such
/// headers are not edited.
#[test]
fn an_edge_takes_our_headers_away() {
    let config =
        Config::parse(br#"{"direction": "inbound", "edge": true, "cluster": "one", "service": "front"}"#);
    let config = config.unwrap();
    let forged = [
        ("x-spillway-source-cluster", "west"),
        ("x-spillway-source-service", "cart"),
        ("x-envoy-attempt-count", "3"),
    ];
    let span = finish(arrive(&config, &forged), &config, 140, Fake::default()).unwrap();
    for key in ["spillway.source.cluster", "spillway.source.service", "http.request.resend_count"] {
        assert_eq!(span.get(key), None);
    }
    assert!(arrive(&config, &forged).entry());
    let stripped = |extra: &[(&str, &str)]| {
        let headers = RequestHeaders::read(pairs(extra));
        let caller = Caller::of(&config, &headers, None);
        edits(|edit| source_edits(&config, &headers, caller, edit))
    };
    for name in ["x-spillway-source-service", "x-spillway-service-time-us", "x-spillway-no-answer"] {
        let edits = stripped(&[(name, "1")]);
        assert!(edits.contains_key(name) && edits.values().all(Option::is_none), "{edits:?}");
    }
    assert!(stripped(&[("x-spill", "1")]).is_empty());
}

/// Inbound, the caller is read from its headers. The response states this service's time and
/// cluster.
#[test]
fn inbound_tells_its_time() {
    let config = config("inbound");
    let extra = [
        ("x-spillway-source-cluster", "west"),
        ("x-spillway-source-service", "bad name"),
        ("x-envoy-attempt-count", "3"),
    ];
    let mut exchange = arrive(&config, &extra);
    let headers = RequestHeaders::read(pairs(&extra));
    let caller = Caller::of(&config, &headers, None);
    assert!(edits(|edit| source_edits(&config, &headers, caller, edit)).is_empty(), "kept as it came");
    respond(&mut exchange, &config, 112, &[(":status", "204"), ("content-length", "9")]);
    let answered = edits(|edit| exchange.response_edits(&config, edit));
    assert_eq!(answered["x-spillway-service-time-us"].as_deref(), Some("12000"));
    assert_eq!(answered["x-spillway-cluster"].as_deref(), Some("one"));
    let span = finish(exchange, &config, 113, Fake::default()).unwrap();
    assert_eq!(span.get("spillway.source.cluster"), Some("west"));
    assert_eq!(span.get("spillway.source.service"), None);
    assert_eq!(span.get("spillway.destination.cluster"), Some("one"));
    assert_eq!(span.get("spillway.service.time_us"), Some("12000"));
    assert_eq!(
        (span.get("http.request.body.size"), span.get("http.response.body.size")),
        (Some("0"), Some("9"))
    );
    assert_eq!(span.get("http.request.resend_count"), Some("2"));
}

/// A reset leaves a failed span that states the reason, and so does a response that was cut short.
/// A 4xx status is no failure.
#[test]
fn failures() {
    let config = config("outbound");
    let fake =
        |flags: u64| routed().number(Property::ResponseFlags, flags).with(Property::ResponseDetails, b"why");
    let reset = finish(arrive(&config, &[]), &config, 101, fake(0x4000)).unwrap();
    assert_eq!((reset.get("error.type"), reset.get("http.response.status_code")), (Some("DC"), None));
    assert_eq!(reset.get("spillway.response.details"), Some("why"));
    let silent = finish(arrive(&config, &[]), &config, 101, routed()).unwrap();
    assert_eq!(silent.get("error.type"), Some("_OTHER"));
    for (status, flags, error) in [
        ("503", 0x8020, Some("503")),
        ("500", 0, Some("500")),
        ("200", 0x10, Some("UR")),
        ("200", 1 << 9, None),
        ("429", 1 << 11, None),
        ("404", 0, None),
    ] {
        let mut exchange = arrive(&config, &[]);
        respond(&mut exchange, &config, 120, &[(":status", status)]);
        let span = finish(exchange, &config, 130, fake(flags).number(Property::AttemptCount, 2)).unwrap();
        assert_eq!((span.get("error.type"), span.failed()), (error, error.is_some()), "{status} {flags:x}");
        assert_eq!(span.get("http.request.resend_count"), Some("1"));
        assert_eq!(span.get("spillway.response.details").is_some(), error.is_some());
    }
}

const CALL: [(&str, &str); 3] =
    [(":method", "POST"), (":path", "/shop.Cart/Add"), ("content-type", "application/grpc+proto")];

/// The gRPC status decides, even if HTTP succeeded, and whether trailers or headers carry it. A
/// server is not to blame for every code. A code that no client understands is UNKNOWN.
#[test]
fn grpc_status_decides() {
    for (direction, status, code, error) in [
        ("inbound", "14", "14", Some("UNAVAILABLE")),
        ("inbound", "5", "5", None),
        ("outbound", "5", "5", Some("NOT_FOUND")),
        ("outbound", "0", "0", None),
        ("inbound", "garbage", "2", Some("UNKNOWN")),
        ("outbound", "17", "2", Some("UNKNOWN")),
    ] {
        let config = config(direction);
        for (header, trailer) in [(Some(status), None), (None, Some(status))] {
            let mut exchange = arrive(&config, &CALL);
            let headers: Vec<_> = header.map(|status| ("grpc-status", status)).into_iter().collect();
            respond(&mut exchange, &config, 120, &[&[(":status", "200")], headers.as_slice()].concat());
            let fake = trailer.map(|text| routed().with(Property::GrpcStatus, text.as_bytes()));
            let span = finish(exchange, &config, 130, fake.unwrap_or_else(routed)).unwrap();
            assert_eq!(span.get("rpc.grpc.status_code"), Some(code));
            assert_eq!(
                (span.get("error.type"), span.failed()),
                (error, error.is_some()),
                "{direction} {status}"
            );
        }
    }
    let config = config("inbound");
    let http = finish(arrive(&config, &[]), &config, 130, routed().with(Property::GrpcStatus, b"2")).unwrap();
    assert_eq!(http.get("rpc.grpc.status_code"), None, "not asked of what is not gRPC");
}

/// When no gRPC status was sent, none is recorded, and HTTP and Envoy's flags decide. A caller that
/// leaves a stream after the response headers has cancelled it. That is no fault of the server, but
/// a failure for the client.
#[test]
fn grpc_without_a_status() {
    for (direction, http, flags, error) in [
        ("inbound", "200", 1 << 28, None),
        ("inbound", "200", 1 << 14, None),
        ("outbound", "200", 1 << 28, Some("DR")),
        ("inbound", "200", 1 << 6, Some("UC")),
        ("inbound", "200", 0, None),
        ("inbound", "503", 0, Some("503")),
    ] {
        let config = config(direction);
        let mut exchange = arrive(&config, &CALL);
        respond(&mut exchange, &config, 120, &[(":status", http)]);
        let span = finish(exchange, &config, 130, routed().number(Property::ResponseFlags, flags)).unwrap();
        assert_eq!(span.get("rpc.grpc.status_code"), None);
        assert_eq!(
            (span.get("error.type"), span.failed()),
            (error, error.is_some()),
            "{direction} {http} {flags}"
        );
    }
    let config = config("inbound");
    let silent = finish(
        arrive(&config, &CALL),
        &config,
        130,
        Fake::default().number(Property::ResponseFlags, 1 << 28),
    );
    assert_eq!(silent.unwrap().get("error.type"), Some("DR"), "before the answer a hung server must show");
}

/// The declared size is recorded when the exchange completed. When it was cut short, the bytes that
/// passed are recorded.
#[test]
fn sizes_of_what_passed() {
    let config = config("outbound");
    let sent = [(":method", "POST"), ("content-length", "1000")];
    let answer = [(":status", "200"), ("content-length", "5000")];
    let passed = |flags: u64| {
        let total = routed().number(Property::RequestTotalSize, HEADER_BYTES + 400);
        total.number(Property::ResponseFlags, flags)
    };
    for (flags, sizes) in [(0, ("1000", "5000")), (1 << 9, ("1000", "5000")), (1 << 6, ("400", "77"))] {
        let mut exchange = arrive_with_body(&config, &sent);
        respond(&mut exchange, &config, 120, &answer);
        let span = finish(exchange, &config, 130, passed(flags)).unwrap();
        let told = (span.get(OTEL_ATTRIBUTE_REQUEST_SIZE), span.get(OTEL_ATTRIBUTE_RESPONSE_SIZE));
        assert_eq!(told, (Some(sizes.0), Some(sizes.1)), "{flags}");
    }
    let reset = finish(arrive_with_body(&config, &sent), &config, 130, passed(0)).unwrap();
    assert_eq!(reset.get(OTEL_ATTRIBUTE_REQUEST_SIZE), Some("400"), "no answer came");
    let none = finish(arrive(&config, &[]), &config, 130, passed(1 << 6)).unwrap();
    assert_eq!(none.get(OTEL_ATTRIBUTE_REQUEST_SIZE), Some("0"), "no body is no body");
}

/// After a retry, the time until the response includes the earlier tries, so no network time is
/// recorded.
#[test]
fn no_network_time_after_a_retry() {
    let config = config("outbound");
    for (tries, network) in [(1, Some("25000")), (2, None)] {
        let mut exchange = arrive(&config, &[]);
        respond(&mut exchange, &config, 137, &[(":status", "200"), ("x-spillway-service-time-us", "12000")]);
        let span = finish(exchange, &config, 140, routed().number(Property::AttemptCount, tries)).unwrap();
        assert_eq!(span.get("spillway.network.time_us"), network);
        assert_eq!(span.get("spillway.service.time_us"), Some("12000"));
    }
}

/// The routed cluster is read only when the class and the response do not name the whole
/// destination.
#[test]
fn destination_without_asking() {
    let config = config("outbound");
    let mut exchange = arrive(&config, &[]);
    respond(&mut exchange, &config, 120, &[(":status", "200"), ("x-spillway-cluster", "three")]);
    let unasked = routed().with(Property::ClusterName, b"other|other");
    let span = finish(exchange, &config, 130, unasked).unwrap();
    assert_eq!(span.get("spillway.destination.service"), Some("cart"));
    assert_eq!(span.get("spillway.destination.cluster"), Some("three"));
    let silent = finish(arrive(&config, &[]), &config, 130, routed()).unwrap();
    assert_eq!(silent.get("spillway.destination.service"), Some("cart"));
    assert_eq!(silent.get("spillway.destination.cluster"), Some("two"));
    let narrowed = routed().with(Property::ClusterName, b"cart|two|!three|!four");
    let narrowed = finish(arrive(&config, &[]), &config, 130, narrowed).unwrap();
    assert_eq!(narrowed.get("spillway.destination.cluster"), Some("two"));
}

/// Tunnels, upgrades, event streams and requests that outlive the limit leave no span.
#[test]
fn long_lived_streams() {
    let inbound = config("inbound");
    let mut connect = arrive(&inbound, &[(":method", "CONNECT")]);
    assert_eq!(connect.take_buffer(), Some(Vec::new()), "the memory goes back at once");
    assert!(connect.long_lived() && finish(connect, &inbound, 101, Fake::default()).is_none());
    for answer in [
        [(":status", "101"), ("upgrade", "websocket")],
        [(":status", "200"), ("content-type", "text/event-stream; charset=utf-8")],
    ] {
        let mut exchange = arrive(&inbound, &[]);
        respond(&mut exchange, &inbound, 101, &answer);
        assert!(exchange.long_lived(), "{answer:?}");
        assert!(finish(exchange, &inbound, 900, Fake::default()).is_none(), "{answer:?}");
    }
    let mut slow = arrive(&inbound, &[]);
    assert!(!slow.outlived(1_100 * MS, 1_000 * MS));
    assert!(slow.outlived(1_101 * MS, 1_000 * MS) && !slow.outlived(2_000 * MS, 1_000 * MS), "told once");
    assert!(finish(slow, &inbound, 3_000, Fake::default()).is_none());
}

/// An unsampled request leaves no span.
#[test]
fn unsampled_leaves_no_span() {
    let config = config("outbound");
    let unsampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    let exchange = arrive(&config, &[("traceparent", unsampled)]);
    assert!(finish(exchange, &config, 200, routed()).is_none());
}
