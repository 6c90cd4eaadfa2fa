//! Network time is what the callee does not account for, and inbound the response states it.

use super::*;

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
    for (cluster, expected) in [("three", "three"), ("a b", "two"), ("", "two")] {
        let mut exchange = arrive(&config, &[]);
        let answer =
            [(":status", "200"), ("x-spillway-service-time-us", "12000"), ("x-spillway-cluster", cluster)];
        respond(&mut exchange, &config, 137, &answer);
        assert!(edits(|edit| exchange.response_edits(&config, edit)).is_empty());
        let span = finish(exchange, &config, 140, routed()).unwrap();
        assert_eq!(span.get("spillway.network.time_us"), Some("25000"));
        assert_eq!(span.get("spillway.service.time_us"), Some("12000"));
        assert_eq!(span.get("spillway.destination.cluster"), Some(expected), "{cluster:?}");
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
