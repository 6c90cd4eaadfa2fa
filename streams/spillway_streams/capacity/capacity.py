"""Requests per second at which one pod of a service saturates. Pure.

From CPU use where pods report it: SLATE's CU (App. E), (CPU high - CPU low) / (load high - load low), taken over all
seconds by a robust line instead of two of them; the capacity is the load at 100 %. Else from the latency itself
(saturation.py). All loads are of one pod, so that a service that is scaled out or in keeps what is known of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from spillway_streams.load import rates

SATURATED = 0.97
MIN_SECONDS = 10
MIN_SPREAD = 0.25  # of the loads seen, relative to the highest: narrower ranges give no slope
_MAX_IDLE = 0.5
_LEAST = 3  # seconds
_LEAST_USE = 0.005
_LEAST_RISE = 0.02  # of CPU use over the loads seen: less is told from what else a pod does by chance only
_ITERATIONS = 15


@dataclass(frozen=True)
class Capacity:
    """rps of the service's baseline class with `pods` pods, the newest count; source as in the table capacities."""

    rps: float
    source: str
    reason: str
    pods: float = 1.0
    counted: int = 0  # pods that served at the newest second; 0: unknown, `pods` is a guess
    se: float = 0.0  # of rps
    high: float = 0.0  # upper end of what the data allow (2.5 % of a chance to be above); 0: rps + 2 se
    evidence: str = "cpu"  # cpu, latency, refusals or queue
    weak: bool = False  # little more than a guess
    assumed: bool = False  # taken over from another cluster: not to learn from
    others: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # all evidence: rps, se
    changed_at: int = 0  # Unix second from which on it is this; 0: as long as is remembered
    before: "Capacity | None" = None  # of one pod, before the change
    disagreement: float = 1.0  # the highest evidence over this, where chance does not explain it

    @property
    def most(self) -> float:
        """rps that the data still allow."""
        return self.high or self.rps + 2 * self.se

    def times(self, pods: float, counted: int, why: str) -> "Capacity":
        """Of so many pods, where this is of one."""
        others = {name: (rps * pods, se * pods) for name, (rps, se) in self.others.items()}
        return replace(
            self, rps=self.rps * pods, se=self.se * pods, high=self.high * pods, pods=pods, counted=counted,
            reason=self.reason + why, others=others,
        )  # fmt: skip


def from_cpu(load: np.ndarray, use: np.ndarray, growth: np.ndarray | None = None) -> Capacity | None:
    """From seconds (n,) with the rate that one pod served (baseline class) and its share of CPU used, both means over
    the same few seconds: work is often done in a later second than it came in. `growth` (n,): by how many seconds the
    latency rose in each: what came in is not done while a queue grows. None when they do not tell, as where
    CPU use does not follow the load."""
    if len(load) < _LEAST or load.sum() <= 0:
        return None
    below, full = (use < SATURATED) & (load > 0), use >= SATURATED
    if below.sum() < _LEAST and full.sum() >= _LEAST:
        reason = f"{full.sum()} of {len(load)} s above {SATURATED:.0%} CPU: the rate served there"
        spent = use[full].sum() + (0.0 if growth is None else growth[full].sum())
        return Capacity(float(load[full].sum() / max(spent, 1.0)), "cpu", reason)
    load, use = load[below], use[below]
    if len(load) < _LEAST or use.mean() < _LEAST_USE:
        return None
    low, high = np.percentile(load, [5, 95])
    if len(load) < MIN_SECONDS or high - low < MIN_SPREAD * high:
        return proportional(load, use, "too alike")
    slope, idle, slope_se = line(load, use)
    if slope < 2 * slope_se or slope * (high - low) < _LEAST_RISE:
        return None
    rps = (1 - idle) / slope
    return Capacity(rps, "cpu", f"line through {_seen(load)}, {idle:.1%} idle", se=rps * slope_se / slope)


def proportional(load: np.ndarray, use: np.ndarray, why: str) -> Capacity | None:
    """As if a pod did nothing but to serve: at most too low, where CPU is what runs out. None where hardly any is
    used."""
    if not len(load) or load.sum() <= 0 or use.mean() < _LEAST_USE:
        return None
    return Capacity(float(load.sum() / use.sum()), "cpu", f"{_seen(load)}: {why}, taken as proportional")


def _seen(load: np.ndarray) -> str:
    low, high = np.percentile(load, [5, 95])
    return f"{len(load)} s of CPU at {low:.1f} to {high:.1f} rps"


def line(load: np.ndarray, use: np.ndarray) -> tuple[float, float, float]:
    """Slope (CPU share per rps), CPU share at no load, 0 to 0.5, and the slope's standard error. What a second's work
    scatters by grows with the root of its amount, so seconds weigh by 1 / use; seconds that are far off (a deployment,
    garbage collection) pull by soft L1."""
    design = np.stack([load, np.ones_like(load)], axis=1)
    variance = np.maximum(use, 0.02)
    weight = 1 / variance
    slope, idle, error = 0.0, 0.0, use
    for _ in range(_ITERATIONS):
        slope, idle = _bounded_line(design, use, weight)
        error = (use - slope * load - idle) / np.sqrt(variance)
        scale = max(1.5 * float(np.median(np.abs(error))), 1e-6)
        weight = 1 / variance / np.sqrt(1 + (error / scale) ** 2)
    normal = (design.T * weight) @ design
    # Seconds share what lies in the window of both.
    chance = rates.WIDTHS[0] * np.sum(weight * error**2 * variance) / len(load)
    return slope, idle, float(np.sqrt(chance * np.linalg.pinv(normal)[0, 0]))


def _bounded_line(design: np.ndarray, use: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    slope, idle = np.linalg.lstsq((design.T * weight) @ design, design.T @ (weight * use), rcond=None)[0]
    if not 0 <= idle <= _MAX_IDLE:
        idle = min(max(idle, 0.0), _MAX_IDLE)
        slope = np.sum(weight * design[:, 0] * (use - idle)) / np.sum(weight * design[:, 0] ** 2)
    return float(slope), float(idle)
