"""The boards that streams would write, from what happened in the simulation. Pure.

Load and demand are means over the last seconds, and network times over the last half minute, as in
streams. A pair of clusters without calls keeps its last network time, which becomes older.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from spillway_lab.simulator.engine import Counts, Ended
from spillway_lab.simulator.indices import Indices
from spillway_lab.simulator.world import World

BOARD_S = 5.0  # SPILLWAY_STREAMS_BOARD_WINDOW_S
_NETWORK_S = 30.0  # SPILLWAY_STREAMS_GRAPH_WINDOW_S
_MS = 1000.0


@dataclass(frozen=True)
class Period:
    """What servers and proxies saw between two looks, in which nothing in the world changed."""

    seconds: float
    arrived: np.ndarray  # [class, cluster], at servers
    served: np.ndarray
    failed: np.ndarray
    hits: np.ndarray  # of the served, those whose key was cached
    exclusive_ms: np.ndarray  # of the served, summed: their own time, and the delay of their answers
    asked: np.ndarray  # [class, cluster], by users
    ended: np.ndarray  # by users' requests that ended, well or not
    good: np.ndarray
    duration_ms: np.ndarray  # of the good, summed
    calls: np.ndarray  # [from, to]
    network_ms: np.ndarray  # of the calls, summed


def period(world: World, counts: Counts, ended: Ended) -> Period:
    """Returns the period that ends now. Nothing has happened yet to the world that it was in."""
    index, good = world.indices, ended.ok
    kinds = np.array([index.classes.index(r.class_id) for r in index.scenario.document.requests])
    delay_ms = np.array(
        [
            [world.delay_ms[service, c] * world.delay_share[service, c] for c in index.clusters]
            for service, _ in index.endpoints()
        ]
    )
    place = kinds[ended.kind], ended.cluster
    well = place[0][good], place[1][good]
    calls = counts.calls.sum(axis=0)
    return Period(
        seconds=counts.seconds,
        arrived=counts.arrived,
        served=counts.served,
        failed=counts.failed,
        hits=counts.hits,
        exclusive_ms=counts.own_s * _MS + counts.served * delay_ms,
        asked=np.where(np.isin(np.arange(len(index.classes)), kinds)[:, None], counts.arrived, 0.0),
        ended=_sums(place, np.ones(len(good)), counts.arrived.shape),
        good=_sums(well, np.ones(int(good.sum())), counts.arrived.shape),
        duration_ms=_sums(well, ended.latency_ms[good], counts.arrived.shape),
        calls=calls,
        network_ms=calls * np.where(calls > 0, world.rtt_ms, 0.0),
    )


def _sums(place: tuple[np.ndarray, np.ndarray], values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    found = np.zeros(shape)
    np.add.at(found, place, values)
    return found


class Boards:
    """The boards of one run, period after period."""

    def __init__(self, indices: Indices) -> None:
        self._indices = indices
        self._periods: deque[Period] = deque()
        self._network: dict[str, dict[str, Any]] = {}

    def add(self, period: Period, at: float) -> dict[str, Any]:
        """Returns load, demand and network at Unix second `at`, the end of the period.

        There is no entry where nothing arrived.
        """
        self._periods.append(period)
        while sum(p.seconds for p in self._periods) - self._periods[0].seconds >= _NETWORK_S:
            self._periods.popleft()
        self._network |= self._network_times(at)
        now = _summed(_newest(self._periods, BOARD_S))
        return {
            "load": self._board(now.arrived, lambda k, c: _load(now, k, c, at)),
            "demand": self._board(now.asked, lambda k, c: _demand(now, k, c, at)),
            "network": dict(self._network),
        }

    def _board(self, arrived: np.ndarray, entry: Any) -> dict[str, Any]:
        index = self._indices
        return {
            cluster: {name: entry(k, c) for k, name in enumerate(index.classes) if arrived[k, c]}
            for c, cluster in enumerate(index.clusters)
        }

    def _network_times(self, at: float) -> dict[str, dict[str, Any]]:
        all_, clusters = _summed(self._periods), self._indices.clusters
        return {
            f"{clusters[i]}>{clusters[j]}": {
                "at": at,
                "mean_ms": float(all_.network_ms[i, j] / all_.calls[i, j]),
                "samples": int(all_.calls[i, j]),
            }
            for i, j in zip(*np.nonzero(all_.calls), strict=True)
        }


def _load(now: Period, k: int, c: int, at: float) -> dict[str, Any]:
    own_ms = _mean(now.exclusive_ms[k, c], now.served[k, c])
    return {
        "at": at, "rps": float(now.arrived[k, c] / now.seconds),
        "failed_share": min(_mean(now.failed[k, c], now.arrived[k, c]), 1.0),
        "duration_ms": own_ms, "exclusive_ms": own_ms, "in_flight": 0.0, "cpu": None,
    }  # fmt: skip


def _demand(now: Period, k: int, c: int, at: float) -> dict[str, Any]:
    return {
        "at": at, "rps": float(now.asked[k, c] / now.seconds),
        "failed_share": 1.0 - _mean(now.good[k, c], now.ended[k, c], 1.0),
        "duration_ms": _mean(now.duration_ms[k, c], now.good[k, c]),
    }  # fmt: skip


def _mean(total: float, count: float, without: float = 0.0) -> float:
    return float(total / count) if count else without


def _newest(periods: Iterable[Period], seconds: float) -> list[Period]:
    """Returns the newest periods that are together at least this long, or all."""
    found: list[Period] = []
    for each in reversed(list(periods)):
        if sum(p.seconds for p in found) >= seconds:
            break
        found.append(each)
    return found


def _summed(periods: Iterable[Period]) -> Period:
    columns = zip(*(vars(p).values() for p in periods), strict=True)
    return Period(*(sum(column) for column in columns))
