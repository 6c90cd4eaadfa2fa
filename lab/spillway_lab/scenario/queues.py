"""Queues with several workers: mean waits, and the load at which latency begins to rise. Pure."""

import numpy as np

_STEP = 0.0005  # of utilisation, in the search for the knee


def wait_ms(workers: int, mean_ms: float, cv2: float, u: np.ndarray) -> np.ndarray:
    """Returns the mean wait in a queue with Poisson arrivals, at utilisations `u`.

    It is Erlang's C, with Allen and Cunneen's factor for service times that are not exponential.
    `cv2` is their squared coefficient of variation.
    """
    offered = workers * u
    blocking = np.ones_like(u)
    for c in range(1, workers + 1):
        blocking = offered * blocking / (c + offered * blocking)
    waits = blocking / (1 - u + u * blocking)
    result: np.ndarray = (1 + cv2) / 2 * waits * mean_ms / (workers * (1 - u))
    return result


def knee(workers: int, cv2: float) -> float:
    """Returns the utilisation at which the knee of a queue's latency begins.

    There, a line from the origin touches the curve of latency over utilisation, so latency divided
    by utilisation is least. Below it, more load costs less latency than it brings throughput.
    """
    u = np.arange(_STEP, 1, _STEP)
    return float(u[np.argmin((1 + wait_ms(workers, 1.0, cv2, u)) / u)])
