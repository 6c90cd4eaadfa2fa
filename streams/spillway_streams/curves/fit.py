"""L(u) = a / (1 - u) + b fitted to mean latency by utilisation bucket (SLATE 4.2). Pure.

The model is linear in the stretch x = 1 / (1 - u). A bucket therefore enters with its means of x
and of latency, not with its mean of u: over a wide bucket these differ. The bounds are a >= 0 and
a + b >= 0, the latency without load. b alone may be negative. A short request in a queue shared
with costlier requests has L = R / (1 - u) + s - R. There R, the remaining service time that an
arriving request finds, exceeds the request's own service time s (Pollaczek-Khinchine).

Weights come from a working model of the scatter of a mean over a queue's latency. It is
proportional to the mean, to x, and to 1 / sqrt(observed time), because waiting times stay
correlated for longer the busier the queue is (Whitt, "Planning queueing simulations", 1989).
Standard errors do not rely on that model. They come from how whole blocks of time differ
(cluster-robust sandwich), so that correlated seconds do not count as independent.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillway_streams.batches.arrays import Floats, Ints

MODEL_ERROR = 0.03  # relative, for every bucket: no service is exactly such a queue
_ITERATIONS = 12
_FEW_BLOCKS = 4
_Parameters = NDArray[np.floating]  # (2,); numpy does not state which precision lstsq returns


@dataclass(frozen=True)
class Fit:
    """Parameters, standard errors and sample-weighted root mean square error, all in ms.

    `ab_correlation`: of the errors of a and b, -1 to 1; NaN where one of them has no error.
    """

    a: float
    b: float
    a_se: float
    b_se: float
    rmse: float
    ab_correlation: float

    def __call__(self, u: Floats | float) -> Floats | float:
        return self.a / (1 - u) + self.b


@dataclass(frozen=True)
class Points:
    """The data of a fit.

    Per bucket, shape (n,): means of stretch and of latency (ms), the standard deviation of a single
    sample (ms), number of samples, and seconds observed. Per block of time, shape (blocks, n):
    number of samples, and the sums over them of stretch and of latency.
    """

    stretch: Floats
    latency: Floats
    sd: Floats
    samples: Floats
    seconds: Floats | Ints
    block_samples: Floats
    block_stretch: Floats
    block_latency: Floats


def fit(points: Points) -> Fit:
    """Fits the curve to n >= 2 buckets, all of which must have samples."""
    design = np.stack([points.stretch - 1, np.ones_like(points.stretch)], axis=1)
    rough = 1 / (points.latency * points.stretch / np.sqrt(points.seconds) + 1e-9) ** 2
    first = _bounded(design, points.latency, rough)
    variance = scatter(points, design @ first)
    tolerance = variance + (MODEL_ERROR * points.latency) ** 2 + 1e-18
    found, weight = first, 1 / tolerance
    for _ in range(_ITERATIONS):
        # Soft L1: a distant bucket pulls with the root of its distance, not with its distance.
        z = (points.latency - design @ found) / np.sqrt(tolerance)
        weight = 1 / tolerance / np.sqrt(1 + z**2)
        found = _bounded(design, points.latency, weight)
    a, rest = (float(value) for value in found)
    covariance = _covariance(points, design, weight, found, variance)
    a_se, b_se, correlation = _errors(covariance)
    rmse = np.sqrt(np.average((points.latency - design @ found) ** 2, weights=points.samples))
    return Fit(a, rest - a, a_se, b_se, float(rmse), correlation)


def _errors(covariance: Floats) -> tuple[float, float, float]:
    """Returns the standard errors of a and b, and their correlation.

    `covariance` is that of (a, a + b).
    """
    of_a, of_rest, both = (float(v) for v in (covariance[0, 0], covariance[1, 1], covariance[0, 1]))
    a_se, b_se = np.sqrt(max(of_a, 0.0)), np.sqrt(max(of_a + of_rest - 2 * both, 0.0))
    if not a_se or not b_se:
        return float(a_se), float(b_se), float("nan")
    return float(a_se), float(b_se), float(np.clip((both - of_a) / (a_se * b_se), -1, 1))


def _bounded(design: Floats, y: Floats, weight: Floats) -> _Parameters:
    """Weighted least squares of two parameters, neither of which may be negative."""
    normal, right = (design.T * weight) @ design, design.T @ (weight * y)
    free = np.linalg.lstsq(normal, right, rcond=None)[0]
    if (free >= 0).all():
        return free
    # One parameter is 0 at the optimum. The other one then has a solution of its own.
    alone = np.maximum(right / np.maximum(np.diag(normal), 1e-300), 0)
    costs = [-2 * alone[i] * right[i] + alone[i] ** 2 * normal[i, i] for i in range(2)]
    best = int(np.argmin(costs))
    return np.array([alone[0], 0.0]) if best == 0 else np.array([0.0, alone[1]])


def _block_residuals(points: Points, found: _Parameters) -> Floats:
    """Latency minus the model, summed over the samples of each block, shape (blocks, n)."""
    predicted: Floats = (
        found[0] * (points.block_stretch - points.block_samples) + found[1] * points.block_samples
    )
    return points.block_latency - predicted


def scatter(points: Points, level: Floats, scale: float | None = None) -> Floats:
    """Variance of each bucket's mean (ms^2) by the working model, at the latencies `level` (ms).

    `scale`: from other points of the same queue, for when `points` are few.
    """
    scale = scatter_scale(points, level) if scale is None else scale
    return np.maximum(scale * _shape(points, level), points.sd**2 / points.samples)


def mean_error(points: Points, expected: Floats, scale: float) -> tuple[float, float]:
    """Returns how far latencies are above the expected ones, and the standard error of that, in ms.

    The mean over the buckets is weighted by how well each is known. `scale`: see `scatter`.
    """
    chance = scatter(points, expected, scale)
    weight = 1 / (chance + (MODEL_ERROR * points.latency) ** 2 + 1e-18)
    error = float(np.average(points.latency - expected, weights=weight))
    return error, float(np.sqrt(np.sum(weight**2 * chance)) / weight.sum())


def scatter_scale(points: Points, level: Floats) -> float:
    """The factor of the working model, measured from how the blocks of all buckets scatter."""
    inside = points.block_samples > 0
    share = np.where(inside, points.block_samples / points.samples, 0)
    mean = np.divide(points.block_latency, points.block_samples, out=np.zeros_like(share), where=inside)
    shape = np.maximum(_shape(points, level), 1e-300)
    scaled = np.where(inside, (mean - points.latency) ** 2 * share / shape, 0)
    cells = int(inside.sum())
    return float(scaled.sum()) / max(cells - len(level), 1) if cells > len(level) else 0.0


def _shape(points: Points, level: Floats) -> Floats:
    return (level * points.stretch) ** 2 / points.seconds


def _covariance(
    points: Points, design: Floats, weight: Floats, found: _Parameters, variance: Floats
) -> Floats:
    """Covariance of (a, a + b): the larger of the sandwich and the working model's.

    The working model's matters where blocks are few.
    """
    bread = np.linalg.pinv((design.T * weight) @ design)
    working = bread @ ((design.T * (weight**2 * variance)) @ design) @ bread
    scores = (_block_residuals(points, found) / points.samples * weight) @ design
    blocks = len(scores)
    if blocks < _FEW_BLOCKS:
        return working * _FEW_BLOCKS / max(blocks, 1)
    sandwich = bread @ (scores.T @ scores) @ bread * blocks / (blocks - 2)
    return sandwich if np.trace(sandwich) >= np.trace(working) else working
