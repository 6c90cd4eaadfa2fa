"""The boards that Redis holds for seconds: load and demand of the calls that just ended. Pure.

A call is counted when it ends, so slow calls are not missing from the newest seconds. Proxies and
workers deliver what ended up to about a second before. The rate is therefore counted over whole
seconds that are at least `settle` old. Latency, failures and requests in flight are means, so they
include the running second. Each cluster's entries are as of its own time (event_times.py).
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from spillway_contracts.hot_state import DemandEntry, LoadBoardEntry

from spillway_streams.batches.arrays import Floats
from spillway_streams.batches.columns import Columns, length, take
from spillway_streams.batches.marks import Mark
from spillway_streams.batches.parts import fold
from spillway_streams.boards.event_times import EventTimes
from spillway_streams.boards.totals import TotalsTable
from spillway_streams.load.cpu import CpuTable
from spillway_streams.load.recent import Recent
from spillway_streams.process.counters import Counters

_SUMS = ("calls", "failed", "ok", "duration_ok_ms", "stamped", "in_flight", "samples")
_CALLS, _FAILED, _OK, _DURATION, _STAMPED, _IN_FLIGHT, _SAMPLES = range(7)
MAX_SERIES = 1000  # largest number of classes of one Envoy
ARRIVAL_COLUMNS = frozenset({"at", "newest_us", "cluster", "service", "class", "entry", *_SUMS})
Board = dict[str, dict[str, LoadBoardEntry]]
Demand = dict[str, dict[str, DemandEntry]]
Times = Mapping[str, float]  # cluster -> Unix seconds of its own time
Totals = dict[tuple[str, str, str, bool], Floats]  # (cluster, service, class, entry) -> _SUMS


class Came(NamedTuple):
    """What arrived of a service per second: spans, and the requests that these spans stand for."""

    spans: float
    requests: float


@dataclass(frozen=True)
class Window:
    """The whole seconds that a rate covers, and their minimum age in seconds."""

    seconds: int = 5
    settle: float = 1.0
    late: int = 60  # seconds that a cluster may lag behind the others

    @property
    def memory(self) -> int:
        return self.seconds + math.ceil(self.settle) + 2 + self.late


class HotTable:
    """Sums of one topic partition by the second in which calls ended, of `max_keys` classes."""

    def __init__(self, window: Window, max_keys: int, counters: Counters) -> None:
        self.window = window
        self.times = EventTimes(window.settle, counters)
        self.totals = TotalsTable(window.seconds, max_keys, MAX_SERIES, counters)
        self._recent = Recent("arrivals", len(_SUMS), window.memory, max_keys, counters)
        self._counters = counters

    def add(self, arrivals: Columns, taken: float, source: int = 0, mark: Mark | None = None) -> None:
        """Adds a batch (columns.ARRIVALS) of a source.

        `taken`: the Unix second at which the broker took it. Later ends are moved to `taken`: a
        clock that is ahead must not make all other clusters look old. `mark`: the mark of the
        batch, which states what it covers.
        """
        share = self.times.take(mark) if mark else 1.0
        sums = [arrivals[name] for name in _SUMS]
        good = np.logical_and.reduce(
            [np.isfinite(column) & (column >= 0) for column in (*sums, arrivals["at"])]
        )
        if not good.all():
            self._counters.add("absurd_arrivals", int((~good).sum()))
            arrivals = take(arrivals, good)
        if not length(arrivals) or not share:
            return
        if not mark:
            self.times.take_unmarked(source, taken, newest_ends(arrivals))
        ahead = arrivals["at"] > int(taken)
        self._counters.add("arrivals_ahead_of_the_broker", int(ahead.sum()))
        at = np.where(ahead, int(taken), arrivals["at"])
        by = (arrivals["cluster"], arrivals["service"], arrivals["class"], arrivals["entry"])
        self._recent.add(fold(at, by, [share * arrivals[name] for name in _SUMS]))

    def due(self) -> dict[str, float]:
        """Returns cluster -> time up to which it is known, for clusters with a complete window."""
        complete, _ = self.times.complete_from()
        found = {cluster: self.times.at(cluster) for cluster in self.times.clusters()}
        return {
            cluster: at for cluster, at in found.items() if at is not None and self._begin(at) >= complete
        }

    def _begin(self, at: float) -> int:
        return math.floor(at - self.window.settle) - self.window.seconds

    def means(self, times: Times) -> Totals:
        """Returns the sums over each cluster's window and its running second."""
        seconds = {cluster: math.floor(at) for cluster, at in times.items()}
        return self._totals({cluster: (at - self.window.seconds, at + 1) for cluster, at in seconds.items()})

    def counts(self, times: Times) -> Totals:
        """Returns the sums over the whole seconds that a rate is taken from."""
        begins = {cluster: self._begin(at) for cluster, at in times.items()}
        return self._totals({cluster: (at, at + self.window.seconds) for cluster, at in begins.items()})

    def came(self, times: Times) -> dict[tuple[str, str], Came]:
        """Returns what arrived per second, by (cluster, service)."""
        found: dict[tuple[str, str], Came] = {}
        for (cluster, service, *_), row in self.counts(times).items():
            spans, requests = found.get((cluster, service), (0.0, 0.0))
            found[cluster, service] = Came(
                spans + float(row[_SAMPLES]) / self.window.seconds,
                requests + float(row[_CALLS]) / self.window.seconds,
            )
        return found

    def _totals(self, spans: Mapping[str, tuple[int, int]]) -> Totals:
        """Returns the sums over the seconds first <= s < end that are given for each cluster."""
        clusters: dict[tuple[int, int], set[str]] = defaultdict(set)
        for cluster, span in spans.items():
            clusters[span].add(cluster)
        found: Totals = {}
        for (first, end), of in clusters.items():
            found |= {key: row for key, row in self._recent.total(first, end).items() if key[0] in of}
        return found


