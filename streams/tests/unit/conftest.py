"""Builders of spans and payloads."""

from collections.abc import Callable

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2
from spillway_streams.counters import Counters
from spillway_streams.spans import Kind, Span

START_US = 1_700_000_000_000_000


def _span(
    span_id: str, parent: str, kind: Kind, start: int, end: int, service: str = "a", **more: object
) -> Span:
    values = {
        "trace_id": "0" * 31 + "1", "span_id": span_id, "parent_id": parent, "kind": kind, "name": "",
        "started_us": START_US + start, "duration_us": end - start, "cluster": "c1", "service": service,
        "class_id": "", "method": "GET", "path": f"/{service}", "route": "", "source_cluster": "",
        "source_service": "", "destination_cluster": "", "destination_service": "", "in_flight": 1,
        "arrival_rate": 1.0, "network_us": None, "resends": 0, "request_bytes": 1, "response_bytes": 2, "status": 200,
        "failed": False, "adjusted_count": 1.0, "ruleset_version": 0,
    }  # fmt: skip
    return Span(**(values | more))


@pytest.fixture(scope="session")
def span() -> Callable[..., Span]:
    """span(id, parent id, kind, start us, end us, service, **fields)"""
    return _span


@pytest.fixture
def counters() -> Counters:
    return Counters()


@pytest.fixture(scope="session")
def otlp_payload() -> Callable[..., bytes]:
    """otlp_payload([span fields...], resource={...}): an export of spans with valid defaults; a span's
    `attributes` is a dict."""

    def _payload(spans: list[dict], resource: dict | None = None) -> bytes:
        request = ExportTraceServiceRequest()
        scope = request.resource_spans.add()
        base = {"service.name": "a", "spillway.cluster": "c1"} if resource is None else resource
        _set(scope.resource.attributes, base)
        inner = scope.scope_spans.add()
        for number, fields in enumerate(spans):
            fields = dict(fields)
            attributes = fields.pop("attributes", {"http.request.method": "GET", "url.path": "/x"})
            defaults = {
                "trace_id": b"\1" * 16, "span_id": bytes([number + 1] * 8),
                "kind": trace_pb2.Span.SPAN_KIND_SERVER,
                "start_time_unix_nano": START_US * 1000, "end_time_unix_nano": START_US * 1000 + 5_000_000,
            }  # fmt: skip
            _set(inner.spans.add(**(defaults | fields)).attributes, attributes)
        return request.SerializeToString()

    return _payload


def _set(target: object, attributes: dict) -> None:
    for key, value in attributes.items():
        name = {str: "string_value", bool: "bool_value", int: "int_value", float: "double_value"}[type(value)]
        setattr(target.add(key=key).value, name, value)
