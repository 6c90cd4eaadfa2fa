//! A span has failed when HTTP, gRPC or Envoy's flags say so.

use super::*;

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
