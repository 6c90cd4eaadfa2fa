"""The convex problem that both solvers minimise, in milliseconds of waiting per second.

    min  sum_sc envelope(n[s,c])  +  sum_kc beta[k,c] * load[k,c]  +  sum_e hops[e] * flows[e]
    n    normalised loads of a service's classes in a cluster; see envelope.py and stations.py

The flows conserve requests, go only where they may, and give every route at least its floor.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from spillway_optimizer.problem.arrays import Bools, Floats
from spillway_optimizer.problem.layout import Layout
from spillway_optimizer.problem.penalties import beyond_budget, relative
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.solvers.envelope import Envelope
from spillway_optimizer.solvers.stations import Stations


@dataclass(frozen=True)
class Stop:
    """When refining ends: at the relative gap, or at a limit with the best result so far."""

    relative_gap: float = 1e-4
    rounds: int = 60
    seconds: float = 30.0
    clock: Callable[[], float] = time.monotonic


def relative_gap(value: float, bound: float, beyond: float) -> float:
    """Returns (value - bound) relative to what the routing costs without the penalty `beyond`."""
    return relative(value - bound, value - beyond, beyond)


@dataclass(frozen=True)
class Minimum:
    """Flows [E, C, C] in rps, their cost, and a lower bound on any flows' cost (ms per second).

    `price` [S, C]: ms that one more normalised request costs at each station. `egress_price`
    multiplies the worth of egress, so that a budget is kept.
    """

    flows: Floats
    value: float
    bound: float
    price: Floats
    egress_price: float = 1.0


@dataclass(frozen=True)
class Convex:
    """A convex problem: `alpha` [K, C] >= 0 and `beta` [K, C], both in ms.

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
        cost = layout.hop_worth[:, None, None] * np.where(np.isfinite(layout.rtt), layout.rtt, 0.0)
        return np.where(layout.usable, cost + layout.egress * worth, np.inf)

    @cached_property
    def stations(self) -> Stations:
        """[S, C] cost functions of the stations for a class of middling alpha."""
        service, shape = self.layout.class_service, self.layout.capacity.shape
        least, most, root, count = np.full(shape, np.inf), np.zeros(shape), np.zeros(shape), np.zeros(shape)
        np.minimum.at(least, service, self.alpha)
        np.maximum.at(most, service, self.alpha)
        np.add.at(root, service, np.sqrt(self.alpha))
        np.add.at(count, service, 1.0)
        return self._stations(
            np.where(most > least, (root / count) ** 2, least), self.layout.capacity, self.layout.seen
        )

    def _stations(self, alpha: Floats, capacity: Floats, seen: Floats) -> Stations:
        return Stations(alpha, capacity, self.ceiling, seen, self.problem.extrapolation_caution)

    @property
    def ceiling(self) -> float:
        """The utilisation ceiling; inf: none."""
        ceiling = self.problem.constraints.utilisation_ceiling
        return np.inf if ceiling is None else ceiling

    @cached_property
    def priced(self) -> Bools:
        """[S, C] bool: a service is placed there, and its load has a price of its own."""
        return self.layout.placed & self.stations.priced

    @cached_property
    def envelope(self) -> Envelope:
        """The stations' costs. Station s * C + c is service s in cluster c."""
        layout, count = self.layout, self.layout.capacity.size
        service = layout.class_service
        number = np.where(self.priced, np.arange(count).reshape(layout.capacity.shape), -1)
        stations = self._stations(self.stations.alpha.ravel(), layout.capacity.ravel(), layout.seen.ravel())
        alone = self._stations(self.alpha, layout.capacity[service], layout.seen[service])
        return Envelope(stations, alone, number[service])

    def normalised(self, load: Floats) -> Floats:
        """Returns normalised loads [K, C] from loads [K, C]."""
        return self.layout.weight[:, None] * load

    def value(self, flows: Floats, load: Floats) -> float:
        """Returns the cost in ms per second, with the penalties for exceeded limits."""
        hops = np.where(self.layout.usable, self.hops, 0.0)
        cost = (
            self.envelope.cost(self.normalised(load)).sum() + (self.beta * load).sum() + (hops * flows).sum()
        )
        return float(cost) + beyond_budget(self.problem, flows)


def seconds_for(convex: Convex, left: float) -> float:
    """Returns how much of the time left a solve may take.

    A relaxation leaves half of it for the descent that follows.
    """
    return max(left if convex.envelope.even else left / 2, 0.0)
