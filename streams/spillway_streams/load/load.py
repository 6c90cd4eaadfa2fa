"""Calls per second: the table that capacities and curves are computed from. Pure.

Everything downstream is a function of this table, so neither the order in which calls arrive nor
how they are split into batches changes a result.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from spillway_streams.batches.arrays import Floats, Ints
from spillway_streams.batches.columns import Columns
from spillway_streams.batches.parts import Parts, column_of, fold
from spillway_streams.process.counters import Counters

_LEAST_SECONDS = 60


class Key(NamedTuple):
    service: str
    class_id: str
    cluster: str


class Sum(IntEnum):
    """What is summed per second and key. Counts are adjusted for sampling unless noted."""

    ARRIVALS = 0
    FAILED = 1
    SAMPLES = 2  # spans of calls that did not fail, not adjusted for sampling
    OK = 3
    # Of calls that did not fail, ms and ms^2:
    EXCLUSIVE = 4
    EXCLUSIVE_SQUARED = 5
    # Calls that carry the arrival rate of the service, and the sum of these rates:
    STAMPED = 6
    RATE = 7
    # Calls that carry the arrival rate of their class, and the sum of these rates:
    CLASS_STAMPED = 8
    CLASS_RATE = 9


LOAD_PARTS = (
    "at", "service", "class", "cluster", "arrivals", "failed", "samples", "ok", "exclusive_ms", "exclusive_sq_ms2",
    "stamped", "rate", "class_stamped", "class_rate",
)  # fmt: skip
CALL_COLUMNS = frozenset({
    "started_at", "service", "class", "cluster", "adjusted_count", "failed", "exclusive_us", "in_flight",
    "arrival_rate", "class_in_flight", "class_arrival_rate",
})  # fmt: skip


def ratio(numerator: Floats, denominator: Floats) -> Floats:
    """Returns numerator / denominator, and 0 where the denominator is 0."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)


