//! Tests of decoded filter spans: their fields, their cluster and service, and their outcome.

use prost::Message;
use spillway_spans::span::Kind;

use crate::payload::*;

/// Every attribute of contracts/names.yaml that the filter writes reaches a field of the span.
#[test]
fn the_filters_span_keeps_everything_it_says() {
    let mut wire = server(vec![
        pair("spillway.class", "a GET /x/{id}"),
        pair("spillway.load.in_flight", 7),
        pair("spillway.load.arrival_rate", 12.5),
        pair("spillway.load.class.in_flight", 3),
        pair("spillway.load.class.arrival_rate", 4),
        pair("spillway.source.cluster", "c2"),
        pair("spillway.source.service", "w"),
        pair("http.request.body.size", 10),
        pair("http.response.body.size", 2_000_000),
        pair("http.request.size", 999),
        pair("http.request.resend_count", 2),
        pair("http.response.status_code", 200),
        pair("http.request.method", "GET"),
        pair("url.path", "/x/1"),
        pair("spillway.ruleset.version", 300),
    ]);
    wire.trace_state = "a=b,ot=rv:1;th:8".into();
    wire.parent_span_id = vec![9; 8];
    wire.name = "GET /x/{id}".into();
    let decoded = decode_one(wire);
    let span = decoded.span();
    assert_eq!((span.trace_id, span.span_id), (u128::from_be_bytes([1; 16]), u64::from_be_bytes([7; 8])));
    assert_eq!((span.parent_id, span.kind), (u64::from_be_bytes([9; 8]), Kind::Server));
    assert_eq!((decoded.text(span.service), decoded.text(span.cluster)), ("a", "c1"));
    assert_eq!((decoded.text(span.class), decoded.text(span.name)), ("a GET /x/{id}", "GET /x/{id}"));
    assert_eq!((span.in_flight, span.arrival_rate), (7, 12.5));
    assert_eq!((span.class_in_flight, span.class_arrival_rate), (3, 4.0));
    assert_eq!((decoded.text(span.source_cluster), decoded.text(span.source_service)), ("c2", "w"));
    assert_eq!((span.request_bytes, span.response_bytes), (10, 2_000_000));
    assert_eq!((span.status, span.failed, span.resends), (200, false, 2));
    assert_eq!((span.adjusted_count, span.ruleset_version), (2.0, 300));
    assert_eq!((span.started_us, span.duration_us), (START_NS as i64 / 1000, 5000));
    assert!(decoded.rejected.is_empty());
}

/// The client span of the caller's filter carries the network time and the destination.
#[test]
fn the_filters_client_span_tells_whom_it_asked() {
    let decoded = decode_one(client(vec![
        pair("spillway.class", "b POST /y"),
        pair("spillway.network.time_us", 0),
        pair("spillway.destination.cluster", "c9"),
        pair("spillway.destination.service", "b"),
        pair("server.address", "elsewhere.example"),
    ]));
    let span = decoded.span();
    assert_eq!((span.kind, span.network_us), (Kind::Client, Some(0)));
    assert_eq!((decoded.text(span.destination_cluster), decoded.text(span.destination_service)), ("c9", "b"));
    assert_eq!(decode_one(client(vec![])).span().network_us, None);
}

/// HTTP 5xx, a missing response, a gRPC status that is the server's fault, and error=true are
/// failures. HTTP 4xx is not.
#[test]
fn failure_is_read_from_what_there_is() {
    for (attributes, status, failed) in [
        (vec![pair("http.status_code", "503")], 503, true),
        (vec![pair("http.status_code", " +404 ")], 404, false),
        (vec![pair("http.status_code", 404)], 404, false),
        (vec![pair("http.response.status_code", 200), pair("http.status_code", 503)], 200, false),
        (vec![pair("http.response.status_code", 0)], 0, true),
        (vec![pair("http.status_code", "0"), pair("response_flags", "DC")], 0, true),
        (vec![pair("http.status_code", 499.9)], 499, false),
        (vec![pair("rpc.grpc.status_code", 14)], 0, true),
        (vec![pair("grpc.status_code", "14"), pair("http.status_code", "200")], 200, true),
        (vec![pair("rpc.response.status_code", "UNAVAILABLE")], 0, true),
        (vec![pair("rpc.response.status_code", "NOT_FOUND")], 0, false),
        (vec![pair("rpc.grpc.status_code", 5)], 0, false),
        (vec![pair("error", true)], 0, true),
        (vec![pair("error", "true")], 0, true),
        (vec![pair("error", "false")], 0, false),
        (vec![pair("response_flags", "-")], 0, false),
        (vec![pair("response_flags", "UF,URX")], 0, true),
        (vec![pair("response_flags", "UF"), pair("http.status_code", "404")], 404, false),
        (vec![], 0, false),
    ] {
        let asked = vec![pair("http.method", "GET"), pair("http.target", "/")];
        let decoded = decode_one(server([asked, attributes.clone()].concat()));
        assert_eq!((decoded.span().status, decoded.span().failed), (status, failed), "{attributes:?}");
    }
    let mut wire = client(vec![]);
    wire.status = Some(opentelemetry_proto::tonic::trace::v1::Status { message: "m".into(), code: 2 });
    assert!(decode_one(wire).span().failed);
}

