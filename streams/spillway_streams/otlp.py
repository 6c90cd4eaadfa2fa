"""OTLP ExportTraceServiceRequest payloads -> validated spans, and what was rejected with its reason.

Pure. A payload that is no protobuf raises PayloadError; a span that cannot be true (zero ids,
negative or absurd times, no identity) is set aside under its reason, its neighbours are kept.
"""

from dataclasses import dataclass, field

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2
from spillway_contracts import names

from spillway_streams import StreamsError, classify, sampling, semconv
from spillway_streams.counters import Counters
from spillway_streams.semconv import Attributes
from spillway_streams.spans import Kind, Span

MAX_DURATION_US = 3_600_000_000
EARLIEST_US = 946_684_800_000_000  # 2000-01-01: older means an unset clock
MAX_AHEAD_US = 60_000_000  # of the message's own timestamp
NO_CLASS = "server span without traffic class, HTTP or RPC attributes"
_SCALARS = {"string_value", "int_value", "double_value", "bool_value"}
_KINDS = {trace_pb2.Span.SPAN_KIND_SERVER: Kind.SERVER, trace_pb2.Span.SPAN_KIND_CLIENT: Kind.CLIENT}
_KIND_NAMES = {
    "server": Kind.SERVER,
    "client": Kind.CLIENT,
    names.VALUE_DIRECTION_INBOUND: Kind.SERVER,
    names.VALUE_DIRECTION_OUTBOUND: Kind.CLIENT,
}


class PayloadError(StreamsError):
    """A payload that is not an ExportTraceServiceRequest."""


class _Reject(Exception):
    """Why one span is not believed."""


@dataclass
class Decoded:
    """Spans in payload order; rejected spans as requests of their own, by reason."""

    spans: list[Span] = field(default_factory=list)
    rejected: dict[str, ExportTraceServiceRequest] = field(default_factory=dict)


def decode(payload: bytes, received_us: int, counters: Counters) -> Decoded:
    """Reads one message that arrived at `received_us` (Unix microseconds)."""
    try:
        request = ExportTraceServiceRequest.FromString(payload)
    except DecodeError as error:
        raise PayloadError(f"not an ExportTraceServiceRequest: {error}") from error
    decoded = Decoded()
    for resource_spans in request.resource_spans:
        base = attributes_of(resource_spans.resource.attributes)
        for scope in resource_spans.scope_spans:
            for raw in scope.spans:
                try:
                    span = _span(raw, base, received_us, counters)
                except _Reject as reason:
                    _set_aside(decoded, str(reason), resource_spans.resource, raw)
                    continue
                if span.kind is Kind.SERVER and not _has_class(span):
                    _set_aside(decoded, NO_CLASS, resource_spans.resource, raw)
                    span = span._replace(kind=Kind.INTERNAL)  # still joins its children to the trace
                decoded.spans.append(span)
    return decoded


def _has_class(span: Span) -> bool:
    return bool(span.class_id or (span.method.isalpha() and (span.path or span.route)))


def _set_aside(decoded: Decoded, reason: str, resource: Resource, raw: trace_pb2.Span) -> None:
    request = decoded.rejected.setdefault(reason, ExportTraceServiceRequest())
    if not request.resource_spans or request.resource_spans[-1].resource != resource:
        request.resource_spans.add(resource=resource).scope_spans.add()
    request.resource_spans[-1].scope_spans[-1].spans.append(raw)


def attributes_of(pairs: list[KeyValue]) -> dict[str, semconv.Value]:
    found = {}
    for pair in pairs:
        kind = pair.value.WhichOneof("value")
        if kind in _SCALARS:
            found[pair.key] = getattr(pair.value, kind)
    return found


def _times(raw: trace_pb2.Span, received_us: int) -> tuple[int, int]:
    started, ended = raw.start_time_unix_nano // 1000, raw.end_time_unix_nano // 1000
    if started < EARLIEST_US:
        raise _Reject("started before the year 2000")
    if started > received_us + MAX_AHEAD_US:
        raise _Reject("starts more than a minute after its arrival")
    if ended < started:
        raise _Reject("negative duration")
    if ended - started > MAX_DURATION_US:
        raise _Reject("longer than an hour")
    return started, ended - started


