"""Simulated queues whose true behaviour is known: M/M/c and M/G/c, first in, first out. Pure.

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


def busy(at: np.ndarray, service: np.ndarray, wait: np.ndarray, workers: int, seconds: int) -> np.ndarray:
    """Returns the share of the workers that is busy in each second, shape (seconds,)."""
    edges = np.concatenate([at + wait, at + wait + service])
    change = np.concatenate([np.ones(len(at)), -np.ones(len(at))])
    order = np.argsort(edges, kind="stable")
    times, count = edges[order], np.cumsum(change[order])
    area = np.concatenate([[0.0], np.cumsum(count[:-1] * np.diff(times))])
    whole = np.arange(seconds + 1)
    i = np.clip(np.searchsorted(times, whole, side="right") - 1, 0, len(times) - 1)
    until = area[i] + np.where(whole >= times[0], count[i] * (whole - times[i]), 0)
    return np.clip(np.diff(until) / workers, 0, 1)