def parts_of(calls: Columns) -> Parts:
    """Returns the sums per second and key of a batch of calls.

    `calls`: columns.CALLS; only CALL_COLUMNS are used. Keys are Keys as plain tuples, sums are in
    the order of Sum, and columns() in the order of LOAD_PARTS.
    """
    weight, failed = calls["adjusted_count"], calls["failed"]
    good = np.where(failed, 0.0, weight)
    # A stamp counts the call itself as in flight. Its rate is 0 when no other call arrived in the
    # second before, so the rate does not show whether there is a stamp.
    stamped = np.where(calls["in_flight"] > 0, weight, 0.0)
    class_stamped = np.where(calls["class_in_flight"] > 0, weight, 0.0)
    exclusive = calls["exclusive_us"] / 1000
    # Infinity times zero is NaN; `fold` rejects such rows.
    with np.errstate(invalid="ignore"):
        terms = (
            weight, weight - good, ~failed, good, exclusive * good, exclusive**2 * good, stamped,
            calls["arrival_rate"] * stamped, class_stamped, calls["class_arrival_rate"] * class_stamped,
        )  # fmt: skip
    return fold(calls["started_at"] // 1_000_000, (calls["service"], calls["class"], calls["cluster"]), terms)


class Series:
    """Sums of one key, by second."""

    def __init__(self) -> None:
        self._index: dict[int, int] = {}
        self._at = np.zeros(64, dtype=np.int64)
        self._sums = np.zeros((64, len(Sum)))
        self.floor = np.iinfo(np.int64).min  # earlier seconds have been dropped
        self.newest = self.floor

    def __len__(self) -> int:
        return len(self._index)

    def add(self, seconds: Ints, sums: Floats) -> None:
        """Adds sums of shape (n, len(Sum)) to n distinct seconds."""
        rows = [self._row(second) for second in seconds.tolist()]
        self._sums[rows] += sums
        self.newest = max(self.newest, int(seconds.max()))

    def _row(self, second: int) -> int:
        i = self._index.get(second)
        if i is None:
            i = self._index[second] = len(self._index)
            if i == len(self._at):
                self._at = np.concatenate([self._at, np.zeros_like(self._at)])
                self._sums = np.concatenate([self._sums, np.zeros_like(self._sums)])
            self._at[i], self._sums[i] = second, 0
        return i

    def trim(self, memory: int) -> int:
        """Drops the oldest seconds once more than 1.1 × `memory` are held. Returns how many."""
        excess = len(self._index) - memory
        if excess <= memory // 10:
            return 0
        at, sums = self.all()
        self.floor = int(at[excess])
        self._at, self._sums = at[excess:].copy(), sums[excess:].copy()
        self._index = {second: i for i, second in enumerate(self._at.tolist())}
        return excess

    def all(self) -> tuple[Ints, Floats]:
        """Returns the seconds in order, int64 (n,), and their sums, float64 (n, len(Sum))."""
        n = len(self._index)
        order = np.argsort(self._at[:n])
        return self._at[:n][order], self._sums[:n][order]

    def between(self, first: int, end: int) -> Floats:
        """Returns the sums over the seconds first <= s < end, float64 (len(Sum),)."""
        rows = [self._index[s] for s in range(first, end) if s in self._index]
        total: Floats = self._sums[rows].sum(axis=0)
        return total


class LoadTable:
    """Series of every (service, class, cluster), and the seconds that changed since the last query.

    Each series keeps its newest `memory` seconds that have data. It keeps fewer, but at least a
    minute, when all series together would hold more than `max_seconds`. Beyond `max_keys` series,
    those that have been silent for longer than `memory` seconds are dropped.
    """

    def __init__(
        self, memory: int, counters: Counters, max_keys: int = 20_000, max_seconds: int = 1_000_000
    ) -> None:
        self.series: dict[Key, Series] = {}
        self.memory, self._max_keys, self._max_seconds = memory, max_keys, max_seconds
        self._counters = counters
        self._dirty: dict[Key, set[int]] = {}
        self._newest = self._pruned_at = np.iinfo(np.int64).min

    def add(self, calls: Columns) -> None:
        """Adds a batch of calls (columns.CALLS) to their seconds."""
        self.add_parts(parts_of(calls))

    def add_parts(self, parts: Parts) -> None:
        """Adds parts as `parts_of` returns them. The rows of a key must be contiguous."""
        if not len(parts):
            return
        self._newest = max(self._newest, int(parts.at.max()))
        edges = [0, *(np.flatnonzero(np.diff(parts.key)) + 1).tolist(), len(parts)]
        for first, end in zip(edges, edges[1:], strict=False):
            key = Key(*parts.keys[parts.key[first]])
            self._add(key, parts.at[first:end], parts.sums[first:end])

    def _add(self, key: Key, at: Ints, sums: Floats) -> None:
        series = self._series(key)
        if series is None:
            self._counters.add("beyond_memory: load: keys", int(sums[:, Sum.ARRIVALS].sum()))
            return
        kept = at >= series.floor
        if not kept.all():
            self._counters.add("calls_older_than_memory", int(sums[~kept, Sum.ARRIVALS].sum()))
            at, sums = at[kept], sums[kept]
        if len(at):
            series.add(at, sums)
            self._dirty.setdefault(key, set()).update(at.tolist())
        memory = min(self.memory, max(self._max_seconds // len(self.series), _LEAST_SECONDS))
        forgotten = series.trim(memory)
        if memory < self.memory:
            self._counters.add("beyond_memory: load: seconds", forgotten)

    def _series(self, key: Key) -> Series | None:
        found = self.series.get(key)
        if found is None:
            if len(self.series) >= self._max_keys:
                self._forget_silent()
            if len(self.series) >= self._max_keys:
                return None
            found = self.series[key] = Series()
        return found

    def _forget_silent(self) -> None:
        """Drops silent series, at most once per new second, so that a flood of keys stays cheap."""
        if self._pruned_at == self._newest:
            return
        self._pruned_at = self._newest
        for key, series in list(self.series.items()):
            if series.newest < self._newest - self.memory:
                del self.series[key]
                self._dirty.pop(key, None)

    def take_dirty(self, keys: Iterable[Key] | None = None) -> dict[Key, set[int]]:
        """Returns and clears the seconds that changed since the last call.

        `keys`: the keys to return and clear; None: all of them.
        """
        if keys is None:
            dirty, self._dirty = self._dirty, {}
        else:
            dirty = {key: self._dirty.pop(key) for key in keys if key in self._dirty}
        return {
            key: kept
            for key, seconds in dirty.items()
            if (kept := {second for second in seconds if second >= self.series[key].floor})
        }

    def give_back(self, dirty: Mapping[Key, set[int]]) -> None:
        """Marks seconds as changed again that were taken but not processed."""
        for key, seconds in dirty.items():
            if key in self.series:
                self._dirty.setdefault(key, set()).update(seconds)

    def forget_dirty(self, keep_s: int) -> None:
        """Clears the changed seconds, except the newest `keep_s` seconds."""
        first = self._newest - keep_s
        self._dirty = {key: {s for s in seconds if s > first} for key, seconds in self._dirty.items()}

    def exclusive_ms(self, first: int, end: int) -> dict[tuple[str, str], float]:
        """Mean exclusive time (ms) of the calls that did not fail, by (cluster, class).

        The mean is over the seconds first <= s < end.
        """
        sums: dict[tuple[str, str], Floats] = {}
        for key, series in self.series.items():
            if series.newest >= first:
                name = (key.cluster, key.class_id)
                sums[name] = sums.get(name, 0) + series.between(first, end)
        return {
            name: float(found[Sum.EXCLUSIVE] / found[Sum.OK])
            for name, found in sums.items()
            if found[Sum.OK] > 0
        }


def restored(columns: Sequence[Sequence[Any]]) -> Parts:
    """Parts from stored columns, summed over batches.

    `columns`: in the order of LOAD_PARTS, `at` in Unix seconds.
    """
    at, *rest = columns
    sums = [np.array(column, float) for column in rest[3:]]
    return fold(np.array(at, np.int64), [column_of([*column]) for column in rest[:3]], sums)
