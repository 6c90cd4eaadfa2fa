"""Counts everything that was dropped, clamped, repaired or merely strange, by reason."""

import threading
from collections import Counter


class Counters:
    """Named counts that only grow, and gauges that may also fall. Safe to use from any thread."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._gauges: dict[str, float] = {}
        self._lock = threading.Lock()

    def add(self, name: str, n: int = 1) -> None:
        if n:
            with self._lock:
                self._counts[name] += n

    def snapshot(self) -> dict[str, int]:
        with self._lock:
            return dict(sorted(self._counts.items()))

    def gauge(self, name: str, value: float) -> None:
        """Sets the present value of a gauge."""
        with self._lock:
            self._gauges[name] = value

    def gauges(self) -> dict[str, float]:
        with self._lock:
            return dict(sorted(self._gauges.items()))

    def __getitem__(self, name: str) -> int:
        return self._counts[name]