/// A span without cluster or service is rejected, and the reason names the attribute. Substitutes
/// that a collector or Istio adds are accepted.
#[test]
fn identity_has_no_default() {
    let spans = || vec![server(vec![pair("spillway.class", "a GET /x")])];
    let long = "a".repeat(254);
    for (resource, reason) in [
        (vec![pair("service.name", "a")], "no cluster: resource attribute spillway.cluster is absent"),
        (vec![pair("service.name", "a"), pair("spillway.cluster", 5)], "no cluster"),
        (vec![pair("spillway.cluster", "c")], "no service: resource attribute service.name is absent"),
        (vec![pair("spillway.cluster", "c"), pair("service.name", "a b")], "cannot be part of a class id"),
        (vec![pair("spillway.cluster", "c"), pair("service.name", "é")], "cannot be part of a class id"),
        (vec![pair("spillway.cluster", "c"), pair("service.name", long.as_str())], "more than 253 bytes"),
    ] {
        let decoded = decode(&export(spans(), resource));
        assert!(decoded.spans.is_empty());
        assert!(decoded.rejected[0].reason.contains(reason), "{}", decoded.rejected[0].reason);
    }
    for (resource, expected) in [
        (vec![pair("service.name", "a"), pair("k8s.cluster.name", "k")], ("a", "k")),
        (vec![pair("istio.canonical_service", "r"), pair("istio.cluster_id", "i")], ("r", "i")),
    ] {
        let decoded = decode(&export(spans(), resource));
        let span = decoded.span();
        assert_eq!((decoded.text(span.service), decoded.text(span.cluster)), expected);
    }
}

/// A span may name its own cluster only if its resource has no `spillway.cluster`, which the
/// collector sets. Its own service name is never used.
#[test]
fn a_span_may_name_its_cluster_where_no_collector_did_but_not_its_service() {
    let attributes =
        || vec![pair("spillway.cluster", "c7"), pair("service.name", "z"), pair("spillway.class", "a GET /")];
    for (attribute, cluster) in [("spillway.cluster", "c1"), ("k8s.cluster.name", "c7")] {
        let resource = vec![pair("service.name", "a"), pair(attribute, "c1")];
        let decoded = decode(&export(vec![server(attributes())], resource));
        assert_eq!(decoded.text(decoded.span().cluster), cluster);
        assert_eq!(decoded.text(decoded.span().service), "a");
    }
}

/// A span without span.kind gets its kind from its direction attributes. Spans of messages are not
/// requests.
#[test]
fn kind_is_read_from_the_direction_when_the_field_is_unset() {
    for (number, attributes, kind) in [
        (0, vec![pair("spillway.direction", "outbound")], Kind::Client),
        (1, vec![pair("span.kind", "Server")], Kind::Server),
        (0, vec![pair("span.kind", "consumer")], Kind::Internal),
        (0, vec![pair("upstream_cluster", "inbound|9080||")], Kind::Server),
        (0, vec![pair("upstream_cluster.name", "outbound|80||b.ns.svc.cluster.local")], Kind::Client),
        (0, vec![], Kind::Internal),
        (3, vec![pair("spillway.direction", "inbound")], Kind::Client),
        (4, vec![pair("span.kind", "server")], Kind::Internal),
        (5, vec![], Kind::Internal),
        (99, vec![], Kind::Internal),
    ] {
        let attributes = [attributes, vec![pair("spillway.class", "a GET /x")]].concat();
        assert_eq!(decode_one(Wire { kind: number, ..server(attributes) }).span().kind, kind);
    }
}

/// An admitted message belongs to its cluster with all its spans. This includes spans that name
/// another cluster, none, or their Kubernetes cluster. Claims of another cluster are counted.
#[test]
fn an_admitted_message_speaks_for_its_cluster_alone() {
    let named = |key, cluster: &str| vec![pair("service.name", "a"), pair(key, cluster)];
    let claims = |cluster: &str| vec![pair("spillway.cluster", cluster), pair("spillway.class", "a GET /")];
    for (resource, attributes, counted) in [
        (named("spillway.cluster", "west"), claims("west"), 0),
        (named("spillway.cluster", "east"), claims("west"), 1),
        (named("spillway.cluster", "west"), claims("east"), 0),
        (named("k8s.cluster.name", "prod-7"), claims("east"), 1),
        (named("k8s.cluster.name", "prod-7"), vec![pair("spillway.class", "a GET /")], 0),
        (vec![pair("service.name", "a")], vec![pair("spillway.class", "a GET /")], 0),
        (vec![pair("service.name", "a"), pair("spillway.cluster", 5)], claims("west"), 1),
        (named("spillway.cluster", &"x".repeat(254)), claims("west"), 1),
    ] {
        let payload = export(vec![server(attributes)], resource).encode_to_vec();
        let decoded = decode_admitted(&payload, Some("west")).unwrap();
        assert_eq!(decoded.text(decoded.span().cluster), "west");
        assert_eq!(decoded.counters.get("another_cluster_claimed"), counted);
    }
}
