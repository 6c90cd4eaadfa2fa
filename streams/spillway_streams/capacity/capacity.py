"""Requests per second at which one pod of a service saturates. Pure.

Where pods report CPU use, the capacity comes from it. SLATE's CU (App. E) is the slope
(CPU high - CPU low) / (load high - load low). Here a robust line over all seconds replaces the two
points, and the capacity is the load at 100 %. Without CPU use, the capacity comes from the latency
(saturation.py). All loads are per pod, so that scaling a service keeps what is known of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from spillway_streams.batches.arrays import Floats
from spillway_streams.load import rates

SATURATED = 0.97
MIN_SECONDS = 10
MIN_SPREAD = 0.25  # range of the loads over the highest load: a narrower range gives no slope
_MAX_IDLE = 0.5
_LEAST = 3  # seconds
_LEAST_USE = 0.005
_LEAST_RISE = 0.02  # of CPU use over the loads: a smaller rise may come from other work of the pod
_ITERATIONS = 15


@dataclass(frozen=True)
class Capacity:
    """A capacity in requests per second of the service's baseline class, served by `pods` pods.

    `pods` is the newest count. `source` has the values of the table capacities.
    """

    rps: float
    source: str
    reason: str
    pods: float = 1.0
    counted: int = 0  # pods that served in the newest second; 0: unknown, and `pods` is a guess
    se: float = 0.0  # standard error of rps
    high: float = 0.0  # upper bound that the data allow (exceeded with 2.5 %); 0: rps + 2 se
    evidence: str = "cpu"  # cpu, latency, refusals or queue
    weak: bool = False  # hardly better than a guess
    assumed: bool = False  # copied from another cluster: curves must not be learned with it
    # Every kind of evidence -> (rps, se).
    others: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    changed_at: int = 0  # Unix second since which it holds; 0: for as long as data are kept
    before: "Capacity | None" = None  # of one pod, before the change
    disagreement: float = 1.0  # highest evidence over this one, where chance does not explain it

    @property
    def most(self) -> float:
        """Highest rps that the data still allow."""
        return self.high or self.rps + 2 * self.se

    def times(self, pods: float, counted: int, why: str) -> "Capacity":
        """Returns the capacity of so many pods, from that of one pod."""
        others = {name: (rps * pods, se * pods) for name, (rps, se) in self.others.items()}
        return replace(
            self, rps=self.rps * pods, se=self.se * pods, high=self.high * pods, pods=pods, counted=counted,
            reason=self.reason + why, others=others,
        )  # fmt: skip


def from_cpu(load: Floats, use: Floats, growth: Floats | None = None) -> Capacity | None:
    """Returns the capacity from CPU use; None when the data do not determine it.

    `load`: rate that one pod served (baseline class); `use`: its share of CPU used. Both have shape
    (n,) and are means over the same few seconds, because work is often done in a later second than
    that of its arrival. `growth` (n,): seconds by which the latency rose in each second. While a
    queue grows, not all that arrived was done. One reason for None is CPU use that does not follow
    the load.
    """
    if len(load) < _LEAST or load.sum() <= 0:
        return None
    below, full = (use < SATURATED) & (load > 0), use >= SATURATED
    if below.sum() < _LEAST and full.sum() >= _LEAST:
        reason = f"{full.sum()} of {len(load)} s above {SATURATED:.0%} CPU; the capacity is the rate served in them"
        spent = use[full].sum() + (0.0 if growth is None else growth[full].sum())
        return Capacity(float(load[full].sum() / max(spent, 1.0)), "cpu", reason)
    load, use = load[below], use[below]
    if len(load) < _LEAST or use.mean() < _LEAST_USE:
        return None
    low, high = np.percentile(load, [5, 95])
    if len(load) < MIN_SECONDS or high - low < MIN_SPREAD * high:
        return proportional(load, use, "loads too similar")
    slope, idle, slope_se = line(load, use)
    if slope < 2 * slope_se or slope * (high - low) < _LEAST_RISE:
        return None
    rps = (1 - idle) / slope
    return Capacity(rps, "cpu", f"line through {_seen(load)}, {idle:.1%} idle", se=rps * slope_se / slope)


def proportional(load: Floats, use: Floats, why: str) -> Capacity | None:
    """Returns the capacity of a pod whose whole CPU use is due to requests.

    Where CPU is the limit, the value can only be too low. None where hardly any CPU is used.
    """
    if not len(load) or load.sum() <= 0 or use.mean() < _LEAST_USE:
        return None
    return Capacity(
        float(load.sum() / use.sum()), "cpu", f"{_seen(load)}: {why}; CPU use assumed to be proportional"
    )


def _seen(load: Floats) -> str:
    low, high = np.percentile(load, [5, 95])
    return f"{len(load)} s of CPU at {low:.1f} to {high:.1f} rps"


def line(load: Floats, use: Floats) -> tuple[float, float, float]:
    """Fits a robust line of CPU use over load.

    Returns the slope (CPU share per rps), the CPU share at no load (0 to 0.5), and the standard
    error of the slope. The scatter of a second's work grows with the root of its amount, so seconds
    have weight 1 / use. Distant seconds (a deployment, garbage collection) count by soft L1.
    """
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
    # Neighbouring seconds are not independent: they share what lies in both of their windows.
    chance = rates.WIDTHS[0] * np.sum(weight * error**2 * variance) / len(load)
    return slope, idle, float(np.sqrt(chance * np.linalg.pinv(normal)[0, 0]))


def _bounded_line(design: Floats, use: Floats, weight: Floats) -> tuple[float, float]:
    slope, idle = np.linalg.lstsq((design.T * weight) @ design, design.T @ (weight * use), rcond=None)[0]
    if not 0 <= idle <= _MAX_IDLE:
        idle = min(max(idle, 0.0), _MAX_IDLE)
        slope = np.sum(weight * design[:, 0] * (use - idle)) / np.sum(weight * design[:, 0] ** 2)
    return float(slope), float(idle)
