//! A span names trusted parties and the sizes of what passed.

use super::*;

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
        let recorded = (span.get(OTEL_ATTRIBUTE_REQUEST_SIZE), span.get(OTEL_ATTRIBUTE_RESPONSE_SIZE));
        assert_eq!(recorded, (Some(sizes.0), Some(sizes.1)), "{flags}");
    }
    let reset = finish(arrive_with_body(&config, &sent), &config, 130, passed(0)).unwrap();
    assert_eq!(reset.get(OTEL_ATTRIBUTE_REQUEST_SIZE), Some("400"), "no answer came");
    let bodiless = finish(arrive(&config, &[]), &config, 130, passed(1 << 6)).unwrap();
    assert_eq!(bodiless.get(OTEL_ATTRIBUTE_REQUEST_SIZE), Some("0"), "no body is no body");
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
