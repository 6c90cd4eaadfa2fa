"""CPU use that pods report: OTLP metrics -> rows of cpu_1s, and its memory. Pure."""

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from spillway_contracts import names

from spillway_streams.load.attributes import CLUSTER, EARLIEST_US, PayloadError, Value, attributes_of, text
from spillway_streams.process.counters import Counters

CPU_1S = ("at", "cluster", "service", "pod", "utilisation")
POD = "k8s.pod.name"
_ABSENT_S, _ABSENT_INTERVALS = 11, 3  # without a reading: the pod is gone


class Point(NamedTuple):
    """Share of the CPU limit that one pod used in one second (Unix seconds); CPU_1S order."""

    at: int
    cluster: str
    service: str
    pod: str
    utilisation: float


def decode(payload: bytes, counters: Counters, cluster: str | None = None) -> list[Point]:
    """CPU points of one ExportMetricsServiceRequest; other metrics are not ours and are passed over. `cluster`: all
    are of this cluster, and claims to be of another are counted; None: of the cluster that they name.

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
                    point = _point(raw, base | attributes_of(raw.attributes), counters, cluster)
                    if point:
                        points.append(point)
    return points


def _point(raw, attributes: dict[str, Value], counters: Counters, admitted: str | None) -> Point | None:
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
    elif raw.time_unix_nano >= 2**32 * 10**9:  # no DateTime: its row could never be stored
        counters.add("rejected_cpu: after the year 2105")
    elif not math.isfinite(value) or value < 0:
        counters.add("rejected_cpu: negative or not finite")
    else:
        return Point(raw.time_unix_nano // 1_000_000_000, cluster, service, pod, min(value, 1.0))
    return None


class CpuTable:
    """Mean utilisation per (service, cluster) and second, over the pods that reported. Beyond `max_keys` of these the
    one that has been silent for longest makes room."""

    def __init__(self, memory: int, max_keys: int = 5000) -> None:
        self._memory, self._max_keys = memory, max_keys
        self._seconds: dict[
            tuple[str, str], dict[int, dict[str, float]]
        ] = {}  # in order of their last points

    def add(self, points: Iterable[Point]) -> None:
        for point in points:
            key = point.service, point.cluster
            seconds = self._seconds[key] = self._seconds.pop(key, {})
            if len(self._seconds) > self._max_keys:
                del self._seconds[next(iter(self._seconds))]
            seconds.setdefault(point.at, {})[point.pod] = point.utilisation
            if len(seconds) > self._memory * 1.1:
                for second in sorted(seconds)[: -self._memory]:
                    del seconds[second]

    def series(self, service: str, cluster: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Seconds in order, int64 (n,); mean utilisation of the pods that reported then, and how many pods there
        are, float64 (n,)."""
        seconds = self._seconds.get((service, cluster), {})
        at = sorted(seconds)
        means = [sum(found.values()) / len(found) for found in (seconds[second] for second in at)]
        by_pod: dict[str, list[int]] = defaultdict(list)
        for second in at:
            for pod in seconds[second]:
                by_pod[pod].append(second)
        whole = np.array(at, dtype=np.int64)
        return whole, np.array(means), _pods(whole, [np.array(own) for own in by_pod.values()])

    def recent(self, service: str, cluster: str, first: int, end: int) -> float | None:
        """Mean over first <= second < end; None when no pod reported."""
        seconds = self._seconds.get((service, cluster), {})
        found = [value for s in range(first, end) for value in seconds.get(s, {}).values()]
        return sum(found) / len(found) if found else None


def _pods(at: np.ndarray, readings: list[np.ndarray]) -> np.ndarray:
    """How many pods there are in each of the seconds `at` (n,), from the seconds of each pod's readings. A kubelet
    measures every ten seconds, each pod at its own time: a reading stands until the pod's next one, if that is not
    several intervals away, else for one interval."""
    gaps = [np.diff(own) for own in readings]
    interval = float(np.median(np.concatenate(gaps))) if any(map(len, gaps)) else 1.0
    absent = max(_ABSENT_S, _ABSENT_INTERVALS * interval)
    found = np.zeros(len(at))
    for own in readings:
        after = np.diff(own, append=at[-1] + 1)
        last = np.searchsorted(own, at, side="right") - 1
        found += (last >= 0) & (at - own[last] < np.where(after <= absent, after, interval)[last])
    return found
