"""The memory of each class: how often it was requested, samples of its calls and their children.

It has two generations, so it covers between half of `memory` seconds and all of them. Each service
is bounded in templates and in sampled rows. What exceeds a bound is counted.
"""

from dataclasses import dataclass, field

import numpy as np

from spillway_streams.batches.arrays import Codes, Floats, Hashes, Ints, Records
from spillway_streams.batches.columns import Columns
from spillway_streams.batches.strings import Strings
from spillway_streams.classes import pattern, sample
from spillway_streams.process.counters import Counters

MAX_SERVICES = 1000
MAX_TEMPLATES = 2000  # of one service
MAX_NAMES = 20_000
SERVICE_SAMPLES = 40_000  # sampled calls of one service and generation
WORKER_SAMPLES = 1_000_000  # of all services together
_MOST, _LEAST = 2000, 100  # sampled calls of one class and generation
_CHILDREN = 4  # sampled child calls per sampled call


class Names:
    """Clusters, services and callee classes as numbers. Beyond the bound a name is 0, like ''."""

    def __init__(self) -> None:
        self._codes = {"": 0}
        self.values = [""]

    def codes(self, column: Strings) -> Codes:
        """Returns the number of each row's name, int32 (n,)."""
        return np.array([self._code(value) for value in column.values], "i4")[column.codes]

    def _code(self, name: str) -> int:
        code = self._codes.get(name)
        if code is None:
            if len(self.values) >= MAX_NAMES:
                return 0
            code = self._codes[name] = len(self.values)
            self.values.append(name)
        return code


class Generation:
    """Half of a class's memory.

    `requests` and `failed` are adjusted for sampling. `seen`: number of calls observed since
    `since` (seconds of the memory's clock).
    """

    def __init__(self, k: int, since: float) -> None:
        self.since = since
        self.requests = self.failed = 0.0
        self.seen = 0
        self.calls = sample.BottomK(sample.CALL, k)
        self.children = sample.BottomK(sample.CHILD, k * _CHILDREN)

    @property
    def both(self) -> float:
        """Key below which every trace is in both samples, if it is in any."""
        return min(self.calls.threshold, self.children.threshold)

    def count(self, requests: float, failed: float, seen: int) -> None:
        self.requests += requests
        self.failed += failed
        self.seen += seen


class ClassMemory:
    """The memory of one (method, template) of a service: this generation and the one before."""

    def __init__(self, k: int, since: float) -> None:
        self.now, self.before = Generation(k, since), Generation(k, since)

    @property
    def since(self) -> float:
        return self.before.since

    @property
    def requests(self) -> float:
        return self.now.requests + self.before.requests

    @property
    def failed(self) -> float:
        return self.now.failed + self.before.failed

    @property
    def seen(self) -> int:
        return self.now.seen + self.before.seen

    def narrow(self, k: int) -> None:
        self.now.calls.narrow(k)
        self.now.children.narrow(k * _CHILDREN)


@dataclass
class ServiceMemory:
    """All classes of a service, by (method, template)."""

    classes: dict[tuple[str, str], ClassMemory] = field(default_factory=dict)
    # Method -> number of templates dropped to make room.
    evicted: dict[str, int] = field(default_factory=dict)


