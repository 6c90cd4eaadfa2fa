"""Calls per second: the table that load boards, capacities and curves are computed from. Pure.

Everything downstream is a function of this table, so neither the order in which calls arrive nor
how they are split into batches changes a result.
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from spillway_streams.columns import Columns
from spillway_streams.counters import Counters


class Key(NamedTuple):
    service: str
    class_id: str
    cluster: str


class Sum(IntEnum):
    """What is summed per second and key; counts are adjusted for sampling unless said otherwise."""

    ARRIVALS = 0
    FAILED = 1
    SAMPLES = 2  # spans of calls that did not fail, not adjusted
    OK = 3
    DURATION = 4  # ms, of all calls
    DURATION_OK = 5  # ms, of calls that did not fail; the next two likewise
    EXCLUSIVE = 6
    EXCLUSIVE_SQUARED = 7
    STAMPED = 8  # calls that carry the load at their arrival
    IN_FLIGHT = 9
    RATE = 10


LOAD_1S = (
    "at", "cluster", "service", "class", "arrivals", "failed", "duration_ms", "exclusive_ms", "in_flight",
    "service_rate",
)  # fmt: skip


def ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """numerator / denominator, 0 where the denominator is."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)


class Series:
    """Sums of one key by second; keeps the newest `memory` seconds that have data."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._index: dict[int, int] = {}
        self._at = np.zeros(64, dtype=np.int64)
        self._sums = np.zeros((64, len(Sum)))
        self.floor = np.iinfo(np.int64).min  # older seconds have been forgotten

    def add(self, second: int, sums: np.ndarray) -> None:
        i = self._index.get(second)
        if i is None:
            i = self._grow(second)
        self._sums[i] += sums

    def _grow(self, second: int) -> int:
        i = len(self._index)
        if i == len(self._at):
            self._at = np.concatenate([self._at, np.zeros_like(self._at)])
            self._sums = np.concatenate([self._sums, np.zeros_like(self._sums)])
        self._index[second] = i
        self._at[i] = second
        self._sums[i] = 0
        return i

    def trim(self) -> None:
        """Forgets the oldest seconds, once a tenth too many are held."""
        if len(self._index) > self._memory * 1.1:
            at, sums = self.all()
            self.floor = int(at[-self._memory])
            kept = at >= self.floor
            self._at, self._sums = at[kept].copy(), sums[kept].copy()
            self._index = {int(second): i for i, second in enumerate(self._at)}

    def all(self) -> tuple[np.ndarray, np.ndarray]:
        """Seconds in order, int64 (n,), and their sums, float64 (n, len(Sum))."""
        n = len(self._index)
        order = np.argsort(self._at[:n])
        return self._at[:n][order], self._sums[:n][order]

    def between(self, first: int, end: int) -> np.ndarray:
        """Sums over the seconds first <= s < end, float64 (len(Sum),)."""
        rows = [self._index[s] for s in range(first, end) if s in self._index]
        return self._sums[rows].sum(axis=0)

    def at(self, seconds: Iterable[int]) -> np.ndarray:
        return self._sums[[self._index[second] for second in seconds]]


class LoadTable:
    """Series of every (service, class, cluster), and which seconds changed since they were stored."""

    def __init__(self, memory: int, counters: Counters) -> None:
        self.series: dict[Key, Series] = {}
        self._memory = memory
        self._counters = counters
        self._dirty: dict[Key, set[int]] = {}

    def add(self, calls: Columns) -> None:
        """Folds a batch of calls (columns.CALLS) into their seconds."""
        for key, second, sums in _per_second(calls):
            series = self._series(key)
            if second < series.floor:
                self._counters.add("calls_older_than_memory", int(sums[Sum.ARRIVALS]))
                continue
            series.add(second, sums)
            series.trim()
            self._dirty.setdefault(key, set()).add(second)

    def _series(self, key: Key) -> Series:
        if key not in self.series:
            self.series[key] = Series(self._memory)
        return self.series[key]

    def restore(self, rows: Iterable[tuple]) -> None:
        """Rows of load_1s (LOAD_1S order, `at` as Unix seconds) after a restart. How far samples
        spread within one second, and how many spans stood for the count, is not in that table."""
        for at, cluster, service, class_id, arrivals, failed, duration, exclusive, in_flight, rate in rows:
            good, stamped = arrivals - failed, arrivals if rate > 0 else 0.0
            sums = [
                arrivals, failed, good, good, duration * arrivals, duration * good, exclusive * good,
                exclusive * exclusive * good, stamped, in_flight * stamped, rate * stamped,
            ]  # fmt: skip
            self._series(Key(service, class_id, cluster)).add(int(at), np.array(sums))

    def take_dirty(self) -> tuple[list[list], dict[Key, set[int]]]:
        """Columns for load_1s of the seconds that changed, and these seconds by key."""
        dirty, self._dirty = self._dirty, {}
        columns: list[list] = [[] for _ in LOAD_1S]
        for key, seconds in dirty.items():
            kept = sorted(second for second in seconds if second >= self.series[key].floor)
            sums = self.series[key].at(kept)
            stamped = sums[:, Sum.STAMPED]
            values = (
                kept, [key.cluster] * len(kept), [key.service] * len(kept), [key.class_id] * len(kept),
                sums[:, Sum.ARRIVALS].tolist(), sums[:, Sum.FAILED].tolist(),
                ratio(sums[:, Sum.DURATION], sums[:, Sum.ARRIVALS]).tolist(),
                ratio(sums[:, Sum.EXCLUSIVE], sums[:, Sum.OK]).tolist(),
                ratio(sums[:, Sum.IN_FLIGHT], stamped).tolist(), ratio(sums[:, Sum.RATE], stamped).tolist(),
            )  # fmt: skip
            for column, more in zip(columns, values, strict=True):
                column.extend(more)
        return columns, dirty


def _per_second(calls: Columns) -> Iterator[tuple[Key, int, np.ndarray]]:
    """Groups of calls that share key and second, with their sums."""
    n = len(calls["started_at"])
    if not n:
        return
    seconds = calls["started_at"] // 1_000_000
    groups: dict[tuple, int] = {}
    names = zip(seconds.tolist(), calls["service"], calls["class"], calls["cluster"], strict=True)
    group = np.array([groups.setdefault(name, len(groups)) for name in names])
    weight, failed = calls["adjusted_count"], calls["failed"]
    good = np.where(failed, 0.0, weight)
    stamped = np.where(calls["arrival_rate"] > 0, weight, 0.0)
    duration, exclusive = calls["duration_us"] / 1000, calls["exclusive_us"] / 1000
    terms = (
        weight, np.where(failed, weight, 0.0), (~failed).astype(float), good, duration * weight,
        duration * good, exclusive * good, exclusive**2 * good, stamped, calls["in_flight"] * stamped,
        calls["arrival_rate"] * stamped,
    )  # fmt: skip
    sums = np.stack([np.bincount(group, weights=term, minlength=len(groups)) for term in terms], axis=1)
    for (second, service, class_id, cluster), i in groups.items():
        yield Key(service, class_id, cluster), second, sums[i]
