"""Requests as the proxies' own counters have them: totals that each Envoy sends every second. Pure.

Counters are cumulative, so a lost message is in the next one, and zero is a figure, not an absence. They are placed in
log time: no clock but the broker's is believed. How many spans there are, and what one of them claims to stand for,
changes none of them.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from spillway_contracts import names

from spillway_streams.batches.marks import MAX_CLUSTERS
from spillway_streams.boards.envoy import Counts, Envoy, Report, Series
from spillway_streams.load.attributes import CLUSTER, PayloadError, attributes_of, text
from spillway_streams.process.counters import Counters

SILENT_S = 5.0  # of log time: an Envoy's totals have stopped
_FORGET_S = 3600.0  # after that an Envoy that is silent is forgotten where no placement is known


def decode(payload: bytes, counters: Counters, cluster: str | None = None) -> list[Report]:
    """Totals of one ExportMetricsServiceRequest; other metrics are passed over. Raises PayloadError when it does not
    decode. `cluster`: all are of this cluster, and claims to be of another are counted; None: of the cluster that they
    name. Reports without identity, and points that are no cumulative count, are counted by reason."""
    try:
        request = ExportMetricsServiceRequest.FromString(payload)
    except DecodeError as error:
        raise PayloadError(f"not an ExportMetricsServiceRequest: {error}") from error
    reports = []
    for resource_metrics in request.resource_metrics:
        metrics = [metric for scope in resource_metrics.scope_metrics for metric in scope.metrics]
        # The account of spans is there also before the first request.
        if not any(
            metric.name in (names.OTEL_METRIC_REQUESTS, names.OTEL_METRIC_SPANS) for metric in metrics
        ):
            continue
        of = attributes_of(resource_metrics.resource.attributes)
        identity = (
            cluster or text(of, *CLUSTER),
            text(of, names.SPAN_ATTRIBUTE_SERVICE),
            text(of, names.OTEL_ATTRIBUTE_INSTANCE),
        )
        if cluster and of.get(names.SPAN_ATTRIBUTE_CLUSTER, cluster) != cluster:
            counters.add(f"claims_overridden: {cluster}")
        if not all(identity):
            counters.add("rejected_totals: cluster, service or instance is absent")
            continue
        points = [(metric.name, point) for metric in metrics for point in metric.sum.data_points]
        sent_ns = max((point.time_unix_nano for _, point in points), default=0)
        began_ns = max((point.start_time_unix_nano for _, point in points), default=0)
        counts: dict[Series, int] = {}
        for name, point in points:
            if name == names.OTEL_METRIC_REQUESTS:
                _count(counts, point, began_ns, counters)
        reports.append(Report(*identity, sent_ns, began_ns, counts))
    return reports


def _count(counts: dict[Series, int], point, began_ns: int, counters: Counters) -> None:
    if point.WhichOneof("value") != "as_int" or point.as_int < 0 or point.start_time_unix_nano != began_ns:
        counters.add("rejected_totals: no cumulative count")
        return
    of = attributes_of(point.attributes)
    series = text(of, names.SPAN_ATTRIBUTE_CLASS), of.get(names.SPAN_ATTRIBUTE_ENTRY) is True
    counts[series] = counts.get(series, 0) + point.as_int


@dataclass(frozen=True)
class Counted:
    """Requests per second of one service in one cluster, as of log time `at`. `missing`: '' or why it is not whole;
    `rates` are then those of when it last was, none where it never was (`at` is 0), and `going` is the sum of what the
    Envoys that go on have (infinite while it is not known)."""

    at: float
    rates: dict[Series, float]
    missing: str = ""
    going: float = 0.0

    @property
    def total(self) -> float:
        return sum(self.rates.values())

    def by_class(self, entries_only: bool) -> dict[str, float]:
        found: dict[str, float] = defaultdict(float)
        for (class_id, is_entry), rate in self.rates.items():
            if is_entry or not entries_only:
                found[class_id] += rate
        return dict(found)


class TotalsTable:
    """The newest seconds of at most `max_envoys` Envoys of each cluster. In a cluster with more, the service that has the
    most makes room, by the one of its Envoys that is silent for longest."""

    def __init__(self, seconds: int, max_envoys: int, max_series: int, counters: Counters) -> None:
        """seconds: that a rate covers; max_series: of one Envoy."""
        self._seconds, self._max_envoys, self._max_series = seconds, max_envoys, max_series
        self._counters = counters
        self._envoys: dict[tuple[str, str], dict[str, Envoy]] = {}
        self._sizes: dict[str, int] = {}  # Envoys by cluster
        self._whole: dict[tuple[str, str], Counted] = {}  # the last one

    def add(self, reports: Iterable[Report], taken: float) -> None:
        """Takes what the broker took at Unix second `taken`."""
        for report in reports:
            place, counts = (report.cluster, report.service), self._bounded(report.counts)
            if known := self._envoys.get(place, {}).get(report.instance):
                known.take(report, counts, taken)
            elif self._makes_room(report.cluster):
                envoy = Envoy.first(report, counts, taken, self._counters)
                self._envoys.setdefault(place, {})[report.instance] = envoy
                self._sizes[report.cluster] = self._sizes.get(report.cluster, 0) + 1

    def _bounded(self, counts: Counts) -> Counts:
        if len(counts) <= self._max_series:
            return counts
        self._counters.add("beyond_memory: totals: classes", len(counts) - self._max_series)
        return dict(sorted(counts.items(), key=lambda item: -item[1])[: self._max_series])

    def _makes_room(self, cluster: str) -> bool:
        """False: for a further cluster there is none."""
        if cluster not in self._sizes and len(self._sizes) >= MAX_CLUSTERS:
            self._counters.add("beyond_memory: totals: clusters")
            return False
        if self._sizes.get(cluster, 0) >= self._max_envoys:
            self._counters.add("beyond_memory: totals: Envoys")
            place = max((p for p in self._envoys if p[0] == cluster), key=lambda p: len(self._envoys[p]))
            envoys = self._envoys[place]
            self._remove(place, min(envoys, key=lambda name: envoys[name].heard))
        return True

    def _remove(self, place: tuple[str, str], name: str) -> None:
        del self._envoys[place][name]
        self._sizes[place[0]] -= 1
        if not self._sizes[place[0]]:
            del self._sizes[place[0]]
        if not self._envoys[place]:
            del self._envoys[place]
            self._whole.pop(place, None)

    def __contains__(self, place: tuple[str, str]) -> bool:
        return place in self._envoys

    def services(self) -> list[tuple[str, str]]:
        """(cluster, service) of which there are totals."""
        return list(self._envoys)

    @property
    def seconds(self) -> int:
        """That a rate covers."""
        return self._seconds

    def counted(self, cluster: str, service: str, now: float, connected: int | None) -> Counted | None:
        """Rates over the last whole seconds that all Envoys of the service have reported; None when they have not sent
        for long enough yet, or there are none of these. connected: as many Envoys there are, whichever they are; None:
        that is not known, and the silent ones are taken for still there. now: Unix seconds."""
        place = cluster, service
        envoys = self._envoys.get(place)
        if not envoys:
            return None
        going = [envoy for envoy in envoys.values() if now - envoy.heard <= SILENT_S]
        expected = self._still_there(place, now) if connected is None else connected
        if (gone := len(envoys) - max(expected, len(going))) > 0:
            self._drop(place, gone)
        found, before = self._sum(going), self._whole.get(place)
        if len(going) < expected:
            rates = before or Counted(0.0, {})
            reason = _missing(len(going), expected, [now - envoy.heard for envoy in envoys.values()])
            known = found.total if found else math.inf if going else 0.0
            return replace(rates, missing=reason, going=known)
        if found:
            self._whole[place] = found
        return found

    def _still_there(self, place: tuple[str, str], now: float) -> int:
        return sum(now - envoy.heard <= SILENT_S + _FORGET_S for envoy in self._envoys[place].values())

    def _drop(self, place: tuple[str, str], n: int) -> None:
        """Forgets the n Envoys that are silent for longest."""
        envoys = self._envoys[place]
        for name in sorted(envoys, key=lambda name: envoys[name].heard)[:n]:
            self._remove(place, name)
            self._counters.add("totals_of_an_envoy_forgotten")

    def _sum(self, envoys: list[Envoy]) -> Counted | None:
        """None when one of them is not known for long enough, or there is none."""
        at = min((envoy.at for envoy in envoys), default=0.0)
        first, end = math.floor(at) - self._seconds, math.floor(at)
        if not envoys or any(envoy.since > first for envoy in envoys):
            return None
        rates: dict[Series, float] = defaultdict(float)
        for envoy in envoys:
            rates |= {series: rates[series] for series in envoy.counts}
            for series, count in envoy.total(first, end).items():
                rates[series] += count / self._seconds
        return Counted(at, dict(rates))


def _missing(going: int, expected: int, ages: list[float]) -> str:
    """ages: seconds since the newest report of each Envoy that is known."""
    of = f"counters of {expected - going} of {expected} Envoys"
    return f"{of} stopped {max(ages):.0f} s ago" if max(ages) > SILENT_S else f"{of} do not come"
