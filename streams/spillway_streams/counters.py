"""Counts of everything that was dropped, clamped, repaired or merely strange, by reason."""

import threading
from collections import Counter


class Counters:
    """Named counts that only grow; safe to add to from any thread."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, name: str, n: int = 1) -> None:
        if n:
            with self._lock:
                self._counts[name] += n

    def snapshot(self) -> dict[str, int]:
        with self._lock:
            return dict(sorted(self._counts.items()))

    def __getitem__(self, name: str) -> int:
        return self._counts[name]
