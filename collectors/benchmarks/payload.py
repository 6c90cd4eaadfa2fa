"""OTLP batches as the filter sends them: spans of one proxy, each of another trace. Pure."""

import random

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from spillway_contracts import names

SPANS = 256  # max_batch_spans of the filter
START_NS = 1_767_225_600_000_000_000
_PATHS = ("/cart/{id}", "/cart/{id}/items", "/checkout", "/product/{id}", "/recommend/{user}/{page}")
_SERVICES = ("frontend", "cart", "checkout", "catalogue", "recommendation")


def batches(count: int, spans: int = SPANS, seed: int = 1) -> list[bytes]:
    """Returns `count` different serialised ExportTraceServiceRequests of `spans` spans each.

    The same seed gives the same requests.
    """
    dice = random.Random(seed)
    return [_batch(dice, spans).SerializeToString() for _ in range(count)]


def _batch(dice: random.Random, spans: int) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    service = dice.choice(_SERVICES)
    _text(resource_spans.resource.attributes, names.SPAN_ATTRIBUTE_SERVICE, service)
    _text(resource_spans.resource.attributes, names.SPAN_ATTRIBUTE_CLUSTER, "west")
    _text(resource_spans.resource.attributes, "k8s.pod.name", f"{service}-{dice.randbytes(5).hex()}")
    scope = resource_spans.scope_spans.add()
    scope.scope.name = "spillway"
    for _ in range(spans):
        _span(scope.spans.add(), dice, service)
    return request


def _span(span, dice: random.Random, service: str) -> None:
    template = dice.choice(_PATHS)
    span.trace_id, span.span_id, span.parent_span_id = (
        dice.randbytes(16),
        dice.randbytes(8),
        dice.randbytes(8),
    )
    span.name, span.kind = f"GET {template}", 2
    span.start_time_unix_nano = START_NS + dice.randrange(60_000_000_000)
    span.end_time_unix_nano = span.start_time_unix_nano + dice.randrange(1_000_000, 300_000_000)
    for key, value in (
        (names.OTEL_ATTRIBUTE_HTTP_METHOD, "GET"),
        (names.OTEL_ATTRIBUTE_HTTP_ROUTE, template),
        (names.OTEL_ATTRIBUTE_URL_PATH, template.replace("{id}", str(dice.randrange(1_000_000)))),
        (names.SPAN_ATTRIBUTE_CLASS, f"{service} GET {template}"),
        (names.SPAN_ATTRIBUTE_DIRECTION, names.VALUE_DIRECTION_INBOUND),
        (names.SPAN_ATTRIBUTE_SOURCE_CLUSTER, dice.choice(("west", "east"))),
        (names.SPAN_ATTRIBUTE_SOURCE_SERVICE, dice.choice(_SERVICES)),
        (names.SPAN_ATTRIBUTE_DESTINATION_SERVICE, service),
    ):
        _text(span.attributes, key, value)
    for key, limit in (
        (names.OTEL_ATTRIBUTE_HTTP_STATUS, 600),
        (names.OTEL_ATTRIBUTE_REQUEST_SIZE, 4_000),
        (names.OTEL_ATTRIBUTE_RESPONSE_SIZE, 60_000),
        (names.SPAN_ATTRIBUTE_IN_FLIGHT, 40),
        (names.SPAN_ATTRIBUTE_CLASS_IN_FLIGHT, 20),
    ):
        span.attributes.add(key=key).value.int_value = dice.randrange(limit)
    for key in (names.SPAN_ATTRIBUTE_ARRIVAL_RATE, names.SPAN_ATTRIBUTE_CLASS_ARRIVAL_RATE):
        span.attributes.add(key=key).value.double_value = dice.uniform(1, 500)


def _text(attributes, key: str, value: str) -> None:
    attributes.add(key=key).value.string_value = value
