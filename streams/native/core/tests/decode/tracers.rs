//! Tests of spans that other tracers wrote.

use crate::payload::*;

/// Method and path are read from old and new OpenTelemetry HTTP and RPC conventions, Envoy's
/// tracer, and Jaeger's gRPC spans.
#[test]
fn other_tracers_conventions_are_understood() {
    let long = format!("/{}", "x/".repeat(3_000));
    let cut = &long[..2048];
    for (name, attributes, expected) in [
        ("x", vec![pair("http.method", "get"), pair("http.target", "/q?a=1")], ("GET", "/q")),
        ("x", vec![pair("http.method", "GET"), pair("http.url", "http://h/p/7")], ("GET", "/p/{id}")),
        ("x", vec![pair("http.request.method", "PUT"), pair("url.full", "https://h:1/p")], ("PUT", "/p")),
        (
            "x",
            vec![
                pair("http.request.method", "PUT"),
                pair("http.route", "/u/:name"),
                pair("url.path", "/u/1/2"),
            ],
            ("PUT", "/u/{id}"),
        ),
        (
            "x",
            vec![pair("http.request.method", "PUT"), pair("url.template", "/u/{n}"), pair("url.path", "/v")],
            ("PUT", "/u/{id}"),
        ),
        (
            "x",
            vec![
                pair("http.request.method", "_OTHER"),
                pair("http.request.method_original", "PURGE"),
                pair("url.path", "/"),
            ],
            ("PURGE", "/"),
        ),
        (
            "x",
            vec![pair("rpc.system", "grpc"), pair("rpc.service", "p.S"), pair("rpc.method", "M")],
            ("POST", "/p.S/M"),
        ),
        ("x", vec![pair("rpc.system.name", "grpc"), pair("rpc.method", "p.S/M")], ("POST", "/p.S/M")),
        ("/p.S/M", vec![pair("component", "gRPC")], ("POST", "/p.S/M")),
        ("/p.S/M", vec![pair("rpc.system", "grpc")], ("POST", "/p.S/M")),
        ("HTTP GET /hotels", vec![], ("GET", "/hotels")),
        ("GET /hotels/17", vec![], ("GET", "/hotels/{id}")),
        ("HTTP /hotels", vec![], ("HTTP", "/hotels")),
        ("x", vec![pair("http.method", "GET"), pair("http.target", long.as_str())], ("GET", cut)),
    ] {
        let decoded = decode_one(Wire { name: name.into(), ..server(attributes) });
        assert_eq!(decoded.asked(), expected, "{name}");
    }
}

/// A span that names no method or no path gets no class.
#[test]
fn nothing_is_invented_for_a_span_that_does_not_say() {
    for (name, attributes) in [
        ("GET hotels", vec![]),
        ("get /hotels", vec![]),
        ("GET /hotels twice", vec![]),
        ("/p.S/M", vec![]),
        ("/p.S/M/N", vec![pair("component", "grpc")]),
        ("x", vec![pair("http.method", "GET")]),
        ("x", vec![pair("http.target", "/p")]),
        ("x", vec![pair("http.method", "G-T"), pair("http.target", "/p")]),
        ("x", vec![pair("http.method", ""), pair("http.request.method", "")]),
        ("GET /p", vec![pair("http.method", 7), pair("http.target", "/p")]),
        ("x", vec![pair("rpc.service", "p.S")]),
        ("x", vec![pair("spillway.class", "no class id")]),
    ] {
        let decoded = decode_one(Wire { name: name.into(), ..server(attributes) });
        assert_eq!(decoded.rejected.len(), 1, "{name}");
        assert!(decoded.span().template.is_none(), "{name}");
    }
}

/// An invalid class id is ignored. The span's other attributes still count.
#[test]
fn an_invalid_class_is_replaced_by_what_was_asked() {
    let attributes =
        vec![pair("spillway.class", "a get /x"), pair("http.method", "GET"), pair("http.target", "/y")];
    let decoded = decode_one(server(attributes));
    assert!(decoded.span().class.is_none());
    assert_eq!(decoded.asked(), ("GET", "/y"));
}

/// The called service of a client span is read from each tracer's attributes. A foreign host is no
/// service.
#[test]
fn the_called_service_is_read_from_what_there_is() {
    for (key, value, expected) in [
        ("peer.service", "b", ("b", "")),
        ("server.address", "b.ns.svc.cluster.local", ("b", "")),
        ("net.peer.name", "b:8080", ("b", "")),
        ("net.peer.name", "b.ns.svc:80", ("b", "")),
        ("server.address", "api.example.com", ("", "")),
        ("server.address", "10.0.0.7", ("", "")),
        ("server.address", "7", ("", "")),
        ("server.address", "[::1]:80", ("", "")),
        ("upstream_cluster", "outbound|80||b.ns.svc.cluster.local", ("b", "")),
        ("upstream_cluster.name", "outbound|80|v2|b.ns.svc.cluster.local;", ("b", "")),
        ("upstream_cluster", "inbound|9080||", ("", "")),
        ("upstream_cluster", "PassthroughCluster", ("", "")),
        ("upstream_cluster", "b|c9", ("b", "c9")),
        ("upstream_cluster", "b|c9|!c1|!c2", ("b", "c9")),
        ("upstream_cluster", "b", ("b", "")),
        ("http.url", "http://b:9080/reviews/0", ("b", "")),
        ("url.full", "https://api.example.com/x", ("", "")),
        ("url.full", "/x", ("", "")),
    ] {
        let decoded = decode_one(client(vec![pair(key, value)]));
        let span = decoded.span();
        let found = (decoded.text(span.destination_service), decoded.text(span.destination_cluster));
        assert_eq!(found, expected, "{key} {value}");
    }
}

/// A complete span of an Istio sidecar: numbers are strings, and its canonical service replaces
/// service.name.
#[test]
fn a_sidecars_span_becomes_a_call() {
    let attributes = vec![
        pair("node_id", "sidecar~10.1.2.3~reviews-v1.default~default.svc.cluster.local"),
        pair("guid:x-request-id", "6f0fd2d5-0000-4000-8000-8a5d5e7d2f10"),
        pair("http.url", "http://reviews:9080/reviews/0?x=1"),
        pair("http.method", "GET"),
        pair("component", "proxy"),
        pair("peer.address", "10.1.2.4"),
        pair("request_size", "12"),
        pair("response_size", "379"),
        pair("upstream_cluster", "inbound|9080||"),
        pair("http.status_code", "200"),
        pair("response_flags", "-"),
        pair("istio.canonical_service", "reviews"),
        pair("istio.mesh_id", "cluster.local"),
    ];
    let name = "reviews.default.svc.cluster.local:9080/*".to_string();
    let decoded =
        decode(&export(vec![Wire { name, ..server(attributes) }], vec![pair("k8s.cluster.name", "k")]));
    let span = decoded.span();
    assert_eq!((decoded.text(span.service), decoded.text(span.cluster)), ("reviews", "k"));
    assert_eq!(decoded.asked(), ("GET", "/reviews/{id}"));
    assert_eq!((span.request_bytes, span.response_bytes, span.status, span.failed), (12, 379, 200, false));
}
