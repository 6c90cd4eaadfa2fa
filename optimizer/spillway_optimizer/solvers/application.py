"""One application as the dual solver sees it: its call trees are walked level by level.

The classes of an application share no service with others. Shapes: K classes, E edges, C clusters
of this application; D stations whose load has a price.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from spillway_optimizer.problem.arrays import Bools, Floats, Ints
from spillway_optimizer.solvers.convex import Convex
from spillway_optimizer.solvers.envelope import Envelope
from spillway_optimizer.solvers.levels import Bundle, Level, bundles, levels, stations
from spillway_optimizer.solvers.stations import Stations


@dataclass(frozen=True)
class Routing:
    """Shares of calls at given prices, and what one request of each class then costs."""

    cost: Floats  # [K, C] ms
    # [E, C, C] split of the calls that floors leave free; rows sum to 1 (0: no calls)
    free: Floats
    shares: Floats  # [E, C, C]


@dataclass(frozen=True)
class Application:
    """The arrays of one application."""

    classes: Ints  # [K] index in the layout
    edges: Ints  # [E] index in the layout
    services: Ints  # [S] index in the layout
    class_service: Ints  # [K] index in `services`
    station: Ints  # [S, C] index below D, or -1: no price
    reference: Stations  # [S, C] costs of a class of middling alpha
    alone: Stations  # [K, C] costs of each class alone
    weight: Floats  # [K]
    beta: Floats  # [K, C] ms
    demand: Floats  # [K, C] rps
    hops: Floats  # [E, C, C] ms; inf where calls cannot go
    floor: Floats  # [E, C, C]
    rest: Floats  # [E, C] share of the calls that the floors leave free
    open: Bools  # [E, C] rows that have a free destination
    free: Bools  # [E, C, C] where more than the floor may go
    held: bool  # whether any usable destination is not free
    floors: bool  # whether any floor is above 0
    bundles: tuple[Bundle, ...]
    up: tuple[Level, ...]  # callees before their callers
    down: tuple[Level, ...]  # callers before their callees

    @classmethod
    def of(cls, convex: Convex, classes: Ints) -> Self:
        """Takes the given classes (indices in the layout) out of a convex problem."""
        layout = convex.layout
        edges = np.flatnonzero(np.isin(layout.edge_source, classes))
        services, class_service = np.unique(layout.class_service[classes], return_inverse=True)
        priced = convex.priced[services]
        usable, floor, free = layout.usable[edges], layout.floor[edges], layout.free[edges]
        up, down = levels(layout, classes, edges)
        station = stations(priced, class_service, up)
        return cls(
            classes, edges, services, class_service, station,
            reference=convex.stations[services],
            alone=convex.envelope.classes[classes],
            weight=layout.weight[classes],
            beta=convex.beta[classes],
            demand=layout.demand[classes],
            hops=convex.hops[edges],
            floor=floor,
            rest=np.maximum(1.0 - floor.sum(axis=2), 0.0),
            open=np.any(free, axis=2),
            free=free,
            held=bool((usable & ~free).any()),
            floors=bool(floor.any()),
            bundles=bundles(station, class_service, up),
            up=up,
            down=down,
        )  # fmt: skip

    @cached_property
    def envelope(self) -> Envelope:
        """What the load of the stations costs."""
        return Envelope(self.reference[self.places], self.alone, self.station[self.class_service])

    def serving_ms(self, price: Floats) -> Floats:
        """[K, C] ms that a request costs where it is served, at reference prices [D]."""
        serving_ms: Floats = self.beta + self.weight[:, None] * self.envelope.prices(price)
        return serving_ms

    @cached_property
    def places(self) -> tuple[Ints, Ints]:
        """Service and cluster of each station, as two index arrays [D]."""
        s, c = np.nonzero(self.station >= 0)
        order = np.argsort(self.station[s, c])
        return s[order], c[order]

    @cached_property
    def serving_visits(self) -> Floats:
        """[K, C, D] normalised load that a request brings to the station that serves it."""
        visits = np.zeros((*self.demand.shape, int(self.station.max(initial=-1)) + 1))
        k, c = np.nonzero(self.station[self.class_service] >= 0)
        visits[k, c, self.station[self.class_service[k], c]] = self.weight[k]
        return visits

    def evenly(self) -> Floats:
        """[E, C, C] logarithms of equal shares; -inf where calls cannot go."""
        return np.where(self.free, -np.log(np.maximum(self.free.sum(axis=2), 1))[:, :, None], -np.inf)

    def cheapest(self, price: Floats) -> float:
        """Returns the cost of all demand when each call goes the cheapest way at prices [D].

        By weak duality, no routing costs less than this minus the stations' conjugates at these
        prices. Unit: ms of waiting per second.
        """
        cost = self.serving_ms(price)
        for level in self.up:
            calls = self._calls(level, cost)
            least = np.where(self.free[level.edges], calls, np.inf) if self.held else calls
            value = self.rest[level.edges] * np.where(self.open[level.edges], least.min(axis=2), 0.0)
            cost += level.to_source @ (value + self._kept(level, calls))
        return float((self.demand * cost).sum())

    def route(self, price: Floats, tau: float, prior: Floats) -> Routing:
        """Splits the free calls of each row by logit, at temperature `tau` (ms).

        The split is around `prior` [E, C, C], logarithms of shares. It minimises the cost plus tau
        times the relative entropy to the prior.
        """
        cost = self.serving_ms(price)
        free = np.zeros_like(self.hops)
        for level in self.up:
            e = level.edges
            calls, shut = self._calls(level, cost), ~self.open[e]
            logits = prior[e] - calls / tau
            most = logits.max(axis=2)
            most[shut] = 0.0
            weights = np.exp(logits - most[:, :, None])
            total = weights.sum(axis=2)
            total[shut] = 1.0
            free[e] = weights / total[:, :, None]
            value = -tau * self.rest[e] * (most + np.log(total))
            cost += level.to_source @ (value + self._kept(level, calls))
        return Routing(cost, free, self.floor + self.rest[:, :, None] * free)

    def _calls(self, level: Level, cost: Floats) -> Floats:
        """[n, from, to] ms that one call costs."""
        return self.hops[level.edges] + cost[level.target][:, None, :]

    def _kept(self, level: Level, calls: Floats) -> Floats | float:
        """[n, from] ms of those calls whose destination a floor decides, per call of the row."""
        if not self.floors:
            return 0.0
        floor = self.floor[level.edges]
        kept: Floats = (floor * np.where(floor > 0, calls, 0.0)).sum(axis=2)
        return kept

    def push(self, shares: Floats) -> tuple[Floats, Floats]:
        """Returns loads [K, C] and calls per row [E, C], in rps, that follow from shares."""
        load, calls = self.demand.copy(), np.zeros(shares.shape[:2])
        for level in self.down:
            made = level.ratio * load[level.source]
            calls[level.edges] = made
            load += level.to_target @ np.matmul(made[:, None, :], shares[level.edges])[:, 0, :]
        return load, calls

    def normalised(self, load: Floats) -> Floats:
        """Returns normalised loads [K, C] from loads [K, C]."""
        return self.weight[:, None] * load
