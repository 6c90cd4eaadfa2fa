"""Export requests with one span each that is odd in one way, and one huge trace. Pure."""

import time
from collections.abc import Callable, Iterator

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from spillway_contracts import names

_YEAR_NS = 365 * 86_400 * 10**9
_MEGABYTE = 1_000_000


def _times(start: Callable[[int], int], end: Callable[[int], int]) -> Callable[[Span], None]:
    """Returns a change that sets start and end, both computed from the span's start (Unix ns)."""

    def change(span: Span) -> None:
        now = span.start_time_unix_nano
        span.start_time_unix_nano, span.end_time_unix_nano = start(now), end(now)

    return change


def _sets(**fields: object) -> Callable[[Span], None]:
    """Returns a change that sets these fields of the span."""

    def change(span: Span) -> None:
        for name, value in fields.items():
            setattr(span, name, value)

    return change


def _attribute(key: str, **value: object) -> Callable[[Span], None]:
    """Returns a change that replaces the span's attribute of this name."""

    def change(span: Span) -> None:
        kept = [attribute for attribute in span.attributes if attribute.key != key]
        del span.attributes[:]
        span.attributes.extend(kept)
        attribute = span.attributes.add(key=key)
        for kind, what in value.items():
            setattr(attribute.value, kind, what)

    return change


# By name: the change that makes a good span odd.
ODDITIES: dict[str, Callable[[Span], None]] = {
    "negative duration": _times(lambda now: now, lambda now: now - 5_000_000),
    "year 1970": _times(lambda _: 1_000, lambda _: 2_000_000),
    "no times": _times(lambda _: 0, lambda _: 0),
    "year 2500": _times(lambda now: now + 470 * _YEAR_NS, lambda now: now + 470 * _YEAR_NS + 1_000),
    "largest times": _times(lambda _: 2**64 - 2, lambda _: 2**64 - 1),
    "ten years long": _times(lambda now: now - 10 * _YEAR_NS, lambda now: now),
    "trace id of 15 bytes": _sets(trace_id=b"\1" * 15),
    "no trace id": _sets(trace_id=b""),
    "trace id of zeros": _sets(trace_id=bytes(16)),
    "span id of 9 bytes": _sets(span_id=b"\1" * 9),
    "parent of 3 bytes": _sets(parent_span_id=b"\1" * 3),
    "kind 77": _sets(kind=77),
    "sampled one of very many": _sets(trace_state="ot=th:ffffffffffffff"),
    "threshold is no number": _sets(trace_state="ot=th:zz"),
    "path of a megabyte": _attribute(names.OTEL_ATTRIBUTE_URL_PATH, string_value="/x" * (_MEGABYTE // 2)),
    "attribute of a megabyte": _attribute("custom", string_value="y" * _MEGABYTE),
    "class of a megabyte": _attribute(names.SPAN_ATTRIBUTE_CLASS, string_value="z" * _MEGABYTE),
    "class is no class": _attribute(names.SPAN_ATTRIBUTE_CLASS, string_value="\N{SNOWMAN} {"),
    "method of spaces": _attribute(names.OTEL_ATTRIBUTE_HTTP_METHOD, string_value="   "),
    "rate is not a number": _attribute(names.SPAN_ATTRIBUTE_ARRIVAL_RATE, double_value=float("nan")),
    "rate is endless": _attribute(names.SPAN_ATTRIBUTE_ARRIVAL_RATE, double_value=float("inf")),
    "in flight below zero": _attribute(names.SPAN_ATTRIBUTE_IN_FLIGHT, int_value=-5),
    "in flight beyond 32 bits": _attribute(names.SPAN_ATTRIBUTE_IN_FLIGHT, int_value=2**40),
    "status beyond 16 bits": _attribute(names.OTEL_ATTRIBUTE_HTTP_STATUS, int_value=2**62),
    "size below zero": _attribute(names.OTEL_ATTRIBUTE_REQUEST_SIZE, int_value=-(2**63)),
    "status is a text": _attribute(names.OTEL_ATTRIBUTE_HTTP_STATUS, string_value="fine"),
}


def days_ago(days: int) -> Callable[[Span], None]:
    """Returns a change that moves the span back by this many days and makes it 1 ms long."""
    earlier = days * 86_400 * 10**9
    return _times(lambda now: now - earlier, lambda now: now - earlier + 1_000_000)


# Oddities that give neither a call nor a dead letter. A span of an unknown kind counts as work
# inside a service, which is valid.
INSIDE = {"kind 77"}


def request(
    number: int, change: Callable[[Span], None], service: str
) -> tuple[bytes, ExportTraceServiceRequest]:
    """Returns the id of a span and a request with this span, after `change`.

    `number` makes the span's ids unique. If `change` empties the span id, the original id is
    returned.
    """
    found = ExportTraceServiceRequest()
    span = _scope(found, service).spans.add()
    _fill(span, number, b"\7" * 8 + number.to_bytes(8, "big"))
    before = span.span_id
    change(span)
    return span.span_id or before, found


def huge_trace(spans: int, each: int, service: str) -> Iterator[ExportTraceServiceRequest]:
    """Yields the messages of one trace of `spans` spans, with `each` spans per message.

    The parent of all these spans is never sent.
    """
    for first in range(0, spans, each):
        found = ExportTraceServiceRequest()
        scope = _scope(found, service)
        for number in range(first, min(first + each, spans)):
            span = scope.spans.add()
            _fill(span, number, b"\x08" * 16)
            span.parent_span_id = b"elsewhere"[:8]
        yield found


def _span_id(number: int) -> bytes:
    return b"odd" + number.to_bytes(5, "big")


def _fill(span: Span, number: int, trace_id: bytes) -> None:
    span.trace_id, span.span_id, span.kind = trace_id, _span_id(number), Span.SPAN_KIND_SERVER
    span.start_time_unix_nano = time.time_ns()
    span.end_time_unix_nano = span.start_time_unix_nano + 1_000_000
    for key, text in (
        (names.OTEL_ATTRIBUTE_HTTP_METHOD, "GET"),
        (names.OTEL_ATTRIBUTE_URL_PATH, "/odd"),
        (names.SPAN_ATTRIBUTE_CLASS, "odd GET /odd"),
    ):
        span.attributes.add(key=key).value.string_value = text


def _scope(found: ExportTraceServiceRequest, service: str):
    resource = found.resource_spans.add()
    for key, text in ((names.SPAN_ATTRIBUTE_SERVICE, service), (names.SPAN_ATTRIBUTE_CLUSTER, "north")):
        resource.resource.attributes.add(key=key).value.string_value = text
    return resource.scope_spans.add()
