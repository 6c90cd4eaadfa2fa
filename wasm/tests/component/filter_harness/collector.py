"""A collector that keeps what it receives.

It is the real OTLP gRPC service, and decodes messages with the published types.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metric_messages
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metric_service
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as messages
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as service

SERVER, CLIENT = 2, 3


@dataclass(frozen=True)
class Received:
    """One span. Its attributes and those of its resource are Python values."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent: str
    state: str
    start_ns: int
    end_ns: int
    failed: bool
    attributes: dict
    resource: dict


def values(pairs) -> dict:
    """Returns OTLP attributes as a dictionary of Python values."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def flatten(request: messages.ExportTraceServiceRequest) -> list[Received]:
    """Returns the spans of a request, each with its resource's attributes."""
    return [
        Received(
            name=span.name, kind=span.kind, trace_id=span.trace_id.hex(), span_id=span.span_id.hex(),
            parent=span.parent_span_id.hex(), state=span.trace_state, start_ns=span.start_time_unix_nano,
            end_ns=span.end_time_unix_nano, failed=span.status.code == 2, attributes=values(span.attributes),
            resource=values(group.resource.attributes),
        )
        for group in request.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]  # fmt: skip


class Totals(metric_service.MetricsServiceServicer):
    """Keeps the exports of totals that it accepts. With `refuse` set, every export fails."""

    def __init__(self) -> None:
        self.exports: list[metric_messages.ExportMetricsServiceRequest] = []
        self.refuse = False

    def Export(self, request, context):
        if self.refuse:
            context.abort(grpc.StatusCode.UNAVAILABLE, "refusing")
        self.exports.append(request)
        return metric_messages.ExportMetricsServiceResponse()

    def requests(self) -> dict[tuple[str | None, bool], int]:
        """Returns the request counts of the newest totals, by (class, whether they are entries)."""
        out = {}
        for point in self.points("spillway.requests"):
            of = values(point.attributes)
            out[of.get("spillway.class"), of["spillway.entry"]] = point.as_int
        return out

    def spans(self) -> dict[str, int]:
        """Returns the span counts of the newest totals, by outcome."""
        points = self.points("spillway.spans")
        return {values(point.attributes)["spillway.outcome"]: point.as_int for point in points}

    def points(self, name: str) -> list:
        """Returns the data points of one metric in the newest totals."""
        if not self.exports:
            return []
        [resource] = self.exports[-1].resource_metrics
        [scope] = resource.scope_metrics
        [metric] = [metric for metric in scope.metrics if metric.name == name]
        return list(metric.sum.data_points)

    def wait_for(self, wanted: Callable[["Totals"], bool], seconds: float = 30) -> None:
        """Waits until the totals satisfy `wanted`. Fails after `seconds`."""
        deadline = time.monotonic() + seconds
        while not wanted(self):
            assert time.monotonic() < deadline, f"after {seconds} s: {self.exports[-1:]}"
            time.sleep(0.05)


class Collector(service.TraceServiceServicer):
    """Listens on a given port and appends what it accepts to `spans`.

    With `refuse` set, every export fails. With `reject` set, it accepts each call but rejects one
    of its spans.
    """

    def __init__(self, port: int) -> None:
        self.spans: list[Received] = []
        self.batches: list[int] = []
        self.sizes: list[int] = []
        self.refuse = False
        self.reject = False
        self._lock = threading.Lock()
        self._server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
        service.add_TraceServiceServicer_to_server(self, self._server)
        self.totals = Totals()
        metric_service.add_MetricsServiceServicer_to_server(self.totals, self._server)
        if self._server.add_insecure_port(f"127.0.0.1:{port}") != port:
            raise OSError(f"port {port} is taken")
        self._server.start()

    def Export(self, request, context):
        if self.refuse:
            context.abort(grpc.StatusCode.UNAVAILABLE, "refusing")
        spans = flatten(request)
        if not context.is_active():  # too late: Envoy has given up and sends the batch again
            context.abort(grpc.StatusCode.CANCELLED, "nobody waits for this answer")
        with self._lock:
            self.spans += spans
            self.batches.append(len(spans))
            self.sizes.append(request.ByteSize())
        rejected = messages.ExportTracePartialSuccess(rejected_spans=int(self.reject))
        return messages.ExportTraceServiceResponse(partial_success=rejected)

    def stop(self) -> None:
        self._server.stop(0).wait()

    def wait_for(self, wanted: Callable[[Received], bool], count: int, seconds: float = 30) -> list[Received]:
        """Returns the matching spans once there are `count`.

        Fails with the newest spans otherwise.
        """
        deadline = time.monotonic() + seconds
        while True:
            with self._lock:
                found = [span for span in self.spans if wanted(span)]
            if len(found) >= count:
                return found
            if time.monotonic() > deadline:
                raise AssertionError(f"{len(found)} of {count} spans after {seconds} s: {self.spans[-5:]}")
            time.sleep(0.05)