def newest_ends(arrivals: Columns) -> dict[str, float]:
    """Returns the newest end of a call by cluster (Unix seconds), from columns.ARRIVALS."""
    clusters = arrivals["cluster"]
    newest = np.full(len(clusters.values), -np.inf)
    np.maximum.at(newest, clusters.codes, arrivals["newest_us"] / 1e6)
    found = zip(clusters.values, newest.tolist(), strict=True)
    return {cluster: end for cluster, end in found if end > -math.inf}


def load_board(
    hot: HotTable, exclusive_ms: Mapping[tuple[str, str], float], cpu: CpuTable, times: Times
) -> Board:
    """Returns cluster -> class -> entry as of the cluster's time. Silent classes are left out.

    `exclusive_ms`: (cluster, class) -> mean exclusive time. It is known once traces are complete,
    so it is a few seconds older. Before the first trace of a class, the whole duration stands in
    for it: the exclusive time cannot be longer.
    """
    found = hot.means(times)
    services = {(cluster, class_id): service for cluster, service, class_id, _ in found}
    rates = _by_class(hot.counts(times))
    seconds = hot.window.seconds
    board: Board = {}
    for (cluster, class_id), sums in _by_class(found).items():
        duration_ms, at = _mean(sums[_DURATION], sums[_OK]), times[cluster]
        second = math.floor(at)
        board.setdefault(cluster, {})[class_id] = LoadBoardEntry(
            at=at,
            rps=_rate(rates, (cluster, class_id), seconds),
            failed_share=_mean(sums[_FAILED], sums[_CALLS]),
            duration_ms=duration_ms,
            exclusive_ms=exclusive_ms.get((cluster, class_id), duration_ms),
            in_flight=_mean(sums[_IN_FLIGHT], sums[_STAMPED]),
            cpu=cpu.recent(services[cluster, class_id], cluster, second - seconds, second + seconds),
        )
    return board


def demand_board(hot: HotTable, times: Times) -> Demand:
    """Returns cluster -> class -> demand as of the cluster's time.

    Demand is calls whose caller is not a service of the mesh.
    """
    rates = _by_class(hot.counts(times), entries_only=True)
    board: Demand = {}
    for (cluster, class_id), sums in _by_class(hot.means(times), entries_only=True).items():
        board.setdefault(cluster, {})[class_id] = DemandEntry(
            at=times[cluster],
            rps=_rate(rates, (cluster, class_id), hot.window.seconds),
            failed_share=_mean(sums[_FAILED], sums[_CALLS]),
            duration_ms=_mean(sums[_DURATION], sums[_OK]),
        )
    return board


def arrivals_of(calls: Columns) -> Columns:
    """Returns columns.ARRIVALS of finished calls, one row for each call.

    `exclusive` sums calls in the same way before their traces are complete.
    """
    end_us = calls["started_at"] + calls["duration_us"]
    weight, good = calls["adjusted_count"], np.where(calls["failed"], 0.0, calls["adjusted_count"])
    stamped = np.where(calls["in_flight"] > 0, weight, 0.0)
    class_weight = np.where(calls["class_in_flight"] > 0, weight, 0.0)
    return {
        "at": end_us // 1_000_000, "newest_us": end_us, "cluster": calls["cluster"], "service": calls["service"],
        "class": calls["class"], "entry": calls["source_service"] == "", "calls": weight, "failed": weight - good,
        "ok": good, "duration_ok_ms": good * calls["duration_us"] / 1000, "stamped": stamped,
        "in_flight": stamped * calls["in_flight"], "rate": stamped * calls["arrival_rate"], "class_stamped": class_weight,
        "class_in_flight": class_weight * calls["class_in_flight"], "class_rate": class_weight * calls["class_arrival_rate"],
        "samples": np.ones(len(weight)),
    }  # fmt: skip


def _by_class(found: Totals, entries_only: bool = False) -> dict[tuple[str, str], Floats]:
    sums: dict[tuple[str, str], Floats] = {}
    for (cluster, _, class_id, entry), row in found.items():
        if entry or not entries_only:
            sums[cluster, class_id] = sums[cluster, class_id] + row if (cluster, class_id) in sums else row
    return {name: row for name, row in sums.items() if row[_CALLS] > 0}


def _rate(counts: Mapping[tuple[str, str], Floats], name: tuple[str, str], seconds: int) -> float:
    return float(counts[name][_CALLS]) / seconds if name in counts else 0.0


def _mean(total: float, count: float) -> float:
    return float(total / count) if count > 0 else 0.0
