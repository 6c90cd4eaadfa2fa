use super::*;
use proptest::prelude::*;

/// Known headers fill their fields, unknown headers are ignored, and repeated trace headers are
/// noticed.
#[test]
fn known_headers_are_found() {
    let lines = [
        (":method", "GET"),
        ("x-other", "1"),
        ("traceparent", "a"),
        ("traceparent", "b"),
        ("tracestate", "x=1"),
        ("tracestate", "y=2"),
        ("x-b3-spanid", "s"),
        ("x-spillway-source-service", "front"),
    ];
    let headers = RequestHeaders::read(lines.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())));
    assert_eq!((headers.method, headers.path), (Some(b"GET".as_slice()), None));
    assert_eq!(headers.source_service, Some(b"front".as_slice()));
    assert!(headers.trace.several_traceparents);
    assert_eq!(headers.trace.tracestate, Some(b"x=1".as_slice()));
    assert_eq!(headers.trace.more_tracestate, [b"y=2"]);
    assert_eq!(headers.trace.b3_span, Some(b"s".as_slice()));
}

/// Only plain digits are a number.
#[test]
fn decimals() {
    assert_eq!(decimal(b"0120"), Some(120));
    for bad in ["", "-1", "+1", " 1", "1e3", "99999999999999999999"] {
        assert_eq!(decimal(bad.as_bytes()), None, "{bad:?}");
    }
}

proptest! {
    /// Any names and values are read without failure.
    #[test]
    fn any_headers_are_survived(lines in proptest::collection::vec((any::<Vec<u8>>(), any::<Vec<u8>>()), 0..20)) {
        let pairs = || lines.iter().map(|(name, value)| (name.as_slice(), value.as_slice()));
        RequestHeaders::read(pairs());
        ResponseHeaders::read(pairs());
    }
}
