"""Newton's method on the prices of one application, at falling temperatures (see dual.py)."""

from dataclasses import dataclass, replace

import numpy as np

from spillway_optimizer.problem.arrays import Bools, Floats
from spillway_optimizer.solvers.application import Application, Routing
from spillway_optimizer.solvers.convex import Convex, Stop, relative_gap
from spillway_optimizer.solvers.response import Calls

_COOLING = 0.7
_FIRST_GAP = 0.1  # stands for the gap at the previous temperature, where a cold solve begins
_FIRST_TAU = 0.15  # relative to the mean cost of a request
_LAST_TAU = 1e-9  # relative to the mean cost of a request
_NEWTON_STEPS = 40  # at most, per temperature
_NEWTON_TOLERANCE = 0.3  # relative to the gap at the previous temperature
_WARMING = 8.0  # factor on the temperature where Newton's method does not converge
_FAILURES = 6  # most warmings in a row
# Levenberg's damping, used when a step would lower the dual.
_LEAST_DAMPING, _MOST_DAMPING, _HARDER = 0.1, 1e4, 10.0
_MOST_LOAD = 10.0  # highest utilisation that a step of load may reach
# Least logarithm of a share, so that a destination that was given up can come back.
_LEAST_PRIOR = -30.0
# A warm solve begins this much warmer than the other solve ended, around its shares. None of them
# counts as less than _WARM_SHARE. Newton's method needs few steps then. If it needs more, the start
# was too cold for what has changed.
_WARM_TAU = 2.0
_WARM_SHARE = 0.03
_WARM_STEPS = 8  # at most, per temperature, before the solve goes on as a cold one


@dataclass(frozen=True)
class Start:
    """Where a warm solve begins: the result of another solve with the same stations and edges."""

    price: Floats  # [S, C] ms
    free: Floats  # [E, C, C] split of the calls that floors leave free
    tau: float  # ms


@dataclass(frozen=True)
class Found:
    """The best result of one application.

    `value`, `beyond` and `bound` are in ms of waiting per second, prices and tau in ms.
    """

    value: float
    beyond: float  # part of the value that is the penalty for exceeding the ceiling
    bound: float
    routing: Routing
    calls: Floats  # [E, C] rps
    price: Floats  # [D]
    tau: float