class Memory:
    """The memory of all services whose calls this worker receives."""

    def __init__(self, seconds: float, counters: Counters) -> None:
        self.names = Names()
        self.services: dict[str, ServiceMemory] = {}
        self._counters = counters
        self._half = seconds / 2
        self._turned: float | None = None
        self._clock = 0.0
        self._classes = 0

    def turn(self, now: float) -> None:
        """Drops the older generation if it is time. `now`: seconds of any clock."""
        self._clock = now
        if self._turned is None:
            self._turned = now
        if now - self._turned < self._half:
            return
        self._turned = now
        for service in self.services.values():
            k = self._k(service)
            for kept in service.classes.values():
                kept.before, kept.now = kept.now, Generation(k, now)
            service.classes = {key: kept for key, kept in service.classes.items() if kept.before.seen}
            service.evicted.clear()
        self.services = {name: service for name, service in self.services.items() if service.classes}
        self._classes = sum(len(service.classes) for service in self.services.values())

    def add_calls(self, batch: Columns) -> None:
        """Adds a batch of calls: counts all of them, and samples some."""
        column, weight, failed = batch["class"], batch["adjusted_count"], batch["failed"]
        kept, n = [self._class(text) for text in column.values], len(column.values)
        requests = np.bincount(column.codes, weight, n)
        lost = np.bincount(column.codes, weight * failed, n)
        seen = np.bincount(column.codes, minlength=n)
        for kept_class, *counts in zip(kept, requests.tolist(), lost.tolist(), seen.tolist(), strict=True):
            if kept_class is not None:
                kept_class.now.count(*counts)
        traces = sample.hashes(batch["trace_id"])
        keys = sample.keys(traces, weight)
        which = np.flatnonzero(keys < _limits(kept, "calls")[column.codes])
        rows = _rows(sample.CALL, batch, which, traces, keys)
        rows["exclusive_ms"] = batch["exclusive_us"][which] / 1000
        rows["at"] = batch["started_at"][which] // 1_000_000
        rows["weight"] = weight[which]
        for name in ("cluster", "source_service", "source_cluster"):
            rows[name] = self.names.codes(batch[name])[which]
        for name in ("in_flight", "request_bytes", "response_bytes", "status", "failed"):
            rows[name] = batch[name][which]
        for code, group in _groups(column.codes[which], rows):
            kept_class = kept[code]
            assert kept_class is not None  # where there is no class, no key is below the limit
            kept_class.now.calls.offer(group)

    def add_edges(self, batch: Columns) -> None:
        """Adds a batch of edges to the samples of child calls."""
        column = batch["source_class"]
        kept = [self._class(text) for text in column.values]
        traces = sample.hashes(batch["trace_id"])
        keys = sample.keys(traces, batch["adjusted_count"])
        which = np.flatnonzero(keys < _limits(kept, "children")[column.codes])
        rows = _rows(sample.CHILD, batch, which, traces, keys)
        rows["callee"] = self.names.codes(batch["class"])[which]
        for code, group in _groups(column.codes[which], rows):
            kept_class = kept[code]
            assert kept_class is not None  # where there is no class, no key is below the limit
            kept_class.now.children.offer(group)

    def _class(self, text: str) -> ClassMemory | None:
        parts = text.split(" ")
        if len(parts) != 3:
            return None
        service = self.services.get(parts[0])
        if service is None:
            if len(self.services) >= MAX_SERVICES:
                self._counters.add("services_over_bound")
                return None
            service = self.services[parts[0]] = ServiceMemory()
        key = (parts[1], parts[2])
        kept = service.classes.get(key)
        if kept is None:
            if len(service.classes) >= MAX_TEMPLATES:
                self._evict(service)
            kept = service.classes[key] = ClassMemory(self._k(service), self._clock)
            self._classes += 1
        return kept

    def _k(self, service: ServiceMemory) -> int:
        """Returns how many calls to sample per class and generation, so that the bounds hold."""
        shares = SERVICE_SAMPLES // (len(service.classes) or 1), WORKER_SAMPLES // (self._classes or 1)
        return max(_LEAST, min(_MOST, *shares))

    def _evict(self, service: ServiceMemory) -> None:
        """Drops the rarest tenth of the classes, and narrows the samples of the others.

        Nothing could be learned from those classes except that they are many.
        """
        ranked = sorted(service.classes, key=lambda key: service.classes[key].requests)
        for key in ranked[: MAX_TEMPLATES // 10]:
            if key[1] != pattern.OTHER:
                del service.classes[key]
                self._classes -= 1
                service.evicted[key[0]] = service.evicted.get(key[0], 0) + 1
                self._counters.add("templates_forgotten")
        for kept in service.classes.values():
            kept.narrow(self._k(service))


def _limits(kept: list[ClassMemory | None], name: str) -> Floats:
    """Returns for each class the keys that its sample still accepts: -1 where there is no class."""
    return np.array(
        [-1.0 if kept_class is None else getattr(kept_class.now, name).limit for kept_class in kept]
    )


def _rows(dtype: np.dtype[np.void], batch: Columns, which: Ints, traces: Hashes, keys: Floats) -> Records:
    rows = np.zeros(len(which), dtype)
    rows["key"], rows["trace"] = keys[which], traces[which]
    rows["span"] = sample.hashes(batch["span_id"][which]) ^ traces[which]
    return rows


def _groups(codes: Codes, rows: Records) -> list[tuple[int, Records]]:
    """Returns (code, its rows) for each code."""
    if not len(rows):
        return []
    order = np.argsort(codes, kind="stable")
    found, first = np.unique(codes[order], return_index=True)
    return list(zip(found.tolist(), np.split(rows[order], first[1:]), strict=True))
