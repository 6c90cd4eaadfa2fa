"""Simulated queues as the tables that the job `curves` keeps: what pods would have reported of them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from accuracy import queues
from spillway_streams.load.cpu import CpuTable, Point
from spillway_streams.load.load import LoadTable
from spillway_streams.process.counters import Counters

SERVICE = "shop"


@dataclass(frozen=True)
class Pod:
    """Workers, and mean exponential service times (ms) and shares of requests by class name. `constant_ms` is spent
    outside the queue; CPU use is `idle` plus the rest for each busy worker."""

    workers: int
    service_ms: Sequence[float]
    shares: Sequence[float] = (1.0,)
    constant_ms: float = 0.0
    idle: float = 0.0

    @property
    def mean_s(self) -> float:
        return float(np.dot(self.service_ms, self.shares)) / 1000

    @property
    def saturation(self) -> float:
        """Requests per second of this mix."""
        return self.workers / self.mean_s

    def capacity(self, weights: Sequence[float]) -> float:
        """Requests per second of the baseline class, where classes have these weights."""
        return self.saturation * float(np.dot(self.shares, weights))


def class_name(index: int) -> str:
    return f"{SERVICE} GET /{index}"


def observe(
    pod: Pod,
    utilisation: Sequence[float],
    random: np.random.Generator,
    cluster: str = "here",
    pods: Sequence[int] | None = None,
    sampled: float = 1.0,
    start: int = 1_700_000_000,
) -> tuple[dict, list[Point]]:
    """Calls (columns of LoadTable.add) and CPU points of a service whose pods are this busy in each second. A pod
    that is not yet, or no more, there has no load; of the calls only a part is `sampled`."""
    counts = np.ones(len(utilisation), dtype=int) if pods is None else np.asarray(pods)
    batches, points = [], []
    for index in range(int(counts.max())):
        there = counts > index
        calls, busy = _one(pod, np.where(there, utilisation, 0.0), random)
        batches.append(calls)
        points += [
            Point(start + s, cluster, SERVICE, f"pod-{index}", min(pod.idle + (1 - pod.idle) * busy[s], 1.0))
            for s in np.flatnonzero(there).tolist()
        ]
    at, own, kind, rate = (np.concatenate(column) for column in zip(*batches, strict=True))
    kept = random.random(len(at)) < sampled
    order = np.argsort(at[kept], kind="stable")
    return _columns(
        *(column[kept][order] for column in (at, own, kind, rate)), cluster, start, 1 / sampled
    ), points


@dataclass(frozen=True)
class Cut:
    """A pod of one class, whose requests take `factor` times as long from second `at` on: what is known of it when."""

    pod: Pod
    utilisation: np.ndarray  # of the pod as it was before
    at: int
    factor: float
    random: np.random.Generator
    until: int = 10**9  # from here on as before
    start: int = 1_700_000_000

    @cached_property
    def _queue(self) -> tuple[np.ndarray, ...]:
        at = queues.arrivals(self.utilisation * self.pod.saturation, self.random)
        service = self.random.exponential(self.pod.mean_s, len(at))
        service = np.where((at >= self.at) & (at < self.until), service * self.factor, service)
        wait = queues.waits(at, service, self.pod.workers)
        busy = queues.busy(at, service, wait, self.pod.workers, len(self.utilisation))
        rate = np.arange(len(at)) - np.searchsorted(at, at - 1.0)
        return at, wait + service, rate, busy

    def seen(self, first: float, end: float, cpu_per_busy: float = 1.0) -> tuple[dict, list[Point]]:
        """As `observe`, of calls that ended at first <= second < end, and the CPU use of these seconds."""
        at, took_s, rate, busy = self._queue
        now = (at + took_s >= first) & (at + took_s < end)
        calls = _columns(
            at[now], took_s[now] * 1000, np.zeros(now.sum(), int), rate[now], "here", self.start, 1.0
        )
        return calls, [
            Point(self.start + s, "here", SERVICE, "pod-0", float(min(busy[s] * cpu_per_busy, 1.0)))
            for s in range(int(first), int(end))
        ]


def tables(*observed: tuple[dict, list[Point]], with_cpu: bool = True) -> tuple[LoadTable, CpuTable]:
    load, cpu = LoadTable(100_000, Counters()), CpuTable(100_000)
    for calls, points in observed:
        load.add(calls)
        if with_cpu:
            cpu.add(points)
    return load, cpu


def _one(pod: Pod, utilisation: np.ndarray, random: np.random.Generator) -> tuple[tuple, np.ndarray]:
    at = queues.arrivals(utilisation * pod.saturation, random)
    kind = random.choice(len(pod.shares), len(at), p=np.array(pod.shares) / np.sum(pod.shares))
    service = random.exponential(np.array(pod.service_ms)[kind] / 1000)
    wait = queues.waits(at, service, pod.workers)
    busy = queues.busy(at, service, wait, pod.workers, len(utilisation))
    # What the filter stamps: arrivals in the second before this one.
    rate = np.arange(len(at)) - np.searchsorted(at, at - 1.0)
    return (at, (wait + service) * 1000 + pod.constant_ms, kind, rate), busy


def _columns(
    at: np.ndarray,
    own_ms: np.ndarray,
    kind: np.ndarray,
    rate: np.ndarray,
    cluster: str,
    start: int,
    weight: float,
) -> dict:
    n, nothing = len(at), np.zeros(len(at))
    own_us = np.maximum((own_ms * 1000).astype(np.int64), 1)
    return {
        "started_at": ((start + at) * 1_000_000).astype(np.int64),
        "service": np.array([SERVICE] * n, dtype=object),
        "class": np.array([class_name(k) for k in kind], dtype=object),
        "cluster": np.array([cluster] * n, dtype=object),
        "adjusted_count": np.full(n, weight),
        "failed": np.zeros(n, dtype=bool),
        "duration_us": own_us,
        "exclusive_us": own_us,
        "in_flight": np.ones(n, dtype=np.int64),
        "arrival_rate": rate.astype(float),
        "class_in_flight": nothing.astype(np.int64),
        "class_arrival_rate": nothing,
    }
