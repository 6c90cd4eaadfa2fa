//! Long-lived streams and unsampled requests leave no span.

use super::*;

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