class Newton:
    """Finds the prices of one application."""

    def __init__(self, convex: Convex, application: Application, stop: Stop, until: float):
        self.app, self.stop, self.until = application, stop, until
        self.usable = np.isfinite(application.hops)
        self.hops = np.where(self.usable, application.hops, 0.0)
        s, _ = application.trees.places
        self.envelope, self.stations = application.envelope, application.envelope.stations
        heaviest = np.zeros(len(application.trees.services))
        np.maximum.at(heaviest, application.trees.class_service, application.weight)
        self.weight = heaviest[s]  # [D]

    def run(self, start: Start | None) -> Found:
        """Minimises the application.

        The temperature falls, around better and better shares, until the gap is small enough or the
        time is over.
        """
        price, prior, tau = self._first(start)
        steps = _NEWTON_STEPS if start is None else _WARM_STEPS
        best, gap, failed = None, _FIRST_GAP if start is None else self.stop.relative_gap, 0
        while True:
            tolerance = _NEWTON_TOLERANCE * max(gap, self.stop.relative_gap)
            settled = self._settle(price, tau, prior, tolerance, steps)
            best = self._better(best, settled, tau)
            gap = relative_gap(best.value, best.bound, best.beyond)
            if gap <= self.stop.relative_gap or self._late() or tau < self.last_tau or failed > _FAILURES:
                return best
            if settled.converged:
                price, prior, failed = settled.price, self._log(settled.routing.free), 0
                tau *= _COOLING
            else:
                # A warmer step moves the shares less, and the prior keeps what is gained.
                tau, failed, steps = tau * _WARMING, failed + 1, _NEWTON_STEPS

    def _first(self, start: Start | None) -> tuple[Floats, Floats, float]:
        """Returns the first prices, prior and temperature."""
        app, stations = self.app, self.stations
        idle = stations.slope(0.5 * stations.capacity)
        far = float(self.hops.sum()) / max(int(self.usable.sum()), 1)
        scale = max(abs(app.cheapest(idle)) / max(float(app.demand.sum()), 1e-9) + far, 1e-6)
        self.last_tau = _LAST_TAU * scale
        if start is None:
            return idle, app.trees.evenly, _FIRST_TAU * scale
        s, c = app.trees.places
        price = np.maximum(start.price[app.trees.services[s], c], stations.alpha)
        prior = np.where(
            app.trees.free, np.log(np.maximum(start.free[app.trees.edges], _WARM_SHARE)), -np.inf
        )
        return price, prior, _WARM_TAU * start.tau

    def _late(self) -> bool:
        return self.stop.clock() > self.until

    def _log(self, free: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            return np.where(self.app.trees.free, np.maximum(np.log(free), _LEAST_PRIOR), -np.inf)

    def _better(self, best: Found | None, settled: "_Settled", tau: float) -> Found:
        """Returns the cheapest routing and the highest bound so far."""
        app, stations, price = self.app, self.stations, settled.price
        n = app.normalised(settled.load)
        value = self._value(settled, n)
        bound = app.cheapest(price) - settled.conjugate
        if not settled.converged:
            # These prices may be far away. Those that the load pays are then better ones.
            other = self.envelope.reference(n)
            bound = max(bound, app.cheapest(other) - float(stations.conjugate(other).sum()))
        bound = bound if best is None else max(best.bound, bound)
        if best is not None and best.value <= value:
            return replace(best, bound=bound)
        return Found(
            value,
            float(stations.beyond(self.envelope.total(n)).sum()),
            bound,
            settled.routing,
            settled.calls,
            price,
            tau,
        )

    def _settle(self, price: Floats, tau: float, prior: Floats, tolerance: float, steps: int) -> "_Settled":
        """Maximises the smooth dual by Newton's method, damped where a step would lower it.

        The method ends when what is left to gain is at most `tolerance`, relative to the dual, or
        after `steps`.
        """
        stations, damping = self.stations, 0.0
        at = self._at(price, tau, prior)
        for _ in range(steps):
            n = self.app.normalised(at.load)
            left = self.envelope.left(at.price, n, at.conjugate)
            beyond = float(stations.beyond(self.envelope.total(n)).sum())
            if left <= tolerance * max(abs(at.dual) - beyond, 1e-6 * abs(at.dual), 1e-9):
                return replace(at, converged=True)
            if self._late():
                return at
            pull = self.envelope.pull(at.price)
            drawn = self.envelope.total(pull * n)
            excess = drawn - at.paid
            system = self._system(at, tau, pull)
            system.flat[:: len(system) + 1] += self.envelope.stiffening(at.price, n)
            # Upper limit of how attracted load can respond: all of it moves at once.
            most = np.maximum(drawn * self.weight / tau, 1e-300)
            free = (at.price > stations.alpha) | (excess > 0)
            while True:
                step, falls = self._step(system, damping * most, at.price, excess, free)
                enough = at.dual + 1e-3 * float(excess @ step)
                tried = self._best_of(at, step, enough, tau, prior)
                if tried.dual >= enough:
                    break
                if falls.any():
                    free &= ~falls
                    continue
                damping = max(_HARDER * damping, _LEAST_DAMPING)
                if damping > _MOST_DAMPING:
                    return at
            at = tried
            damping = damping / _HARDER**2 if damping > _LEAST_DAMPING else 0.0
        return at

    def _best_of(self, at: "_Settled", step: Floats, enough: float, tau: float, prior: Floats) -> "_Settled":
        """Tries a step of the prices, or of the loads that they pay for. Returns the better one.

        The step of the loads is tried only where the step of the prices does not raise the dual
        enough, or more than doubles a price. The step of the prices is then too short or too long.
        """
        stations, by_price = self.stations, self._at(at.price + step, tau, prior)
        if by_price.dual >= enough and not (step > at.price).any():
            return by_price
        moved = at.paid + step / np.maximum(stations.curvature(at.paid), 1e-300)
        by_load = self._at(stations.slope(np.clip(moved, 0.0, _MOST_LOAD * stations.capacity)), tau, prior)
        return max(by_price, by_load, key=lambda tried: tried.dual)

    def _at(self, price: Floats, tau: float, prior: Floats) -> "_Settled":
        price = np.maximum(price, self.stations.alpha)
        routing = self.app.route(price, tau, prior)
        paid = self.stations.at(price)
        conjugate = float((price * paid - self.stations.phi(paid)).sum())
        dual = float((self.app.demand * routing.cost).sum()) - conjugate
        load, calls = self.app.push(routing.shares)
        return _Settled(price, routing, calls, load, paid, conjugate, dual, False)

    def _system(self, at: "_Settled", tau: float, pull: Floats) -> Floats:
        """Returns how the difference of load paid for and load attracted responds to prices [D, D].

        Attracted load responds by the spread of what a row's destinations visit. This is the
        covariance of the visits under the free shares, divided by tau.
        """
        app, routing = self.app, at.routing
        can_move = routing.free.max(axis=2) < 1.0 - 1e-9
        free_rps = np.where(can_move, app.trees.rest * at.calls, 0.0)
        calls = Calls(routing.shares, routing.free, free_rps, app.weight[:, None] * pull)
        system = app.trees.response.matrix(calls) / tau
        steepness = self.stations.curvature(at.paid)
        system.flat[:: len(system) + 1] += 1.0 / np.maximum(steepness, 1e-300)
        return system

    def _step(
        self,
        system: Floats,
        damping: Floats,
        price: Floats,
        excess: Floats,
        free: Bools,
    ) -> tuple[Floats, Bools]:
        """Returns Newton's step [D] of the free prices, and which of them [D] it had to stop.

        A price stops at that of an idle station. Prices that are not free go there.
        """
        least = self.stations.alpha - price
        if free.all():
            damped = system.copy()
            damped.flat[:: len(damped) + 1] += damping
            step = np.linalg.solve(damped, excess)
        else:
            step, at = least.copy(), np.flatnonzero(free)
            damped = system[np.ix_(at, at)]
            damped.flat[:: len(at) + 1] += damping[at]
            step[at] = np.linalg.solve(damped, excess[at] - system[np.ix_(at, ~free)] @ least[~free])
        return np.maximum(step, least), free & (step < least)

    def _value(self, settled: "_Settled", n: Floats) -> float:
        paid = float((settled.calls * (self.hops * settled.routing.shares).sum(axis=2)).sum())
        return paid + float((self.app.beta * settled.load).sum()) + float(self.envelope.cost(n).sum())


@dataclass(frozen=True)
class _Settled:
    """Prices, and the routing that they lead to."""

    price: Floats  # [D]
    routing: Routing
    calls: Floats  # [E, C]
    load: Floats  # [K, C]
    paid: Floats  # [D] load that the prices pay for
    conjugate: float  # of the stations, summed
    dual: float  # value of the smooth dual
    converged: bool
