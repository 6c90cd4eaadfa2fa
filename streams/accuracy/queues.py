"""Simulated queues whose true behaviour is known: M/M/c and M/G/c. Pure.

Requests are served first in, first out, or share the workers equally (processor sharing).

Models are fitted to what these queues show in each second.
"""

import heapq
from collections.abc import Sequence

import numpy as np


def erlang_wait(workers: int, u: np.ndarray | float) -> np.ndarray | float:
    """Returns the mean wait in an M/M/c queue, in units of the mean service time (Erlang C).

    `u` is the utilisation, below 1. The result has its shape.
    """
    offered = workers * np.asarray(u, dtype=float)
    blocking = np.ones_like(offered)  # Erlang B, by its recursion
    for n in range(1, workers + 1):
        blocking = offered * blocking / (n + offered * blocking)
    waits = blocking / (1 - np.asarray(u) * (1 - blocking))
    return waits / (workers * (1 - np.asarray(u)))


def erlang_spread(workers: int, u: np.ndarray | float) -> np.ndarray | float:
    """Returns the standard deviation of wait and service in an M/M/c queue, first in, first out.

    It is in units of the mean service time. `u` is the utilisation, below 1. The result has its
    shape.
    """
    mean = erlang_wait(workers, u)
    # A request that waits does so for an exponential time, of this mean.
    if_waiting = 1 / (workers * (1 - np.asarray(u, dtype=float)))
    return np.sqrt(1 + 2 * mean * if_waiting - mean**2)


def arrivals(rates: Sequence[float], random: np.random.Generator) -> np.ndarray:
    """Returns the times of Poisson arrivals in seconds, sorted.

    `rates`: mean arrivals in each second.
    """
    counts = random.poisson(rates)
    return np.sort(np.repeat(np.arange(len(counts)), counts) + random.random(int(counts.sum())))


def waits(at: np.ndarray, service: np.ndarray, workers: int) -> np.ndarray:
    """Returns the seconds that each request waits for a worker, shape (n,).

    `at`: sorted arrival times in seconds, shape (n,). `service`: service times in seconds, same
    shape.
    """
    free = [0.0] * workers
    found = np.empty(len(at))
    for i, (t, s) in enumerate(zip(at.tolist(), service.tolist(), strict=True)):
        earliest = heapq.heappop(free)
        start = max(t, earliest)
        heapq.heappush(free, start + s)
        found[i] = start - t
    return found


def shared(at: np.ndarray, service: np.ndarray, workers: int) -> np.ndarray:
    """Returns the seconds from arrival to end of each request under processor sharing, shape (n,).

    n requests at a time share the workers: each progresses at the rate min(1, workers / n). `at`
    and `service` are those of `waits`.
    """
    found = np.empty(len(at))
    pending: list[tuple[float, int]] = []  # by the progress at which they end
    now = progress = 0.0
    arriving = [*zip(at.tolist(), service.tolist(), strict=True), (np.inf, 0.0)]
    for i, (t, s) in enumerate(arriving):
        while pending:
            rate = min(1.0, workers / len(pending))
            end = now + (pending[0][0] - progress) / rate
            if end > t:
                progress += (t - now) * rate
                break
            now, (progress, ended) = end, heapq.heappop(pending)
            found[ended] = end - at[ended]
        now = t
        heapq.heappush(pending, (progress + s, i))
    return found


def busy(at: np.ndarray, took: np.ndarray, workers: int, seconds: int) -> np.ndarray:
    """Returns the share of the workers that is busy in each second, shape (seconds,).

    `took`: the seconds from arrival to end of each request. No worker is idle while a request
    waits, so min(open requests, workers) of them are busy.
    """
    edges = np.concatenate([at, at + took])
    change = np.concatenate([np.ones(len(at)), -np.ones(len(at))])
    order = np.argsort(edges, kind="stable")
    times, count = edges[order], np.minimum(np.cumsum(change[order]), workers)
    area = np.concatenate([[0.0], np.cumsum(count[:-1] * np.diff(times))])
    whole = np.arange(seconds + 1)
    i = np.clip(np.searchsorted(times, whole, side="right") - 1, 0, len(times) - 1)
    until = area[i] + np.where(whole >= times[0], count[i] * (whole - times[i]), 0)
    return np.clip(np.diff(until) / workers, 0, 1)
