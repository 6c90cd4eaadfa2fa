"""CPU use that pods report: OTLP metrics -> rows of cpu_1s, and its memory. Pure."""

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from spillway_contracts import names

from spillway_streams import semconv
from spillway_streams.counters import Counters
from spillway_streams.otlp import EARLIEST_US, PayloadError, attributes_of

CPU_1S = ("at", "cluster", "service", "pod", "utilisation")
POD = "k8s.pod.name"


class Point(NamedTuple):
    """Share of the CPU limit that one pod used in one second (Unix seconds); CPU_1S order."""

    at: int
    cluster: str
    service: str
    pod: str
    utilisation: float


def decode(payload: bytes, counters: Counters) -> list[Point]:
    """CPU points of one ExportMetricsServiceRequest; other metrics are not ours and are passed over.

    Raises PayloadError when it does not decode. A point without identity, or with a value that is
    no share, is counted by reason.
    """
    try:
        request = ExportMetricsServiceRequest.FromString(payload)
    except DecodeError as error:
        raise PayloadError(f"not an ExportMetricsServiceRequest: {error}") from error
    points = []
    for resource_metrics in request.resource_metrics:
        base = attributes_of(resource_metrics.resource.attributes)
        for scope in resource_metrics.scope_metrics:
            for metric in scope.metrics:
                if metric.name != names.OTEL_METRIC_CPU_LIMIT_UTILIZATION:
                    continue
                for raw in metric.gauge.data_points:
                    point = _point(raw, base | attributes_of(raw.attributes), counters)
                    if point:
                        points.append(point)
    return points


def _point(raw, attributes: semconv.Attributes, counters: Counters) -> Point | None:
    cluster = semconv.text(attributes, *semconv.CLUSTER)
    service = semconv.text(attributes, names.SPAN_ATTRIBUTE_SERVICE)
    pod = semconv.text(attributes, POD)
    value = raw.as_double if raw.WhichOneof("value") == "as_double" else float(raw.as_int)
    if not (cluster and service and pod):
        counters.add("rejected_cpu: cluster, service or pod is absent")
    elif raw.time_unix_nano < EARLIEST_US * 1000:
        counters.add("rejected_cpu: before the year 2000")
    elif not math.isfinite(value) or value < 0:
        counters.add("rejected_cpu: negative or not finite")
    else:
        return Point(raw.time_unix_nano // 1_000_000_000, cluster, service, pod, min(value, 1.0))
    return None


class CpuTable:
    """Mean utilisation per (service, cluster) and second, over the pods that reported."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._seconds: dict[tuple[str, str], dict[int, dict[str, float]]] = defaultdict(dict)

    def add(self, points: Iterable[Point]) -> None:
        for point in points:
            seconds = self._seconds[point.service, point.cluster]
            seconds.setdefault(point.at, {})[point.pod] = point.utilisation
            if len(seconds) > self._memory * 1.1:
                for second in sorted(seconds)[: -self._memory]:
                    del seconds[second]

    def series(self, service: str, cluster: str) -> tuple[np.ndarray, np.ndarray]:
        """Seconds in order, int64 (n,), and mean utilisation, float64 (n,)."""
        seconds = self._seconds.get((service, cluster), {})
        at = sorted(seconds)
        means = [sum(seconds[second].values()) / len(seconds[second]) for second in at]
        return np.array(at, dtype=np.int64), np.array(means)

    def recent(self, service: str, cluster: str, first: int, end: int) -> float | None:
        """Mean over first <= second < end; None when no pod reported."""
        seconds = self._seconds.get((service, cluster), {})
        found = [value for s in range(first, end) for value in seconds.get(s, {}).values()]
        return sum(found) / len(found) if found else None
