use super::*;

const MS: u64 = 1_000_000;

fn config(direction: &str) -> Config {
    let json = format!(r#"{{"direction": "{direction}", "cluster": "one", "service": "front"}}"#);
    Config::parse(json.as_bytes()).unwrap()
}

fn headers(pairs: &[(&str, &str)]) -> impl Fn(&str) -> Option<Vec<u8>> {
    let pairs: Vec<(String, Vec<u8>)> =
        pairs.iter().map(|(n, v)| (n.to_string(), v.as_bytes().to_vec())).collect();
    move |name| pairs.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone())
}

fn arrive(config: &Config, extra: &[(&str, &str)]) -> Exchange {
    let mut all = vec![(":method", "GET"), (":path", "/users/7?q=1"), (":authority", "cart")];
    all.retain(|(name, _)| !extra.iter().any(|(other, _)| other == name));
    all.extend_from_slice(extra);
    let started = Moment { wall_ns: 5_000 * MS, mono_ns: 100 * MS };
    Exchange::arrive(config.direction, started, None, headers(&all), &mut Ids::from_weak_seed(9))
}

fn edit(edits: &[Edit], name: &str) -> Option<String> {
    edits.iter().find(|(n, _)| *n == name).and_then(|(_, value)| value.clone())
}

/// Outbound: who asks is written into the request; network time is what the callee does not account
/// for; the destination is the routed one until the answer says otherwise.
#[test]
fn outbound_measures_the_network() {
    let config = config("outbound");
    let mut exchange = arrive(&config, &[]);
    let edits = exchange.request_edits(&config);
    assert_eq!(edit(&edits, "x-spillway-source-cluster").as_deref(), Some("one"));
    assert_eq!(edit(&edits, "x-spillway-source-service").as_deref(), Some("front"));
    let answer =
        [(":status", "200"), ("x-spillway-service-time-us", "12000"), ("x-spillway-cluster", "three")];
    exchange.respond(config.direction, 137 * MS, headers(&answer));
    assert!(exchange.response_edits(&config).is_empty());
    let route = Route {
        name: Some("cart GET /users/{id}".into()),
        cluster: Some("cart|two".into()),
        ruleset_version: Some(3),
    };
    let span = exchange.finish(&config, 140 * MS, &route).unwrap();
    assert_eq!((span.network_time_us, span.service_time_us), (Some(25_000), Some(12_000)));
    assert_eq!(span.destination, Party { cluster: Some("three"), service: Some("cart") });
    assert_eq!((span.start_ns, span.end_ns), (5_000 * MS, 5_040 * MS));
    assert_eq!((span.path, span.status, span.failed()), ("/users/7", Some(200), false));
}

/// Clamped at zero when the callee claims more than the whole; absent when its header is garbage.
#[test]
fn network_time_is_honest() {
    let config = config("outbound");
    let route = Route { cluster: Some("cart|two".into()), ..Route::default() };
    for (header, network) in [("999999999", Some(0)), ("soon", None), ("-5", None), ("1e3", None), ("", None)]
    {
        let mut exchange = arrive(&config, &[]);
        let answer =
            [(":status", "200"), ("x-spillway-service-time-us", header), ("x-spillway-cluster", "a b")];
        exchange.respond(config.direction, 137 * MS, headers(&answer));
        let span = exchange.finish(&config, 140 * MS, &route).unwrap();
        assert_eq!(span.network_time_us, network, "{header}");
        assert_eq!(span.destination.cluster, Some("two"), "a cluster name that is none is not believed");
    }
}

/// Inbound: the caller is read from its headers, our time and cluster are told in the response.
#[test]
fn inbound_tells_its_time() {
    let config = config("inbound");
    let source = [("x-spillway-source-cluster", "west"), ("x-spillway-source-service", "bad name")];
    let mut exchange = arrive(&config, &source);
    let edits = exchange.request_edits(&config);
    assert_eq!(edit(&edits, "x-spillway-source-cluster"), None, "kept as it came");
    assert!(edit(&edits, "traceparent").is_some());
    exchange.respond(config.direction, 112 * MS, headers(&[(":status", "204")]));
    let edits = exchange.response_edits(&config);
    assert_eq!(edit(&edits, "x-spillway-service-time-us").as_deref(), Some("12000"));
    assert_eq!(edit(&edits, "x-spillway-cluster").as_deref(), Some("one"));
    let route = Route::default();
    let span = exchange.finish(&config, 113 * MS, &route).unwrap();
    assert_eq!(span.source, Party { cluster: Some("west"), service: None });
    assert_eq!(span.service_time_us, Some(12_000));
}

/// A reset leaves a failed span without status; tunnels, upgrades and event streams leave none.
#[test]
fn resets_and_long_lived_streams() {
    let (inbound, route) = (config("inbound"), Route::default());
    let reset = arrive(&inbound, &[]);
    let span = reset.finish(&inbound, 101 * MS, &route).unwrap();
    assert_eq!((span.status, span.failed(), span.service_time_us), (None, true, None));
    let connect = arrive(&inbound, &[(":method", "CONNECT")]);
    assert!(connect.long_lived() && connect.finish(&inbound, 101 * MS, &route).is_none());
    for answer in [
        [(":status", "101"), ("upgrade", "websocket")],
        [(":status", "200"), ("content-type", "text/event-stream")],
    ] {
        let mut exchange = arrive(&inbound, &[]);
        exchange.respond(inbound.direction, 101 * MS, headers(&answer));
        assert!(exchange.finish(&inbound, 900 * MS, &route).is_none(), "{answer:?}");
    }
}

/// An unsampled request leaves no span, yet says who asks and measures.
#[test]
fn unsampled_leaves_no_span() {
    let config = config("outbound");
    let unsampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    let exchange = arrive(&config, &[("traceparent", unsampled)]);
    assert!(exchange.finish(&config, 200 * MS, &Route::default()).is_none());
    let edits = exchange.request_edits(&config);
    assert_eq!(edit(&edits, "traceparent"), None);
    assert!(edit(&edits, "x-spillway-source-service").is_some());
}

/// Envoy hands out a Struct's number as a double; text is taken too; nothing else becomes a version.
#[test]
fn ruleset_versions() {
    assert_eq!(ruleset_version(&42f64.to_le_bytes()), Some(42));
    assert_eq!(ruleset_version(b"42"), Some(42));
    assert_eq!(ruleset_version(b"12345678"), Some(12_345_678));
    for garbage in
        [b"".as_slice(), b"new", &1.5f64.to_le_bytes(), &f64::NAN.to_le_bytes(), &(-1f64).to_le_bytes()]
    {
        assert_eq!(ruleset_version(garbage), None, "{garbage:?}");
    }
}