def _ids(raw: trace_pb2.Span) -> tuple[str, str, str]:
    if len(raw.trace_id) != 16 or not any(raw.trace_id):
        raise _Reject("trace id is not 16 bytes or is zero")
    if len(raw.span_id) != 8 or not any(raw.span_id):
        raise _Reject("span id is not 8 bytes or is zero")
    parent = raw.parent_span_id
    if parent and len(parent) != 8:
        raise _Reject("parent span id is not 8 bytes")
    return raw.trace_id.hex(), raw.span_id.hex(), parent.hex() if any(parent) else ""


def _kind(raw: trace_pb2.Span, attributes: Attributes) -> Kind:
    named = semconv.text(attributes, names.SPAN_ATTRIBUTE_DIRECTION, "span.kind")
    return _KINDS.get(raw.kind) or _KIND_NAMES.get(named.lower(), Kind.INTERNAL)


def _adjusted_count(raw: trace_pb2.Span, counters: Counters) -> float:
    count = sampling.adjusted_count(raw.trace_state) if raw.trace_state else 1.0
    if count is None:
        counters.add("tracestate_threshold_broken")
        return 1.0
    return count


def _span(raw: trace_pb2.Span, base: dict[str, semconv.Value], received_us: int, counters: Counters) -> Span:
    trace_id, span_id, parent_id = _ids(raw)
    started_us, duration_us = _times(raw, received_us)
    attributes = base | attributes_of(raw.attributes)
    cluster = semconv.text(attributes, *semconv.CLUSTER)
    service = semconv.text(base, names.SPAN_ATTRIBUTE_SERVICE)
    if not cluster:
        raise _Reject(f"no cluster: resource attribute {names.SPAN_ATTRIBUTE_CLUSTER} is absent")
    if not service:
        raise _Reject(f"no service: resource attribute {names.SPAN_ATTRIBUTE_SERVICE} is absent")
    if not classify.is_class_id(f"{service} GET /"):
        raise _Reject("service name cannot be part of a class id: letters, digits and . _ - are allowed")
    asked = semconv.request(attributes, raw.name)
    status, failed = semconv.outcome(attributes, raw.status.code == trace_pb2.Status.STATUS_CODE_ERROR)
    return Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_id=parent_id,
        kind=_kind(raw, attributes),
        name=raw.name,
        started_us=started_us,
        duration_us=duration_us,
        cluster=cluster,
        service=service,
        class_id=semconv.text(attributes, names.SPAN_ATTRIBUTE_CLASS),
        method=asked.method,
        path=asked.path,
        route=asked.route,
        source_cluster=semconv.text(attributes, names.SPAN_ATTRIBUTE_SOURCE_CLUSTER),
        source_service=semconv.text(attributes, names.SPAN_ATTRIBUTE_SOURCE_SERVICE),
        destination_cluster=semconv.text(attributes, names.SPAN_ATTRIBUTE_DESTINATION_CLUSTER),
        destination_service=semconv.peer(attributes),
        in_flight=semconv.whole(attributes, (names.SPAN_ATTRIBUTE_IN_FLIGHT,), 0xFFFFFFFF) or 0,
        arrival_rate=semconv.rate(attributes, names.SPAN_ATTRIBUTE_ARRIVAL_RATE),
        network_us=semconv.whole(attributes, (names.SPAN_ATTRIBUTE_NETWORK_TIME,)),
        resends=semconv.whole(attributes, semconv.RESENDS) or 0,
        request_bytes=semconv.whole(attributes, semconv.REQUEST_SIZE) or 0,
        response_bytes=semconv.whole(attributes, semconv.RESPONSE_SIZE) or 0,
        status=status,
        failed=failed,
        adjusted_count=_adjusted_count(raw, counters),
        ruleset_version=semconv.whole(attributes, (names.SPAN_ATTRIBUTE_RULESET_VERSION,)) or 0,
    )
