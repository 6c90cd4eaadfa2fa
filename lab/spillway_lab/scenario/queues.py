"""Queues with several workers: mean waits, and the load at which latency begins to rise. Pure.

Utilisations `u` are at least 0 and less than 1: an overloaded queue has no mean.
"""

from typing import TypeVar

import numpy as np

Values = TypeVar("Values", float, np.ndarray)

_STEP = 0.0005  # of utilisation, in the search for the knee


def erlang_c(workers: int, u: Values) -> Values:
    """Returns the probability that a request waits, with exponential service times."""
    offered = workers * u
    blocking = 1.0 + 0.0 * u  # Erlang B, by its recursion
    for c in range(1, workers + 1):
        blocking = offered * blocking / (c + offered * blocking)
    return blocking / (1 - u + u * blocking)


def wait_ms(workers: int, mean_ms: float, cv2: float, u: Values) -> Values:
    """Returns the mean wait in a queue with Poisson arrivals.

    It is Erlang's C, with Allen and Cunneen's factor for service times that are not exponential.
    `cv2` is their squared coefficient of variation.
    """
    result: Values = (1 + cv2) / 2 * erlang_c(workers, u) * mean_ms / (workers * (1 - u))
    return result


def curve(u: np.ndarray, latency_ms: np.ndarray, certainty: np.ndarray) -> tuple[float, float]:
    """Returns (a, b) in ms of the curve a / (1 - u) + b nearest to mean latencies.

    Each latency counts in proportion to its certainty, which is one over its error.
    """
    design = np.stack([1 / (1 - u), np.ones_like(u)], axis=1)
    a, b = np.linalg.lstsq(design * certainty[:, None], latency_ms * certainty, rcond=None)[0]
    return float(a), float(b)


def knee(workers: int, cv2: float) -> float:
    """Returns the utilisation at which the knee of a queue's latency begins.

    There, a line from the origin touches the curve of latency over utilisation, so latency divided
    by utilisation is least. Below it, more load costs less latency than it brings throughput.
    """
    u = np.arange(_STEP, 1, _STEP)
    return float(u[np.argmin((1 + wait_ms(workers, 1.0, cv2, u)) / u)])
