"""One application as the dual solver sees it: its call trees are walked level by level.

The classes of an application share no service with others. Shapes: K classes, E edges, C clusters
of this application; D stations whose load has a price.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.solvers.convex import Convex
from spillway_optimizer.solvers.envelope import Envelope
from spillway_optimizer.solvers.levels import Level
from spillway_optimizer.solvers.stations import Stations
from spillway_optimizer.solvers.trees import Trees


@dataclass(frozen=True)
class Routing:
    """Shares of calls at given prices, and what one request of each class then costs."""

    cost: Floats  # [K, C] ms
    # [E, C, C] split of the calls that floors leave free; rows sum to 1 (0: no calls)
    free: Floats
    shares: Floats  # [E, C, C]


@dataclass(frozen=True)
class Application:
    """The costs and loads of one application, and its call trees."""

    trees: Trees
    reference: Stations  # [S, C] costs of a class of middling alpha
    alone: Stations  # [K, C] costs of each class alone
    weight: Floats  # [K]
    beta: Floats  # [K, C] ms
    demand: Floats  # [K, C] rps
    hops: Floats  # [E, C, C] ms; inf where calls cannot go

    @classmethod
    def of(cls, convex: Convex, trees: Trees) -> Self:
        """Takes the classes and edges of the trees out of a convex problem."""
        layout, classes = convex.layout, trees.classes
        return cls(
            trees,
            reference=convex.stations[trees.services],
            alone=convex.envelope.classes[classes],
            weight=layout.weight[classes],
            beta=convex.beta[classes],
            demand=layout.demand[classes],
            hops=convex.hops[trees.edges],
        )

    @cached_property
    def envelope(self) -> Envelope:
        """What the load of the stations costs."""
        trees = self.trees
        return Envelope(self.reference[trees.places], self.alone, trees.station[trees.class_service])

    def serving_ms(self, price: Floats) -> Floats:
        """[K, C] ms that a request costs where it is served, at reference prices [D]."""
        serving_ms: Floats = self.beta + self.weight[:, None] * self.envelope.prices(price)
        return serving_ms

    def cheapest(self, price: Floats) -> float:
        """Returns the cost of all demand when each call goes the cheapest way at prices [D].

        By weak duality, no routing costs less than this minus the stations' conjugates at these
        prices. Unit: ms of waiting per second.
        """
        trees, cost = self.trees, self.serving_ms(price)
        for level in trees.up:
            e = level.edges
            calls = self._calls(level, cost)
            least = np.where(trees.free[e], calls, np.inf) if trees.held else calls
            value = trees.rest[e] * np.where(trees.open[e], least.min(axis=2), 0.0)
            cost += level.to_source @ (value + self._kept(level, calls))
        return float((self.demand * cost).sum())

    def route(self, price: Floats, tau: float, prior: Floats) -> Routing:
        """Splits the free calls of each row by logit, at temperature `tau` (ms).

        The split is around `prior` [E, C, C], logarithms of shares. It minimises the cost plus tau
        times the relative entropy to the prior.
        """
        trees, cost = self.trees, self.serving_ms(price)
        free = np.zeros_like(self.hops)
        for level in trees.up:
            e = level.edges
            calls, shut = self._calls(level, cost), ~trees.open[e]
            logits = prior[e] - calls / tau
            most = logits.max(axis=2)
            most[shut] = 0.0
            weights = np.exp(logits - most[:, :, None])
            total = weights.sum(axis=2)
            total[shut] = 1.0
            free[e] = weights / total[:, :, None]
            value = -tau * trees.rest[e] * (most + np.log(total))
            cost += level.to_source @ (value + self._kept(level, calls))
        shares = trees.floor + trees.rest[:, :, None] * free if trees.floors else free
        return Routing(cost, free, shares)

    def _calls(self, level: Level, cost: Floats) -> Floats:
        """[n, from, to] ms that one call costs."""
        return self.hops[level.edges] + cost[level.target][:, None, :]

    def _kept(self, level: Level, calls: Floats) -> Floats | float:
        """[n, from] ms of those calls whose destination a floor decides, per call of the row."""
        if not self.trees.floors:
            return 0.0
        floor = self.trees.floor[level.edges]
        kept: Floats = (floor * np.where(floor > 0, calls, 0.0)).sum(axis=2)
        return kept

    def push(self, shares: Floats) -> tuple[Floats, Floats]:
        """Returns loads [K, C] and calls per row [E, C], in rps, that follow from shares."""
        load, calls = self.demand.copy(), np.zeros(shares.shape[:2])
        for level in self.trees.down:
            made = level.ratio * load[level.source]
            calls[level.edges] = made
            load += level.to_target @ np.matmul(made[:, None, :], shares[level.edges])[:, 0, :]
        return load, calls

    def normalised(self, load: Floats) -> Floats:
        """Returns normalised loads [K, C] from loads [K, C]."""
        return self.weight[:, None] * load
