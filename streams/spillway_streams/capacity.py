"""Requests per second at which a service in a cluster saturates. Pure.

From CPU use where pods report it: SLATE's CU (App. E), (CPU high - CPU low) / (load high - load low),
taken over all seconds by a robust line instead of two of them; the capacity is the load at 100 %.
Else from the curve itself, together with a and b.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from spillway_streams.fit import fit_capacity

SATURATED = 0.97
MIN_SECONDS = 10
MIN_SPREAD = 0.25  # of the loads seen, relative to the highest: narrower ranges give no slope
SMOOTHING_S = 5
_BINS = 12


@dataclass(frozen=True)
class Capacity:
    """rps of the service's baseline class; source as in the table capacities."""

    rps: float
    source: str
    reason: str
    assumed: bool = False  # taken over from another cluster: not to learn from


def moving_mean(at: np.ndarray, values: np.ndarray, width: int = SMOOTHING_S) -> np.ndarray:
    """Mean of the values within `width` seconds around each; at: int64 (n,) ascending."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    first = np.searchsorted(at, at - width // 2, side="left")
    end = np.searchsorted(at, at + width // 2, side="right")
    return (sums[end] - sums[first]) / (end - first)


def moving_rate(at: np.ndarray, counts: np.ndarray, width: int = SMOOTHING_S) -> np.ndarray:
    """Events per second around each second, seconds without events counting as empty; the window is
    cut at gaps of more than `width` seconds, where recording stopped rather than the load."""
    if not len(at):
        return counts
    breaks = np.flatnonzero(np.diff(at) > width)
    segment = np.searchsorted(breaks, np.arange(len(at)), side="left")
    first_at = at[np.concatenate([[0], breaks + 1])][segment]
    last_at = at[np.concatenate([breaks, [len(at) - 1]])][segment]
    low, high = np.maximum(at - width // 2, first_at), np.minimum(at + width // 2, last_at)
    sums = np.concatenate([[0.0], np.cumsum(counts)])
    inside = sums[np.searchsorted(at, high, side="right")] - sums[np.searchsorted(at, low, side="left")]
    return inside / (high - low + 1)


def from_cpu(at: np.ndarray, served: np.ndarray, cpu: np.ndarray) -> Capacity | None:
    """From seconds `at` (n,) with the rate served (baseline class) and the share of CPU used (n,)."""
    if len(at) < 3 or served.sum() <= 0:
        return None
    load, use = moving_mean(at, served), moving_mean(at, cpu)
    below = (cpu < SATURATED) & (use < SATURATED) & (load > 0)
    if not below.any():
        reason = f"{len(at)} s, all above {SATURATED:.0%} CPU: the rate served there"
        return Capacity(float(load.sum() / use.sum()), "cpu", reason)
    load, use = load[below], use[below]
    if len(load) < 3 or use.mean() < 0.005:
        return None
    low, high = np.percentile(load, [5, 95])
    seen = f"{len(load)} s of CPU at {low:.1f} to {high:.1f} rps"
    if len(load) < MIN_SECONDS or high - low < MIN_SPREAD * high:
        return Capacity(float(load.sum() / use.sum()), "cpu", f"{seen}: too alike, taken as proportional")
    slope, idle = _line(load, use)
    return Capacity((1 - idle) / slope, "cpu", f"line through {seen}, {idle:.1%} idle")


def _line(load: np.ndarray, use: np.ndarray) -> tuple[float, float]:
    """Slope (CPU share per rps) and CPU share at no load."""
    scale = float(load.max())
    start = [max(float(np.sum(use) / np.sum(load)) * scale, 1e-6), 0.0]
    line = least_squares(
        lambda p: p[0] * load / scale + p[1] - use,
        start,
        bounds=([1e-9, 0], [np.inf, 0.5]),
        loss="soft_l1",
        f_scale=0.03,
    )
    return float(line.x[0]) / scale, float(line.x[1])


def from_curve(rate: np.ndarray, latency: np.ndarray, samples: np.ndarray) -> Capacity | None:
    """From seconds (n,) with the arrival rate (baseline class), the mean exclusive time (ms) and its
    samples; None when the rates seen are too alike to tell."""
    good = (samples > 0) & (rate > 0)
    rate, latency, samples = rate[good], latency[good], samples[good]
    if len(rate) < MIN_SECONDS:
        return None
    low, high = np.percentile(rate, [5, 95])
    if high - low < MIN_SPREAD * high:
        return None
    edges = np.unique(np.quantile(rate, np.linspace(0, 1, _BINS + 1)[1:-1]))
    bins = np.searchsorted(edges, rate, side="right")
    mean_rate, mean, sd, n = grouped(bins, len(edges) + 1, rate, latency, samples)
    filled = n > 0
    if filled.sum() < 3:
        return None
    found = fit_capacity(mean_rate[filled], mean[filled], sd[filled], n[filled])
    weak = "; the data tell it weakly" if found.se > found.capacity / 2 else ""
    reason = f"no CPU use reported: latency at {low:.1f} to {high:.1f} rps, +/- {found.se:.1f} rps{weak}"
    return Capacity(found.capacity, "curve", reason)


def grouped(
    bins: np.ndarray, n_bins: int, x: np.ndarray, y: np.ndarray, samples: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Means of x and y, the standard deviation that one sample of y has, and samples, per bin.

    Each y is a mean of `samples`, so the scatter of a single one is wider by its square root.
    """
    n = np.bincount(bins, samples, n_bins)
    whole = np.maximum(n, 1e-12)
    mean_x = np.bincount(bins, samples * x, n_bins) / whole
    mean_y = np.bincount(bins, samples * y, n_bins) / whole
    rows = np.maximum(np.bincount(bins, minlength=n_bins), 1)
    single = np.bincount(bins, samples * (y - mean_y[bins]) ** 2, n_bins) / rows
    return mean_x, mean_y, np.sqrt(single), n
