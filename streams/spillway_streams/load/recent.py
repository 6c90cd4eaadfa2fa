"""Sums of the last seconds by key, for windows that slide. Pure."""

from typing import Any

import numpy as np

from spillway_streams.batches.arrays import Floats, Ints
from spillway_streams.batches.parts import Parts
from spillway_streams.process.counters import Counters

_COMPACT_BLOCKS = 64


class Recent:
    """Sums by key of the newest `memory` seconds that have data, for at most `max_keys` keys.

    Rows of other seconds and keys are left out and counted under `name`. `width`: length of the
    vector of sums.
    """

    def __init__(self, name: str, width: int, memory: int, max_keys: int, counters: Counters) -> None:
        self._name, self._width, self._memory, self._max_keys = name, width, memory, max_keys
        self._counters = counters
        self._ids: dict[tuple[Any, ...], int] = {}
        self._seconds: dict[int, list[tuple[Ints, Floats]]] = {}
        self._floor = np.iinfo(np.int64).min
        self._pruned_at: int | None = None

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, parts: Parts) -> None:
        """Adds sums. Rows of dropped seconds, or of keys without room, are counted and left out."""
        if not len(parts):
            return
        ids = self._numbers(parts.keys)[parts.key]
        good = (ids >= 0) & (parts.at >= self._floor)
        if not good.all():
            self._counters.add(f"beyond_memory: {self._name}: keys", int((ids < 0).sum()))
            self._counters.add(f"beyond_memory: {self._name}: seconds", int((parts.at < self._floor).sum()))
        order = np.flatnonzero(good)
        order = order[np.argsort(parts.at[order], kind="stable")]
        at, ids, sums = parts.at[order], ids[order], parts.sums[order]
        edges = np.flatnonzero(np.diff(at)) + 1
        for first, end in zip([0, *edges.tolist()], [*edges.tolist(), len(at)], strict=True):
            if end > first:
                self._put(int(at[first]), ids[first:end], sums[first:end])
        self._trim()

    def total(self, first: int, end: int) -> dict[tuple[Any, ...], Floats]:
        """Returns key -> sums (width,) over the seconds first <= s < end.

        It holds the keys that occur in these seconds, in order.
        """
        blocks = [block for s in self._within(first, end) for block in self._seconds[s]]
        if not blocks:
            return {}
        ids, sums = self._merged(blocks)
        keys = list(self._ids)
        found = {keys[i]: row for i, row in zip(ids.tolist(), sums, strict=True)}
        return dict(sorted(found.items()))

    def _within(self, first: int, end: int) -> list[int]:
        if end - first < len(self._seconds):
            return [s for s in range(first, end) if s in self._seconds]
        return sorted(s for s in self._seconds if first <= s < end)

    def _put(self, second: int, ids: Ints, sums: Floats) -> None:
        blocks = self._seconds.setdefault(second, [])
        blocks.append((ids, sums))
        if len(blocks) >= _COMPACT_BLOCKS:
            self._seconds[second] = [self._merged(blocks)]

    def _merged(self, blocks: list[tuple[Ints, Floats]]) -> tuple[Ints, Floats]:
        ids, place = np.unique(np.concatenate([block[0] for block in blocks]), return_inverse=True)
        sums = np.concatenate([block[1] for block in blocks])
        merged = [np.bincount(place, sums[:, k], len(ids)) for k in range(self._width)]
        return ids, np.stack(merged, axis=1)

    def _trim(self) -> None:
        if len(self._seconds) > self._memory:
            ordered = sorted(self._seconds)
            self._floor = ordered[-self._memory]
            for second in ordered[: -self._memory]:
                del self._seconds[second]

    def _numbers(self, keys: list[tuple[Any, ...]]) -> Ints:
        """Returns the number of each key; -1 for a key that there is no room for."""
        if len(self._ids) + len(keys) > self._max_keys:
            if sum(key not in self._ids for key in keys) > self._max_keys - len(self._ids):
                self._forget_silent()
        for key in keys:
            if key not in self._ids and len(self._ids) < self._max_keys:
                self._ids[key] = len(self._ids)
        return np.array([self._ids.get(key, -1) for key in keys], dtype=np.int64)

    def _forget_silent(self) -> None:
        """Drops the keys that no stored second contains, at most once per new second."""
        newest = max(self._seconds, default=0)
        if self._pruned_at == newest:
            return
        self._pruned_at = newest
        blocks = [block for second in self._seconds.values() for block in second]
        live = np.zeros(len(self._ids), bool)
        for ids, _ in blocks:
            live[ids] = True
        place = np.cumsum(live) - 1
        self._ids = {key: int(place[i]) for key, i in self._ids.items() if live[i]}
        for second, kept in self._seconds.items():
            self._seconds[second] = [(place[ids], sums) for ids, sums in kept]
