"""L(u) = a / (1 - u) + b fitted to mean latency by utilisation (SLATE 4.2). Pure.

Residuals are in units of what a point may be off by: its standard error, and a share of its value
because no service is exactly such a queue. Loss is soft L1, so a bad bucket cannot bend the curve.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

MODEL_ERROR = 0.03


@dataclass(frozen=True)
class Fit:
    """Milliseconds; standard errors, and the root mean square error weighted by samples."""

    a: float
    b: float
    a_se: float
    b_se: float
    rmse: float

    def __call__(self, u: np.ndarray | float) -> np.ndarray | float:
        return self.a / (1 - u) + self.b


@dataclass(frozen=True)
class CapacityFit:
    """Requests per second at which latency diverges, with its standard error."""

    capacity: float
    se: float


def _tolerance(latency: np.ndarray, sd: np.ndarray, samples: np.ndarray) -> np.ndarray:
    return np.sqrt(sd**2 / samples + (MODEL_ERROR * latency) ** 2) + 1e-9


def _standard_errors(jacobian: np.ndarray, residuals: np.ndarray) -> np.ndarray:
    """From the Gauss-Newton approximation, widened when the points scatter more than they should."""
    spare = max(len(residuals) - jacobian.shape[1], 1)
    covariance = np.linalg.pinv(jacobian.T @ jacobian)
    return np.sqrt(np.maximum(np.diag(covariance), 0) * max(1.0, float(residuals @ residuals) / spare))


def fit(u: np.ndarray, latency: np.ndarray, sd: np.ndarray, samples: np.ndarray) -> Fit:
    """Fits a, b >= 0 (ms) to bucket means; all arrays (n,), n >= 2, u in 0..1 exclusive, samples > 0."""
    design = np.stack([1 / (1 - u), np.ones_like(u)], axis=1)
    tolerance = _tolerance(latency, sd, samples)
    start = np.maximum(np.linalg.lstsq(design / tolerance[:, None], latency / tolerance, rcond=None)[0], 1e-6)
    solution = least_squares(
        lambda p: (design @ p - latency) / tolerance,
        start,
        jac=lambda p: design / tolerance[:, None],
        bounds=(0, np.inf),
        loss="soft_l1",
        x_scale=np.maximum(start, latency.mean() * 1e-3 + 1e-9),
    )
    a, b = (float(value) for value in solution.x)
    residuals = design @ solution.x - latency
    se = _standard_errors(design / tolerance[:, None], residuals / tolerance)
    rmse = float(np.sqrt(np.average(residuals**2, weights=samples)))
    return Fit(a, b, float(se[0]), float(se[1]), rmse)


def fit_capacity(
    rate: np.ndarray, latency: np.ndarray, sd: np.ndarray, samples: np.ndarray, widest: float = 5.0
) -> CapacityFit:
    """Fits a, b and the capacity together to latency by rate (n,), n >= 3. The capacity lies between
    the highest rate and `widest` times it, and its standard error says how well the data tell it."""
    top = float(rate.max())
    tolerance = _tolerance(latency, sd, samples)

    def residuals(p: np.ndarray) -> np.ndarray:
        return (p[0] / (1 - rate / (p[2] * top)) + p[1] - latency) / tolerance

    best = None
    for guess in (1.1, 1.5, 3.0):
        start = [latency.min() / 2, latency.min() / 2, guess]
        found = least_squares(
            residuals,
            start,
            bounds=([0, 0, 1.02], [np.inf, np.inf, widest]),
            loss="soft_l1",
            x_scale=[latency.mean() + 1e-9, latency.mean() + 1e-9, 1.0],
        )
        if best is None or found.cost < best.cost:
            best = found
    se = _standard_errors(best.jac, residuals(best.x))
    return CapacityFit(float(best.x[2] * top), float(se[2] * top))
