"""The convex problem that both solvers minimise, in milliseconds of waiting per second.

    min  sum_sc phi(n[s,c])  +  sum_kc beta[k,c] * load[k,c]  +  sum_e hops[e] * flows[e]
    n    normalised load of a service in a cluster; phi is in stations.py

The flows conserve requests, go only where they may, and give every route at least its floor.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from spillway_optimizer.problem.arrays import Bools, Floats
from spillway_optimizer.problem.layout import Layout
from spillway_optimizer.problem.penalties import beyond_budget
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.solvers.stations import Stations

_RESOLUTION = 1e-6


@dataclass(frozen=True)
class Stop:
    """When refining ends: at the relative gap, or at a limit with the best result so far."""

    relative_gap: float = 1e-4
    rounds: int = 60
    seconds: float = 30.0
    clock: Callable[[], float] = time.monotonic


def relative_gap(value: float, bound: float, beyond: float) -> float:
    """Returns (value - bound) relative to what the routing costs without `beyond`.

    `beyond` is the penalty for exceeding ceiling and budget. It is left out, because an unavoidable
    penalty would make the gap of a bad routing look small. The denominator is never so small that
    arithmetic could not tell the difference.
    """
    return (value - bound) / max(abs(value - beyond), _RESOLUTION * abs(value), 1e-9)


@dataclass(frozen=True)
class Minimum:
    """Flows [E, C, C] in rps, their cost, and a lower bound on any flows' cost (ms per second)."""

    flows: Floats
    value: float
    bound: float


@dataclass(frozen=True)
class Convex:
    """A convex problem: `alpha` [S, C] >= 0 and `beta` [K, C], both in ms.

    `egress_price` multiplies the worth of egress.
    """

    problem: Problem
    alpha: Floats
    beta: Floats
    egress_price: float = 1.0

    @property
    def layout(self) -> Layout:
        return self.problem.layout

    @cached_property
    def hops(self) -> Floats:
        """[E, from, to] ms per call: network and the worth of egress; inf where calls cannot go."""
        layout = self.layout
        worth = self.egress_price / self.problem.usd_per_ms
        cost = layout.hop_wait[:, None, None] * np.where(np.isfinite(layout.rtt), layout.rtt, 0.0)
        return np.where(layout.usable, cost + layout.egress * worth, np.inf)

    @cached_property
    def stations(self) -> Stations:
        """[S, C] cost functions of the stations."""
        ceiling = self.problem.constraints.utilisation_ceiling
        return Stations(self.alpha, self.layout.capacity, np.inf if ceiling is None else ceiling)

    @cached_property
    def priced(self) -> Bools:
        """[S, C] bool: a service is placed there, and its load has a price of its own."""
        return self.layout.placed & self.stations.priced

    def normalised(self, load: Floats) -> Floats:
        """Returns normalised loads [S, C] from loads [K, C]."""
        total = np.zeros_like(self.layout.capacity)
        np.add.at(total, self.layout.class_service, self.layout.weight[:, None] * load)
        return total

    def value(self, flows: Floats, load: Floats) -> float:
        """Returns the cost in ms per second, with the penalties for exceeded limits."""
        hops = np.where(self.layout.usable, self.hops, 0.0)
        cost = (
            self.stations.phi(self.normalised(load)).sum() + (self.beta * load).sum() + (hops * flows).sum()
        )
        return float(cost) + beyond_budget(self.problem, flows)
