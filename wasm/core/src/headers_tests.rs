use super::*;
use crate::testing::serialize;
use proptest::prelude::*;

/// Known headers land in their place, unknown ones nowhere, repeated trace headers are noticed.
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
    let pairs: Vec<_> = lines.iter().map(|(n, v)| (n.as_bytes().to_vec(), v.as_bytes().to_vec())).collect();
    let bytes = serialize(&pairs);
    let headers = RequestHeaders::read(Pairs::new(&bytes));
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
    /// What is serialized comes back, in order and to the byte.
    #[test]
    fn round_trip(pairs in proptest::collection::vec((any::<Vec<u8>>(), any::<Vec<u8>>()), 0..20)) {
        let bytes = serialize(&pairs);
        let back: Vec<_> = Pairs::new(&bytes).map(|(n, v)| (n.to_vec(), v.to_vec())).collect();
        prop_assert_eq!(back, pairs);
    }

    /// Whatever the bytes, reading them ends and stays inside.
    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let seen: usize = Pairs::new(&bytes).map(|(name, value)| name.len() + value.len()).sum();
        prop_assert!(seen <= bytes.len());
        RequestHeaders::read(Pairs::new(&bytes));
        ResponseHeaders::read(Pairs::new(&bytes));
    }
}
