"""Payloads: what is accepted, from which tracer, and what is rejected with which reason."""

import pytest
from opentelemetry.proto.trace.v1 import trace_pb2
from spillway_streams import otlp
from spillway_streams.counters import Counters
from spillway_streams.spans import Kind

NOW_US = 1_700_000_100_000_000


def decode(payload: bytes) -> otlp.Decoded:
    return otlp.decode(payload, NOW_US, Counters())


def test_the_filters_span_keeps_everything_it_says(otlp_payload):
    """Names of contracts/names.yaml end in the span's fields."""
    attributes = {
        "spillway.class": "a GET /x/{id}", "spillway.load.in_flight": 7, "spillway.load.arrival_rate": 12.5,
        "spillway.source.cluster": "c2", "spillway.source.service": "w", "http.request.body.size": 10,
        "http.response.body.size": 20, "http.request.size": 999,
        "http.request.resend_count": 2, "http.response.status_code": 200, "http.request.method": "GET",
        "url.path": "/x/1", "spillway.ruleset.version": 3,
    }  # fmt: skip
    [span] = decode(otlp_payload([{"attributes": attributes, "trace_state": "a=b,ot=rv:1;th:8"}])).spans
    assert (span.class_id, span.in_flight, span.arrival_rate) == ("a GET /x/{id}", 7, 12.5)
    assert (span.source_cluster, span.source_service, span.ruleset_version) == ("c2", "w", 3)
    assert (span.request_bytes, span.response_bytes, span.status, span.failed) == (10, 20, 200, False)
    assert span.resends == 2
    assert span.adjusted_count == 2.0 and span.duration_us == 5000


@pytest.mark.parametrize(
    ("name", "attributes", "expected"),
    [
        ("x", {"http.method": "get", "http.target": "/q?a=1"}, ("GET", "/q?a=1", "")),
        ("x", {"http.method": "GET", "http.url": "http://h/p"}, ("GET", "http://h/p", "")),
        (
            "x",
            {"http.request.method": "PUT", "http.route": "/u/:id", "url.path": "/u/1"},
            ("PUT", "/u/1", "/u/:id"),
        ),
        (
            "x",
            {"http.request.method": "PUT", "url.template": "/u/{id}", "url.path": "/u/1"},
            ("PUT", "/u/1", "/u/{id}"),
        ),
        ("x", {"rpc.system": "grpc", "rpc.service": "p.S", "rpc.method": "M"}, ("POST", "", "/p.S/M")),
        ("/p.S/M", {"component": "gRPC"}, ("POST", "", "/p.S/M")),
        ("HTTP GET /hotels", {}, ("GET", "/hotels", "")),
    ],
)
def test_other_tracers_conventions_are_understood(otlp_payload, name, attributes, expected):
    """Old and new OpenTelemetry HTTP and RPC conventions, and Jaeger's gRPC spans, say what was asked."""
    [span] = decode(otlp_payload([{"name": name, "attributes": attributes}])).spans
    assert (span.method, span.path, span.route) == expected


@pytest.mark.parametrize(
    ("attributes", "status", "failed"),
    [
        ({"http.status_code": "503"}, 503, True),
        ({"http.status_code": 404}, 404, False),
        ({"http.response.status_code": 0}, 0, True),
        ({"rpc.grpc.status_code": 14}, 0, True),
        ({"rpc.grpc.status_code": 5}, 0, False),
        ({"error": True}, 0, True),
        ({}, 0, False),
    ],
)
def test_failure_is_read_from_what_there_is(otlp_payload, attributes, status, failed):
    """HTTP 5xx, no response, a gRPC status other than OK, and error=true are failures; 4xx is not."""
    base = {"http.method": "GET", "http.target": "/"}
    [span] = decode(otlp_payload([{"attributes": base | attributes}])).spans
    assert (span.status, span.failed) == (status, failed)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"trace_id": b"\0" * 16}, "trace id"),
        ({"trace_id": b"\1" * 8}, "trace id"),
        ({"span_id": b"\0" * 8}, "span id"),
        ({"parent_span_id": b"\1"}, "parent span id"),
        ({"start_time_unix_nano": 5, "end_time_unix_nano": 6}, "before the year 2000"),
        ({"end_time_unix_nano": 1_600_000_000_000_000_000}, "negative duration"),
        ({"end_time_unix_nano": 1_700_009_000_000_000_000}, "longer than an hour"),
        ({"start_time_unix_nano": 1_800_000_000_000_000_000}, "after its arrival"),
        ({"attributes": {}}, "without traffic class"),
    ],
)
def test_absurd_spans_are_rejected_with_a_reason_and_their_neighbours_kept(otlp_payload, fields, reason):
    """One span that cannot be true is set aside, whole and decodable, under its reason."""
    decoded = decode(otlp_payload([fields, {"span_id": b"\7" * 8}]))
    [(found, request)] = decoded.rejected.items()
    assert reason in found
    assert len(request.resource_spans[0].scope_spans[0].spans) == 1
    assert [s.span_id for s in decoded.spans if s.kind is Kind.SERVER] == ["07" * 8]


def test_identity_has_no_default(otlp_payload):
    """Without cluster or service a span is rejected by name of the attribute; the Kubernetes cluster
    name that a collector adds is accepted."""
    assert "spillway.cluster" in next(iter(decode(otlp_payload([{}], {"service.name": "a"})).rejected))
    assert "service.name" in next(iter(decode(otlp_payload([{}], {"spillway.cluster": "c"})).rejected))
    assert "class id" in next(
        iter(decode(otlp_payload([{}], {"service.name": "a b", "spillway.cluster": "c"})).rejected)
    )
    [span] = decode(otlp_payload([{}], {"service.name": "a", "k8s.cluster.name": "k"})).spans
    assert span.cluster == "k"


def test_garbage_is_an_error_and_absurd_attribute_values_are_none(otlp_payload):
    """Bytes that are no protobuf raise; negative, infinite or misspelt numbers count as not said."""
    with pytest.raises(otlp.PayloadError):
        decode(b"\xff\xff\xff")
    attributes = {
        "http.method": "GET", "http.target": "/" + "x" * 1_000_000,
        "spillway.load.arrival_rate": float("inf"),
        "spillway.load.in_flight": -1, "http.request.size": "many", "http.status_code": 99_999_999,
    }  # fmt: skip
    [span] = decode(otlp_payload([{"attributes": attributes, "trace_state": "ot=th:xyz"}])).spans
    assert (span.arrival_rate, span.in_flight, span.request_bytes, span.status) == (0.0, 0, 0, 0)
    assert span.adjusted_count == 1.0 and len(span.path) < 3000


def test_kind_is_read_from_the_direction_when_the_field_is_unset(otlp_payload):
    """Spans without span.kind still take part by what they say of their direction."""
    fields = {"kind": trace_pb2.Span.SPAN_KIND_UNSPECIFIED, "attributes": {"spillway.direction": "outbound"}}
    [span] = decode(otlp_payload([fields])).spans
    assert span.kind is Kind.CLIENT


def test_every_truncation_of_a_payload_is_survived(otlp_payload):
    """A payload cut anywhere decodes, is rejected, or raises PayloadError; nothing else happens."""
    payload = otlp_payload([{}, {"span_id": b"\7" * 8}])
    for end in range(len(payload)):
        try:
            decode(payload[:end])
        except otlp.PayloadError:
            pass
