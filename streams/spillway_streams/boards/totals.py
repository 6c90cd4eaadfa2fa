"""Requests by the proxies' own counters: totals that each Envoy sends every second. Pure.

Counters are cumulative, so the next message makes up for a lost one, and zero is a value rather
than an absence. They are placed in log time: only the broker's clock is trusted. The number of
spans, and the number of requests that a span claims to stand for, do not affect them.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import NumberDataPoint
from spillway_contracts import names

from spillway_streams.batches.arrays import Floats
from spillway_streams.batches.marks import MAX_CLUSTERS
from spillway_streams.boards import changes
from spillway_streams.boards.envoy import Counts, Envoy, Report, Series
from spillway_streams.load.attributes import CLUSTER, PayloadError, attributes_of, text
from spillway_streams.process.counters import Counters

SILENT_S = 5.0  # seconds of log time after which an Envoy's totals count as stopped
_FORGET_S = 3600.0  # a silent Envoy is forgotten after this time where no placement is known


def decode(payload: bytes, counters: Counters, cluster: str | None = None) -> list[Report]:
    """Returns the totals of one ExportMetricsServiceRequest. Other metrics are skipped.

    `cluster`: the cluster that all reports belong to. A resource that names another cluster is
    counted. None: each report belongs to the cluster that it names.

    Raises PayloadError when the payload does not decode. Reports that lack cluster, service or
    instance, and points that are not a cumulative count, are counted by reason.
    """
    try:
        request = ExportMetricsServiceRequest.FromString(payload)
    except DecodeError as error:
        raise PayloadError(f"not an ExportMetricsServiceRequest: {error}") from error
    reports = []
    for resource_metrics in request.resource_metrics:
        metrics = [metric for scope in resource_metrics.scope_metrics for metric in scope.metrics]
        # The count of spans is present even before the first request.
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
        # Collectors put what several reports of an Envoy say about the same resource into one.
        by_time: dict[int, list[tuple[str, NumberDataPoint]]] = defaultdict(list)
        for metric in metrics:
            for point in metric.sum.data_points:
                by_time[point.time_unix_nano].append((metric.name, point))
        for sent_ns, points in sorted(by_time.items()) or [(0, [])]:
            began_ns = max((point.start_time_unix_nano for _, point in points), default=0)
            counts: dict[Series, int] = {}
            for name, point in points:
                if name == names.OTEL_METRIC_REQUESTS:
                    _count(counts, point, began_ns, counters)
            reports.append(Report(*identity, sent_ns, began_ns, counts))
    return reports


def _count(counts: dict[Series, int], point: NumberDataPoint, began_ns: int, counters: Counters) -> None:
    if point.WhichOneof("value") != "as_int" or point.as_int < 0 or point.start_time_unix_nano != began_ns:
        counters.add("rejected_totals: no cumulative count")
        return
    of = attributes_of(point.attributes)
    series = text(of, names.SPAN_ATTRIBUTE_CLASS), of.get(names.SPAN_ATTRIBUTE_ENTRY) is True
    counts[series] = counts.get(series, 0) + point.as_int


@dataclass(frozen=True)
class Counted:
    """Requests per second of one service in one cluster, at log time `at`.

    `missing`: '' or the reason why the counters are incomplete. If they are, `rates` are those of
    the last time when they were complete. If they never were, `rates` is empty and `at` is 0.
    `going`: total rate of the Envoys that still send, infinite while it is unknown.

    Rates are those since their last change (changes.py), and means over the whole window where
    there was none. `whole`: total over the whole window. `before`: over the window before it, as
    far as it is known. `has_changed`: whether a rate covers less than the window.
    """

    at: float
    rates: dict[Series, float]
    missing: str = ""
    going: float = 0.0
    whole: float = 0.0
    before: float = 0.0
    has_changed: bool = False

    @property
    def total(self) -> float:
        return sum(self.rates.values())

    @property
    def most(self) -> float:
        """The highest total of the last two windows."""
        return max(self.total, self.whole, self.before)

    def by_class(self, entries_only: bool) -> dict[str, float]:
        """Returns the rates by class id; `entries_only`: of callers outside the mesh only."""
        found: dict[str, float] = defaultdict(float)
        for (class_id, is_entry), rate in self.rates.items():
            if is_entry or not entries_only:
                found[class_id] += rate
        return dict(found)


class TotalsTable:
    """The newest seconds of at most `max_envoys` Envoys of each cluster.

    In a cluster with more Envoys, the service with the most Envoys loses the one that has been
    silent for longest.
    """

    def __init__(self, seconds: int, max_envoys: int, max_series: int, counters: Counters) -> None:
        """seconds: length of the window of a rate; max_series: bound on classes of one Envoy."""
        self._seconds, self._max_envoys, self._max_series = seconds, max_envoys, max_series
        self._ages = changes.ages_s(seconds)
        self._counters = counters
        self._envoys: dict[tuple[str, str], dict[str, Envoy]] = {}
        self._sizes: dict[str, int] = {}  # Envoys by cluster
        self._whole: dict[tuple[str, str], Counted] = {}  # the last complete one
        # When the rate of a series last changed, in log time
        self._changed_at: dict[tuple[str, str], dict[Series, float]] = {}

    def add(self, reports: Iterable[Report], taken: float) -> bool:
        """Adds reports that the broker took at Unix second `taken`.

        Returns whether one of them came early, which means that a load has changed.
        """
        is_early = False
        for report in reports:
            place, counts = (report.cluster, report.service), self._bounded(report.counts)
            if known := self._envoys.get(place, {}).get(report.instance):
                is_early |= known.take(report, counts, taken)
            elif self._makes_room(report.cluster):
                envoy = Envoy.first(report, counts, taken, self._counters)
                self._envoys.setdefault(place, {})[report.instance] = envoy
                self._sizes[report.cluster] = self._sizes.get(report.cluster, 0) + 1
        return is_early

    def _bounded(self, counts: Counts) -> Counts:
        if len(counts) <= self._max_series:
            return counts
        self._counters.add("beyond_memory: totals: classes", len(counts) - self._max_series)
        return dict(sorted(counts.items(), key=lambda item: -item[1])[: self._max_series])

    def _makes_room(self, cluster: str) -> bool:
        """Drops an Envoy of a full cluster. Returns False if there is no room for a new cluster."""
        if cluster not in self._sizes and len(self._sizes) >= MAX_CLUSTERS:
            self._counters.add("beyond_memory: totals: clusters")
            return False
        if self._sizes.get(cluster, 0) >= self._max_envoys:
            self._counters.add("beyond_memory: totals: Envoys")
            place = max((p for p in self._envoys if p[0] == cluster), key=lambda p: len(self._envoys[p]))
            envoys = self._envoys[place]
            self._remove(place, min(envoys, key=lambda name: envoys[name].reported_at))
        return True

    def _remove(self, place: tuple[str, str], name: str) -> None:
        del self._envoys[place][name]
        self._sizes[place[0]] -= 1
        if not self._sizes[place[0]]:
            del self._sizes[place[0]]
        if not self._envoys[place]:
            del self._envoys[place]
            self._whole.pop(place, None)
            self._changed_at.pop(place, None)

    def __contains__(self, place: tuple[str, str]) -> bool:
        return place in self._envoys

    def services(self) -> list[tuple[str, str]]:
        """Returns each (cluster, service) that has totals."""
        return list(self._envoys)

    @property
    def seconds(self) -> int:
        """Number of seconds that a rate covers."""
        return self._seconds

    def counted(self, cluster: str, service: str, now: float, connected: int | None) -> Counted | None:
        """Returns the rates over the last seconds that all Envoys of the service reported.

        `connected`: number of Envoys that exist, whichever they are. None: the number is unknown,
        and silent Envoys are assumed to exist still. `now`: Unix seconds. Returns None when there
        are no Envoys, or when they have not sent for long enough yet.
        """
        place = cluster, service
        envoys = self._envoys.get(place)
        if not envoys:
            return None
        going = [envoy for envoy in envoys.values() if now - envoy.reported_at <= SILENT_S]
        expected = self._still_there(place, now) if connected is None else connected
        if (gone := len(envoys) - max(expected, len(going))) > 0:
            self._drop(place, gone)
        found, before = self._sum(place, going), self._whole.get(place)
        if len(going) < expected:
            rates = before or Counted(0.0, {})
            reason = _missing(len(going), expected, [now - envoy.reported_at for envoy in envoys.values()])
            known = found.whole if found else math.inf if going else 0.0
            return replace(rates, missing=reason, going=known, has_changed=False)
        if found:
            self._whole[place] = found
        return found

    def _still_there(self, place: tuple[str, str], now: float) -> int:
        return sum(now - envoy.reported_at <= SILENT_S + _FORGET_S for envoy in self._envoys[place].values())

    def _drop(self, place: tuple[str, str], n: int) -> None:
        """Forgets the n Envoys that have been silent for longest."""
        envoys = self._envoys[place]
        for name in sorted(envoys, key=lambda name: envoys[name].reported_at)[:n]:
            self._remove(place, name)
            self._counters.add("totals_of_an_envoy_forgotten")

    def _sum(self, place: tuple[str, str], envoys: list[Envoy]) -> Counted | None:
        """Adds up the Envoys' rates; None if one is not known for long enough, or there is none.

        The seconds are those before each Envoy's own newest report, so that a change shows although
        the other Envoys have not reported since.
        """
        if not envoys or any(envoy.since > envoy.at - self._seconds for envoy in envoys):
            return None
        series, counts = self._counts(envoys)
        *_, whole, twice = counts.sum(axis=1).tolist()
        counts, ages, at = counts[:-1], self._ages[:-1], min(envoy.at for envoy in envoys)
        known = self._changed_at.get(place, {})
        spans = changes.unchanged_s(counts, ages, np.array([at - known.get(s, math.nan) for s in series]))
        self._changed_at[place] = {
            s: at - span for s, span in zip(series, spans.tolist(), strict=True) if span < self._seconds
        }
        found = counts[np.searchsorted(ages, spans), np.arange(len(series))] / spans
        return Counted(
            at,
            dict(zip(series, found.tolist(), strict=True)),
            whole=whole / self._seconds,
            before=(twice - whole) / self._seconds,
            has_changed=bool((spans < self._seconds).any()),
        )

    def _counts(self, envoys: list[Envoy]) -> tuple[list[Series], Floats]:
        """Returns the series, and their requests of the last `_ages` seconds.

        The shape is (ages, series).
        """
        numbers: dict[Series, int] = {}
        stretches: list[tuple[float, float]] = []
        rows, columns, grown = list[int](), list[int](), list[int]()
        for envoy in envoys:
            for series in envoy.counts:
                numbers.setdefault(series, len(numbers))
            for youngest, oldest, counts in envoy.recent(self._ages[-1]):
                for series, count in counts.items():
                    rows.append(len(stretches))
                    columns.append(numbers.setdefault(series, len(numbers)))
                    grown.append(count)
                stretches.append((youngest, oldest))
        sums = np.zeros((len(stretches), len(numbers)))
        np.add.at(sums, (rows, columns), grown)
        first, last = np.array(stretches).reshape(-1, 2).T
        shares = np.clip((self._ages[:, None] - first) / (last - first), 0.0, 1.0)
        return list(numbers), shares @ sums


def _missing(going: int, expected: int, ages: list[float]) -> str:
    """Returns the reason. `ages`: seconds since the newest report of each known Envoy."""
    of = f"counters of {expected - going} of {expected} Envoys"
    return f"{of} stopped {max(ages):.0f} s ago" if max(ages) > SILENT_S else f"{of} do not arrive"
