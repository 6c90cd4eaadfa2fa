"""Telemetry that simulated queues would have reported, in the tables of the job `curves`. Pure."""

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
    """A pod whose requests wait for its workers, first in, first out, or share them (`sharing`).

    `service_ms` are the mean exponential service times of the classes, and `shares` their shares of
    the requests. `constant_ms` is spent outside the queue. CPU use is `idle` without load, and
    rises to 1 in proportion to the busy workers.
    """

    workers: int
    service_ms: Sequence[float]
    shares: Sequence[float] = (1.0,)
    constant_ms: float = 0.0
    idle: float = 0.0
    sharing: bool = False

    @property
    def mean_s(self) -> float:
        """Mean service time in seconds of this mix of classes."""
        return float(np.dot(self.service_ms, self.shares)) / 1000

    @property
    def saturation(self) -> float:
        """Requests per second of this mix at which all workers are busy."""
        return self.workers / self.mean_s

    def capacity(self, weights: Sequence[float]) -> float:
        """Returns the capacity in requests per second of the baseline class, for these weights."""
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
    """Returns the calls and CPU points of a service whose pods have this utilisation per second.

    The calls are columns of LoadTable.add. `pods` is the number of pods in each second, one by
    default. A pod has neither load nor CPU points in seconds in which it does not exist. `sampled`
    is the share of the calls that are kept. `start` is the first second in Unix time.
    """
    counts = np.ones(len(utilisation), dtype=int) if pods is None else np.asarray(pods)
    batches, points = [], []
    for index in range(int(counts.max())):
        there = counts > index
        calls, busy = _pod_calls(pod, np.where(there, utilisation, 0.0), random)
        batches.append(calls)
        points += [
            Point(start + s, cluster, SERVICE, f"pod-{index}", min(pod.idle + (1 - pod.idle) * busy[s], 1.0))
            for s in np.flatnonzero(there).tolist()
        ]
    at, exclusive_ms, kind, rate = (np.concatenate(column) for column in zip(*batches, strict=True))
    kept = random.random(len(at)) < sampled
    order = np.argsort(at[kept], kind="stable")
    return _columns(
        *(column[kept][order] for column in (at, exclusive_ms, kind, rate)), cluster, start, 1 / sampled
    ), points


@dataclass(frozen=True)
class Cut:
    """A pod of one class whose service times change, and what is observed of it over time.

    From second `at` to second `until`, requests take `factor` times as long as otherwise. `start`
    is the first second in Unix time.
    """

    pod: Pod
    utilisation: np.ndarray  # per second, as it would be without the change
    at: int
    factor: float
    random: np.random.Generator
    until: int = 10**9
    start: int = 1_700_000_000

    @cached_property
    def _queue(self) -> tuple[np.ndarray, ...]:
        at = queues.arrivals(self.utilisation * self.pod.saturation, self.random)
        service = self.random.exponential(self.pod.mean_s, len(at))
        service = np.where((at >= self.at) & (at < self.until), service * self.factor, service)
        took = queues.waits(at, service, self.pod.workers) + service
        busy = queues.busy(at, took, self.pod.workers, len(self.utilisation))
        rate = np.arange(len(at)) - np.searchsorted(at, at - 1.0)
        return at, took, rate, busy

    def seen(self, first: float, end: float, cpu_per_busy: float = 1.0) -> tuple[dict, list[Point]]:
        """Returns what `observe` returns, for the calls that ended at first <= second < end.

        The CPU points are those of these seconds. `cpu_per_busy` is the CPU use when all workers
        are busy.
        """
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
    """Returns tables with everything that was observed.

    Without `with_cpu`, the CPU table is empty.
    """
    load, cpu = LoadTable(100_000, Counters()), CpuTable(100_000)
    for calls, points in observed:
        load.add(calls)
        if with_cpu:
            cpu.add(points)
    return load, cpu


def _pod_calls(pod: Pod, utilisation: np.ndarray, random: np.random.Generator) -> tuple[tuple, np.ndarray]:
    """Simulates one pod with this utilisation per second.

    Returns the calls (arrival s, exclusive ms, class index, arrivals of the last second) and the
    busy share of the workers per second.
    """
    at = queues.arrivals(utilisation * pod.saturation, random)
    kind = random.choice(len(pod.shares), len(at), p=np.array(pod.shares) / np.sum(pod.shares))
    service = random.exponential(np.array(pod.service_ms)[kind] / 1000)
    if pod.sharing:
        took = queues.shared(at, service, pod.workers)
    else:
        took = queues.waits(at, service, pod.workers) + service
    busy = queues.busy(at, took, pod.workers, len(utilisation))
    # The rate that the filter stamps: arrivals in the last second before this request.
    rate = np.arange(len(at)) - np.searchsorted(at, at - 1.0)
    return (at, took * 1000 + pod.constant_ms, kind, rate), busy


def _columns(
    at: np.ndarray,
    exclusive_ms: np.ndarray,
    kind: np.ndarray,
    rate: np.ndarray,
    cluster: str,
    start: int,
    weight: float,
) -> dict:
    n, nothing = len(at), np.zeros(len(at))
    exclusive_us = np.maximum((exclusive_ms * 1000).astype(np.int64), 1)
    return {
        "started_at": ((start + at) * 1_000_000).astype(np.int64),
        "service": np.array([SERVICE] * n, dtype=object),
        "class": np.array([class_name(k) for k in kind], dtype=object),
        "cluster": np.array([cluster] * n, dtype=object),
        "adjusted_count": np.full(n, weight),
        "failed": np.zeros(n, dtype=bool),
        "duration_us": exclusive_us,
        "exclusive_us": exclusive_us,
        "in_flight": np.ones(n, dtype=np.int64),
        "arrival_rate": rate.astype(float),
        "class_in_flight": nothing.astype(np.int64),
        "class_arrival_rate": nothing,
    }
