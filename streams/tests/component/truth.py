"""Generated traces whose calls, edges and sums are computed by brute force. Pure.

The computation shares no code with the code under test. Exclusive time is counted microsecond by
microsecond. Every span carries its class. Adjusted counts are powers of two, so that sums are exact
in any order.
"""

import math
import random
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from spillway_contracts import names

CLUSTERS = ("north", "south")
CLASSES = {
    "shop": ("GET /pages/{id}", "POST /baskets"),
    "stock": ("GET /levels/{id}",),
    "price": ("GET /prices/{id}", "GET /offers"),
    "rating": ("GET /ratings/{id}",),
}
_BELOW = {"shop": ("stock", "price"), "stock": ("rating",), "price": ("rating",), "rating": ()}
_KEPT = {1: "", 2: "ot=th:8", 4: "ot=th:c"}  # adjusted count -> sampling threshold
_BUCKET = 1.04

# started_us, cluster, service, class, source cluster, source service, duration_us, exclusive_us,
# request bytes, failed, adjusted count
Call = tuple
# started_us, source cluster, source class, cluster, class, duration_us, network_us, request bytes,
# failed, adjusted count
Edge = tuple


@dataclass
class Truth:
    """What must be stored, by trace id and span id (hexadecimal)."""

    calls: dict[tuple[str, str], Call] = field(default_factory=dict)
    edges: dict[tuple[str, str], Edge] = field(default_factory=dict)

    def add(self, other: "Truth") -> None:
        self.calls |= other.calls
        self.edges |= other.edges

    def load(self) -> dict[tuple, tuple[float, ...]]:
        """Returns the sums of calls by (second, cluster, service, class).

        The sums are arrivals, failed calls, good spans, and exclusive ms of good calls. All except
        the good spans are weighted by the adjusted count.
        """
        sums: dict[tuple, np.ndarray] = defaultdict(lambda: np.zeros(4))
        for started, cluster, service, class_id, _, _, _, exclusive, _, failed, count in self.calls.values():
            good = 0 if failed else 1
            sums[started // 1_000_000, cluster, service, class_id] += (
                count, count * (1 - good), good, count * good * exclusive / 1000,
            )  # fmt: skip
        return {key: tuple(row.tolist()) for key, row in sums.items()}

    def graph(self) -> dict[tuple, tuple[float, ...]]:
        """Returns the sums of edges by (second, source cluster, source class, cluster, class).

        The sums are calls, failed calls, request bytes and spans. All except the spans are weighted
        by the adjusted count.
        """
        sums: dict[tuple, np.ndarray] = defaultdict(lambda: np.zeros(4))
        for started, here, source, there, class_id, _, _, size, failed, count in self.edges.values():
            key = (started // 1_000_000, here, source, there, class_id)
            sums[key] += (count, count * failed, count * size, 1)
        return {key: tuple(row.tolist()) for key, row in sums.items()}

    def network(self) -> dict[tuple, tuple[float, float]]:
        """Returns the sums of network times by (second, from, to, histogram bucket).

        The sums are calls and microseconds, weighted by the adjusted count.
        """
        sums: dict[tuple, np.ndarray] = defaultdict(lambda: np.zeros(2))
        for started, here, _, there, _, _, network_us, _, _, count in self.edges.values():
            bucket = math.ceil(math.log(network_us) / math.log(_BUCKET))
            sums[started // 1_000_000, here, there, bucket] += (count, count * network_us)
        return {key: tuple(row.tolist()) for key, row in sums.items()}


@dataclass
class Trace:
    """The spans of one trace, with the cluster and service of their proxy, and their truth."""

    trace_id: bytes
    spans: list[tuple[str, str, Span]] = field(default_factory=list)  # cluster, service, span
    truth: Truth = field(default_factory=Truth)


class World:
    """Creates traces, which are always the same for a seed.

    `truth` is the truth of all traces that were created.
    """

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self.truth = Truth()

    def trace(self, now_us: int) -> Trace:
        """Returns a new trace that begins at `now_us` (Unix µs), and adds its truth to `truth`."""
        dice = self._dice
        trace = Trace(dice.randbytes(16))
        count = dice.choice(tuple(_KEPT))
        self._serve(trace, count, "shop", dice.choice(CLUSTERS), None, now_us)
        self.truth.add(trace.truth)
        return trace

    def _serve(
        self,
        trace: Trace,
        count: int,
        service: str,
        cluster: str,
        client: tuple[str, str, Span] | None,
        start_us: int,
    ) -> tuple[int, str, bool]:
        """Adds the server span of a request, and the calls that it makes.

        Returns the request's duration (µs), its class, and whether it failed.
        """
        dice = self._dice
        span = Span(
            span_id=dice.randbytes(8),
            kind=Span.SPAN_KIND_SERVER,
            parent_span_id=client[2].span_id if client else b"",
        )
        class_id = f"{service} {dice.choice(CLASSES[service])}"
        intervals, moment = [], start_us + dice.randrange(50, 900)
        for below in _BELOW[service]:
            for _ in range(dice.choice((0, 1, 1, 2))):
                begun, ended = self._call(trace, count, below, cluster, service, class_id, span, moment)
                intervals.append((begun, ended))
                # The next call begins before this call has ended, exactly then, or later.
                moment = dice.choice((begun + (ended - begun) // 2, ended, ended + dice.randrange(400)))
        latest = max((end for _, end in intervals), default=start_us)
        # Some requests end before their last call does. The rest of that call is outside them.
        end_us = (
            latest - dice.randrange(60)
            if intervals and dice.random() < 0.2
            else latest + dice.randrange(80, 5_000)
        )
        end_us = max(end_us, start_us + 1)
        failed = dice.random() < 0.1
        size = dice.randrange(1, 5_000)
        self._fill(span, trace, count, class_id, start_us, end_us, failed, size)
        if client:
            _put(span, names.SPAN_ATTRIBUTE_SOURCE_CLUSTER, client[0])
            _put(span, names.SPAN_ATTRIBUTE_SOURCE_SERVICE, client[1])
        _put(span, names.SPAN_ATTRIBUTE_IN_FLIGHT, 3)
        _put(span, names.SPAN_ATTRIBUTE_ARRIVAL_RATE, 40.0)
        trace.spans.append((cluster, service, span))
        trace.truth.calls[trace.trace_id.hex(), span.span_id.hex()] = (
            start_us, cluster, service, class_id, client[0] if client else "", client[1] if client else "",
            end_us - start_us, exclusive_us(start_us, end_us, intervals), size, failed, float(count),
        )  # fmt: skip
        return end_us - start_us, class_id, failed

    def _call(
        self, trace: Trace, count: int, service: str, cluster: str, caller: str, caller_class: str, parent: Span,
        start_us: int,
    ) -> tuple[int, int]:  # fmt: skip
        """Adds the client span of a call, and the request that it causes.

        Returns the start and the end of the call (Unix µs).
        """
        dice = self._dice
        there = dice.choice((cluster, cluster, *CLUSTERS))
        network_us = dice.randrange(20_000, 40_000) if there != cluster else dice.randrange(100, 900)
        span = Span(span_id=dice.randbytes(8), kind=Span.SPAN_KIND_CLIENT, parent_span_id=parent.span_id)
        served, class_id, failed = self._serve(
            trace, count, service, there, (cluster, caller, span), start_us + network_us // 2
        )
        end_us, size = start_us + served + network_us, dice.randrange(1, 5_000)
        self._fill(span, trace, count, class_id, start_us, end_us, failed, size)
        _put(span, names.SPAN_ATTRIBUTE_DESTINATION_CLUSTER, there)
        _put(span, names.SPAN_ATTRIBUTE_DESTINATION_SERVICE, service)
        _put(span, names.SPAN_ATTRIBUTE_NETWORK_TIME, network_us)
        trace.spans.append((cluster, caller, span))
        trace.truth.edges[trace.trace_id.hex(), span.span_id.hex()] = (
            start_us, cluster, caller_class, there, class_id, end_us - start_us, network_us, size, failed, float(count),
        )  # fmt: skip
        return start_us, end_us

    def _fill(
        self,
        span: Span,
        trace: Trace,
        count: int,
        class_id: str,
        start_us: int,
        end_us: int,
        failed: bool,
        size: int,
    ) -> None:
        span.trace_id, span.trace_state = trace.trace_id, _KEPT[count]
        span.start_time_unix_nano, span.end_time_unix_nano = start_us * 1000, end_us * 1000
        method, template = class_id.split(" ")[1:]
        span.name = f"{method} {template}"
        _put(span, names.SPAN_ATTRIBUTE_CLASS, class_id)
        _put(span, names.OTEL_ATTRIBUTE_HTTP_METHOD, method)
        _put(span, names.OTEL_ATTRIBUTE_URL_PATH, template.replace("{id}", "17"))
        _put(span, names.OTEL_ATTRIBUTE_HTTP_STATUS, 503 if failed else 200)
        _put(span, names.OTEL_ATTRIBUTE_REQUEST_SIZE, size)
        if failed:
            _put(span, names.OTEL_ATTRIBUTE_ERROR_TYPE, "503")
            span.status.code = 2

    def messages(self, traces: list[Trace], pieces: int) -> list[ExportTraceServiceRequest]:
        """Returns the traces' spans in `pieces` messages.

        The spans of each trace are spread over the messages and out of order. One in fifty comes
        twice.
        """
        dice = self._dice
        requests = [ExportTraceServiceRequest() for _ in range(pieces)]
        spans = [span for trace in traces for span in trace.spans]
        spans += dice.sample(spans, len(spans) // 50)
        dice.shuffle(spans)
        for cluster, service, span in spans:
            _scope(dice.choice(requests), cluster, service).spans.append(span)
        return requests


def exclusive_us(start: int, end: int, intervals: list[tuple[int, int]]) -> int:
    """Counts the microseconds of start <= t < end that are in none of the intervals."""
    exclusive = np.ones(end - start, dtype=bool)
    for first, last in intervals:
        exclusive[max(first - start, 0) : max(last - start, 0)] = False
    return int(exclusive.sum())


def _scope(request: ExportTraceServiceRequest, cluster: str, service: str):
    wanted = {names.SPAN_ATTRIBUTE_SERVICE: service, names.SPAN_ATTRIBUTE_CLUSTER: cluster}
    for resource in request.resource_spans:
        if {a.key: a.value.string_value for a in resource.resource.attributes} == wanted:
            return resource.scope_spans[0]
    resource = request.resource_spans.add()
    for key, text in wanted.items():
        resource.resource.attributes.add(key=key).value.string_value = text
    return resource.scope_spans.add()


def _put(span: Span, key: str, value: str | int | float) -> None:
    kind = {str: "string_value", int: "int_value", float: "double_value"}[type(value)]
    setattr(span.attributes.add(key=key).value, kind, value)
