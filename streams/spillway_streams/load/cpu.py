"""CPU use that pods report: decodes OTLP metrics to rows of cpu_1s and keeps them. Pure."""

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import NumberDataPoint
from spillway_contracts import names

from spillway_streams.batches.arrays import Floats, Ints
from spillway_streams.load.attributes import CLUSTER, EARLIEST_US, PayloadError, Value, attributes_of, text
from spillway_streams.process.counters import Counters

CPU_1S = ("at", "cluster", "service", "pod", "utilisation")
POD = "k8s.pod.name"
# A pod without a reading for so many seconds, and for so many intervals, is gone.
_ABSENT_S, _ABSENT_INTERVALS = 11, 3


class Point(NamedTuple):
    """Share of its CPU limit that one pod used in one second. Fields are in the order of CPU_1S.

    `at`: Unix second.
    """

    at: int
    cluster: str
    service: str
    pod: str
    utilisation: float


def decode(payload: bytes, counters: Counters, cluster: str | None = None) -> list[Point]:
    """Returns the CPU points of one ExportMetricsServiceRequest. Other metrics are skipped.

    `cluster`: the cluster that all points belong to. A resource that names another cluster is
    counted. None: each point belongs to the cluster that it names.

    Raises PayloadError when the payload does not decode. A point that lacks cluster, service or
    pod, or that has an unusable time or value, is skipped and counted by reason.
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
                    point = _point(raw, base | attributes_of(raw.attributes), counters, cluster)
                    if point:
                        points.append(point)
    return points


def _point(
    raw: NumberDataPoint, attributes: dict[str, Value], counters: Counters, admitted: str | None
) -> Point | None:
    cluster = admitted or text(attributes, *CLUSTER)
    if admitted and attributes.get(names.SPAN_ATTRIBUTE_CLUSTER, admitted) != admitted:
        counters.add(f"claims_overridden: {admitted}")
    service = text(attributes, names.SPAN_ATTRIBUTE_SERVICE)
    pod = text(attributes, POD)
    value = raw.as_double if raw.WhichOneof("value") == "as_double" else float(raw.as_int)
    if not (cluster and service and pod):
        counters.add("rejected_cpu: cluster, service or pod is absent")
    elif raw.time_unix_nano < EARLIEST_US * 1000:
        counters.add("rejected_cpu: before the year 2000")
    elif raw.time_unix_nano >= 2**32 * 10**9:  # beyond DateTime: the row could never be stored
        counters.add("rejected_cpu: after the year 2105")
    elif not math.isfinite(value) or value < 0:
        counters.add("rejected_cpu: negative or not finite")
    else:
        return Point(raw.time_unix_nano // 1_000_000_000, cluster, service, pod, min(value, 1.0))
    return None


class CpuTable:
    """Mean utilisation per (service, cluster) and second, over the pods that reported.

    Holds the newest `memory` seconds of each pair. Beyond `max_keys` pairs, the pair that has been
    silent for longest is dropped.
    """

    def __init__(self, memory: int, max_keys: int = 5000) -> None:
        self._memory, self._max_keys = memory, max_keys
        # Ordered by the time of the last point: the first pair has been silent for longest.
        self._seconds: dict[tuple[str, str], dict[int, dict[str, float]]] = {}

    def add(self, points: Iterable[Point]) -> None:
        """Stores points. A later point of the same pod and second replaces the earlier one."""
        for point in points:
            key = point.service, point.cluster
            seconds = self._seconds[key] = self._seconds.pop(key, {})
            if len(self._seconds) > self._max_keys:
                del self._seconds[next(iter(self._seconds))]
            seconds.setdefault(point.at, {})[point.pod] = point.utilisation
            if len(seconds) > self._memory * 1.1:
                for second in sorted(seconds)[: -self._memory]:
                    del seconds[second]

    def series(self, service: str, cluster: str) -> tuple[Ints, Floats, Floats]:
        """Returns three arrays of shape (n,): seconds, mean utilisation, number of pods.

        The seconds are Unix seconds in ascending order, int64. The mean is over the pods that
        reported in that second, float64. The number of pods is float64.
        """
        seconds = self._seconds.get((service, cluster), {})
        at = sorted(seconds)
        means = [sum(found.values()) / len(found) for found in (seconds[second] for second in at)]
        by_pod: dict[str, list[int]] = defaultdict(list)
        for second in at:
            for pod in seconds[second]:
                by_pod[pod].append(second)
        whole = np.array(at, dtype=np.int64)
        return whole, np.array(means), _pods(whole, [np.array(pod) for pod in by_pod.values()])

    def recent(self, service: str, cluster: str, first: int, end: int) -> float | None:
        """Mean utilisation over first <= second < end; None when no pod reported."""
        seconds = self._seconds.get((service, cluster), {})
        found = [value for s in range(first, end) for value in seconds.get(s, {}).values()]
        return sum(found) / len(found) if found else None


def _pods(at: Ints, readings: list[Ints]) -> Floats:
    """Number of pods in each of the seconds `at`, shape (n,).

    `readings`: for each pod, the seconds of its readings, ascending. A kubelet measures every ten
    seconds, each pod at its own time. A reading therefore stands until the pod's next reading. If
    that one is several intervals away, the reading stands for one interval only.
    """
    gaps = [np.diff(pod) for pod in readings]
    interval = float(np.median(np.concatenate(gaps))) if any(map(len, gaps)) else 1.0
    absent = max(_ABSENT_S, _ABSENT_INTERVALS * interval)
    found = np.zeros(len(at))
    for pod in readings:
        after = np.diff(pod, append=at[-1] + 1)
        last = np.searchsorted(pod, at, side="right") - 1
        found += (last >= 0) & (at - pod[last] < np.where(after <= absent, after, interval)[last])
    return found
