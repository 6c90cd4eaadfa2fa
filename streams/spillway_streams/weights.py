"""NormWeight: what one request of a class costs, in requests of the service's baseline class
(SLATE App. E). Pure. The baseline is the first class by name, so that it stays the same one.
"""

import numpy as np
from scipy.optimize import nnls

MAX_CONDITION = 30.0
SECONDS_PER_CLASS = 10


def from_cpu(rates: np.ndarray, cpu: np.ndarray) -> np.ndarray | None:
    """Relative CPU per request of each class, in units of the first.

    rates: served per second (seconds, classes); cpu: share used (seconds,). None when the classes'
    rates moved too much alike to tell them apart, or when one would cost nothing.
    """
    seconds, classes = rates.shape
    scale = rates.max(axis=0, initial=0)
    if seconds < SECONDS_PER_CLASS * (classes + 1) or (scale <= 0).any():
        return None
    design = np.concatenate([rates / scale, np.ones((seconds, 1))], axis=1)
    if np.linalg.cond(design) > MAX_CONDITION:
        return None
    usage = nnls(design, cpu)[0][:-1] / scale
    return usage / usage[0] if (usage > 0).all() else None


def from_exclusive(rates: np.ndarray, exclusive: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Relative exclusive time at low load: mean over the third of the seconds with the least load in
    which each class has samples; all (seconds, classes). A class without samples weighs 1."""
    total = rates.sum(axis=1)
    means = np.ones(rates.shape[1])
    for k in range(rates.shape[1]):
        seen = samples[:, k] > 0
        if seen.any():
            quiet = seen & (total <= np.quantile(total[seen], 1 / 3))
            means[k] = np.average(exclusive[quiet, k], weights=samples[quiet, k])
    reference = means[0] if means[0] > 0 else 1.0
    return np.where(means > 0, means / reference, 1.0)


def pooled(found: list[tuple[np.ndarray, float]]) -> np.ndarray:
    """Mean of several clusters' weights (classes,), each with its own importance."""
    return np.average([weights for weights, _ in found], axis=0, weights=[n for _, n in found])
