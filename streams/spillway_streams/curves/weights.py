"""NormWeight: the cost of one request of a class, in requests of the baseline class (SLATE App. E).

The baseline is the first class of the service by name, so that it does not change. Pure.
"""

import numpy as np
from scipy.optimize import nnls

from spillway_streams.batches.arrays import Floats

TRUST = 0.5  # relative: assumed error of the ratio of exclusive times as a ratio of CPU costs
_LEAST_SHARE = 0.2  # of latency, that is own time: waiting is at most the rest
_BUSIEST = 0.8
_SWEEPS = 12
_LEAST = 0.02  # of the weight from exclusive times: no request is free


def from_cpu(prior: Floats, rates: Floats, cpu: Floats, correlated_s: float) -> Floats:
    """Returns the relative CPU time per request of each class, in units of the first class.

    `prior`: weights (classes,) from exclusive times; `rates`: requests per second served by one pod
    (seconds, classes); `cpu`: share used (seconds,). Rates and CPU are both smoothed over
    `correlated_s` seconds.

    This is a regression whose coefficients are drawn to the prior. Where the rates of the classes
    moved alike, the data determine only the sum of the costs, and the prior divides it.
    """
    work = rates @ prior
    if not len(cpu) or work.sum() <= 0 or cpu.sum() <= 0:
        return prior
    # CPU share of each class if the prior were right.
    columns = rates * prior * (cpu.sum() / work.sum())
    scale = np.sqrt(np.maximum(cpu, 0.02))
    noise = 0.05
    found = np.ones(len(prior))
    for _ in range(3):
        found = _drawn(columns / scale[:, None], 1 / scale, cpu / scale, noise * np.sqrt(correlated_s))
        idle = np.average(np.maximum(cpu - columns @ found, 0), weights=1 / scale**2)
        noise = max(float(np.sqrt(np.mean(((cpu - columns @ found - idle) / scale) ** 2))), 1e-3)
    costs = prior * np.maximum(found, _LEAST)
    relative: Floats = costs / costs[0]
    return relative


def _drawn(columns: Floats, idle: Floats, cpu: Floats, noise: float) -> Floats:
    """Factors >= 0 on the prior's costs, shape (classes,), fitted with an idle share >= 0."""
    classes = columns.shape[1]
    design = np.zeros((len(cpu) + classes, classes + 1))
    design[: len(cpu), :classes], design[: len(cpu), classes] = columns / noise, idle / noise
    design[len(cpu) :, :classes] = np.eye(classes) / TRUST
    # Normal equations, because there are many seconds and few classes.
    normal = design.T @ design + 1e-12 * np.eye(classes + 1)
    right = design.T @ np.concatenate([cpu / noise, np.full(classes, 1 / TRUST)])
    root = np.linalg.cholesky(normal).T
    found: Floats = nnls(root, np.linalg.solve(root.T, right))[0][:classes]
    return found


def from_exclusive(rates: Floats, exclusive: Floats, samples: Floats) -> Floats:
    """Returns the relative exclusive time without load, shape (classes,).

    All arguments have shape (seconds, classes). Classes wait in one queue, so a latency is the
    class's own time plus the wait that all classes share in that second. The wait is extrapolated
    to no load along the curve of a queue whose busiest seconds are at _BUSIEST of saturation. At
    the quiet end that assumption hardly matters. A class without samples has weight 1.
    """
    total, seen = rates.sum(axis=1), samples.sum(axis=1) > 0
    if not seen.any():
        return np.ones(rates.shape[1])
    load, y, n = total[seen], exclusive[seen], samples[seen]
    u = _BUSIEST * np.minimum(load / max(np.percentile(load, 95), 1e-9), 1.0)
    trust = n * ((1 - u) ** 4)[:, None]  # a wait scatters by 1 / (1 - u) times itself
    ahead, wait = _two_ways(y, trust)
    weight, queue = trust.sum(axis=1), u / (1 - u)
    mean_queue, mean_wait = np.average(queue, weights=weight), np.average(wait, weights=weight)
    away = queue - mean_queue
    slope = (weight * away * (wait - mean_wait)).sum() / max((weight * away**2).sum(), 1e-300)
    level = max(mean_wait - max(slope, 0.0) * mean_queue, _LEAST_SHARE * mean_wait)
    class_ms = np.where(n.sum(axis=0) > 0, np.maximum(level + ahead, 1e-3 * mean_wait), np.nan)
    reference = class_ms[0] if class_ms[0] > 0 else np.nanmax(class_ms)
    return np.where(class_ms > 0, class_ms / reference, 1.0)


def _two_ways(y: Floats, n: Floats) -> tuple[Floats, Floats]:
    """Splits y (seconds, classes) into a term per class and a term per second.

    Returns how much longer each class takes than the first one with samples, shape (classes,), and
    what all classes take, shape (seconds,). Computed by alternating means weighted by `n`.
    """
    ahead, everyone = np.zeros(y.shape[1]), n.sum(axis=1)
    wait = (n * y).sum(axis=1) / everyone
    for _ in range(_SWEEPS):
        ahead = (n * (y - wait[:, None])).sum(axis=0) / np.maximum(n.sum(axis=0), 1e-300)
        ahead -= ahead[np.argmax(n.sum(axis=0) > 0)]
        wait = (n * (y - ahead)).sum(axis=1) / everyone
    return ahead, wait
