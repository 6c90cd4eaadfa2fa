"""What callers saw of each destination over the last seconds: rate, success, latency, load. Pure.

This is the input of policies that route by feedback (L3, section 4). A call counts in the second
in which it ended, as the caller measured it. Quantiles are of calls that did not fail, within 2 %
(network.py). Requests in flight follow from Little's law, rate times mean duration, so a call that
hangs is not among them before it ends.
"""

from collections import defaultdict

import numpy as np
from spillway_contracts.hot_state import RouteEntry

from spillway_streams.batches.arrays import Floats
from spillway_streams.batches.columns import Columns, length, take
from spillway_streams.batches.parts import Parts, fold
from spillway_streams.graph import network
from spillway_streams.load.recent import Recent
from spillway_streams.process.counters import Counters

WINDOW_S = 10  # what L3 queries
COLUMNS = frozenset({
    "started_at", "source_cluster", "source_service", "class", "destination_cluster", "duration_us", "failed",
    "adjusted_count",
})  # fmt: skip
_BUCKETS = 600  # of 4 % each, from a microsecond to more than an hour
_FAILED = -1  # the bucket of failed calls, which have no latency
Board = dict[str, dict[tuple[str, str, str], RouteEntry]]


def parts(edges: Columns) -> Parts:
    """Returns calls and microseconds of a batch of edges, by second and bucket of duration."""
    if not length(edges):
        return fold(np.empty(0, np.int64), (), (np.empty(0), np.empty(0)))
    known = take(edges, ~(edges["source_service"] == ""))
    bucket = np.where(known["failed"], _FAILED, network.bucket_of(known["duration_us"]))
    by = (
        known["source_cluster"], known["source_service"], known["class"], known["destination_cluster"], bucket,
    )  # fmt: skip
    weight = known["adjusted_count"]
    end = (known["started_at"] + known["duration_us"]) // 1_000_000
    return fold(end, by, (weight, weight * known["duration_us"]))


class Outcomes:
    """Sums of the last seconds, of `max_keys` routes at least.

    A route whose buckets had no room would look faster than it is, and as if nothing failed.
    """

    def __init__(self, memory_s: int, max_keys: int, counters: Counters) -> None:
        self._recent = Recent("outcomes", 2, WINDOW_S + memory_s, max_keys * _BUCKETS, counters)

    def add(self, found: Parts) -> None:
        self._recent.add(found)

    def board(self, end: int) -> Board:
        """Returns the window that ends before second `end`.

        By source cluster, then by (class, source service, destination cluster).
        """
        routes: dict[tuple[str, str, str, str], dict[int, Floats]] = defaultdict(dict)
        for (*route, bucket), sums in self._recent.total(end - WINDOW_S, end).items():
            routes[tuple(route)][bucket] = sums
        board: Board = {}
        for (source, service, class_id, destination), buckets in routes.items():
            entry = _entry(buckets, end)
            if entry is not None:
                board.setdefault(source, {})[class_id, service, destination] = entry
        return board


def _entry(buckets: dict[int, Floats], end: int) -> RouteEntry | None:
    calls, time_us = (float(value) for value in np.sum(list(buckets.values()), axis=0))
    if calls <= 0:
        return None
    good = {bucket: sums for bucket, sums in buckets.items() if bucket != _FAILED and sums[0] > 0}
    _, p50_ms, p99_ms, _ = network.summary(good) if good else (0.0, None, None, 0)
    return RouteEntry(
        at=float(end),
        rps=calls / WINDOW_S,
        success_rate=sum(float(sums[0]) for sums in good.values()) / calls,
        p50_ms=p50_ms,
        p99_ms=p99_ms,
        in_flight=time_us / 1e6 / WINDOW_S,
    )
