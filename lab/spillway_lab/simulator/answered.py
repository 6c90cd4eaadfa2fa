"""What callers would see of each destination, from how calls ended in the simulation. Pure.

The entries are those of the board that streams write for policies that route by feedback: 10 s,
quantiles of the calls that did not fail, and Little's law for requests in flight.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from spillway_lab.simulator.engine import FAILED, Answers
from spillway_lab.simulator.indices import Indices

_WINDOW_S = 10.0
_GROWTH = 1.04


class RouteBoards:
    """The boards of one run, look after look."""

    def __init__(self, indices: Indices) -> None:
        self._indices = indices
        self._looks: deque[tuple[float, Sequence[Answers]]] = deque()  # (its seconds, what ended)

    def add(self, seconds: float, answers: Sequence[Answers], at: float) -> dict[str, Any]:
        """Returns the boards by source cluster at Unix second `at`, the end of these seconds."""
        self._looks.append((seconds, answers))
        while sum(s for s, _ in self._looks) - self._looks[0][0] >= _WINDOW_S:
            self._looks.popleft()
        window_s = sum(s for s, _ in self._looks)
        sums: dict[tuple[int, int, int], dict[int, np.ndarray]] = {}
        for each in (answer for _, look in self._looks for answer in look):
            buckets = sums.setdefault((each.route, each.source, each.destination), {})
            buckets[each.bucket] = buckets.get(each.bucket, np.zeros(2)) + (each.calls, each.seconds)
        boards: dict[str, Any] = {}
        for (route, source, destination), buckets in sums.items():
            service, class_id = self._indices.routes[route]
            field = "\t".join((class_id, service, self._indices.clusters[destination]))
            entry = _entry(buckets, window_s, at)
            boards.setdefault(self._indices.clusters[source], {})[field] = entry
        return boards


def _entry(buckets: dict[int, np.ndarray], window_s: float, at: float) -> dict[str, Any]:
    calls, seconds = np.sum(list(buckets.values()), axis=0)
    order = sorted(bucket for bucket in buckets if bucket != FAILED)
    good = np.array([buckets[bucket][0] for bucket in order])
    p50_ms, p99_ms = (_quantile_ms(order, good, q) for q in (0.5, 0.99))
    return {
        "at": at, "rps": float(calls / window_s), "success_rate": float(good.sum() / calls), "p50_ms": p50_ms,
        "p99_ms": p99_ms, "in_flight": float(seconds / window_s),
    }  # fmt: skip


def _quantile_ms(order: list[int], calls: np.ndarray, q: float) -> float | None:
    if not order:
        return None
    place = int(np.searchsorted(np.cumsum(calls), q * calls.sum()))
    return float(2 * _GROWTH ** order[min(place, len(order) - 1)] / (1 + _GROWTH) / 1000)
