"""Proves how far a routing is from the global optimum, by mixed-integer programmes of OR-Tools.

The convex relaxation mixes loads of a station that are far apart. Here the range of a station's
load is cut into pieces, a binary chooses one, and only loads of that piece are mixed (pieces.py).
Pieces are split where the programme's answer costs more than it says. The programme's own bound is
a lower bound on the cost of every routing.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from ortools.math_opt.python import mathopt

from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.layout import Layout
from spillway_optimizer.programmes.outer import Programme
from spillway_optimizer.programmes.pieces import Piece
from spillway_optimizer.solvers.convex import Convex, Stop
from spillway_optimizer.solvers.descent import penalised, proven_gap
from spillway_optimizer.solvers.stations import Stations

_FIRST_TANGENTS = 6
_MARGIN = 0.1  # a piece is not split nearer to its ends than this part of it
_WORST = 0.3  # stations that miss this part of what the worst one misses are split too
_PART = 0.25  # of the gap that a programme may leave
_ROUNDING = 1e-6  # relative, of the programmes' arithmetic


def certify(
    convex: Convex, flows: Floats, bound: float, improve: Callable[[Floats], Floats], stop: Stop
) -> tuple[Floats, float, tuple[str, ...]]:
    """Closes the gap between a routing and a bound, until it is small enough or the time is over.

    `convex`: the relaxation. `flows`: [E, C, C] in rps. `improve`: a descent from a routing.
    Returns the best flows, the highest bound (ms of waiting per second) and notes. A programme that
    fails ends it with what is known. So does one whose bound is above the cost of a routing, which
    would be wrong. A note then states that.
    """
    problem, until, rounds = convex.problem, stop.clock() + stop.seconds, 0
    notes: tuple[str, ...] = ()
    programme = _Pieces(convex)
    while (
        proven_gap(problem, flows, bound) > stop.relative_gap
        and rounds < stop.rounds
        and stop.clock() < until
    ):
        rounds += 1
        found = programme.solve(until - stop.clock(), stop.relative_gap * _PART)
        if found is None:
            break
        routing, load, low = found
        flows = min((flows, routing, improve(routing)), key=lambda f: penalised(problem, f))
        cost = penalised(problem, flows)
        if low > cost + _ROUNDING * abs(cost):
            above = (low - cost) / max(abs(cost), _ROUNDING)
            notes = (
                f"a programme's bound is wrong, {above:.2g} times the cost above a routing; it is not used",
            )
            break
        bound = min(max(bound, low), cost)
        if not programme.refine(load):
            break
    return flows, bound, notes


@dataclass
class _Variables:
    """A piece in the programme."""

    piece: Piece
    chosen: mathopt.Variable
    loads: list[mathopt.Variable]  # normalised, by class at the station
    cost: mathopt.Variable
    most: mathopt.LinearConstraint  # sum(loads) <= high * chosen


@dataclass
class _Station:
    """A station with pieces, and the constraints that join them."""

    pieces: list[_Variables]
    single: mathopt.LinearConstraint  # one of the pieces is chosen
    shares: list[mathopt.LinearConstraint]  # the pieces' loads of a class are its load
    total: mathopt.LinearConstraint  # the pieces' costs are its cost


class _Pieces(Programme):
    """The relaxation's programme, and the pieces of the stations whose classes differ."""

    def __init__(self, convex: Convex):
        super().__init__(convex)
        self._highest = _most_load(convex.layout)
        self._cut: dict[int, _Station] = {}

    def solve(self, seconds: float, gap: float) -> tuple[Floats, Floats, float] | None:
        """Returns flows, loads and the programme's bound.

        None if the time was not enough, or if the arithmetic of the solver was not.
        """
        result = self.solve_integer(seconds, gap)
        if result is None:
            return None
        self._result = result.variable_values()
        flows, load = self.read(self._result)
        return flows, load, result.termination.objective_bounds.dual_bound

    def refine(self, load: Floats) -> bool:
        """Adds tangents, and splits pieces, where the answer costs more than the programme says.

        Returns False when it does so nowhere.
        """
        n = self._convex.normalised(load)
        added = self.cut(load)
        missing: dict[int, float] = {}
        for station in map(int, self._stations):
            if self._envelope.uneven[station]:
                loads = self._loads(n, station)
                true = self._cost(station, loads)
                stated = self._result[self._phi[station]]
                if true - stated > 1e-9 * max(true, 1e-9):
                    missing[station] = true - stated
        worst = max(missing.values(), default=0.0)
        for station, misses in missing.items():
            if misses >= _WORST * worst:
                self._split(station, self._loads(n, station))
                added = True
        return added

    def _loads(self, n: Floats, station: int) -> Floats:
        return np.array([n[k, c] for k, c in self._at[station]])

    def _classes(self, station: int) -> Stations:
        k, c = (np.array(index) for index in zip(*self._at[station], strict=True))
        return self._envelope.classes[k, c]

    def _cost(self, station: int, loads: Floats) -> float:
        """Returns what these loads really cost together."""
        classes, total = self._classes(station), float(loads.sum())
        if total <= 0:
            return 0.0
        alone = classes.phi(np.full_like(loads, total))
        return float((loads / total * alone).sum())  # A * g(N) and the penalty, as a mixture of the axes

    def _split(self, station: int, loads: Floats) -> None:
        """Splits the chosen piece of a station at its load, or as near to it as margins allow."""
        total = float(loads.sum())
        if station not in self._cut:
            whole = Piece(self._classes(station), 0.0, max(self._highest[station], total * 1.01))
            self._cut[station] = self._join(station, whole)
        cut = self._cut[station]
        old = max(cut.pieces, key=lambda variables: self._result.get(variables.chosen, 1.0))
        low, high = old.piece.low, old.piece.high
        margin = _MARGIN * (high - low)
        at = min(max(total, low + margin), high - margin)
        below, above = old.piece.split(at)
        old.piece = below
        old.most.set_coefficient(old.chosen, -at)
        new = self._add(station, cut, above)
        for variables in (old, new):
            inside = loads * (min(max(total, variables.piece.low), variables.piece.high) / max(total, 1e-12))
            thetas = [*variables.piece.thetas(_FIRST_TANGENTS), variables.piece.best(inside)]
            for theta in thetas:
                self._tangent_of(variables, theta)

    def _join(self, station: int, whole: Piece) -> _Station:
        model = self.model
        layout = self._layout
        cut = _Station(
            [],
            model.add_linear_constraint(lb=1.0, ub=1.0),
            [model.add_linear_constraint(lb=0.0, ub=0.0) for _ in self._at[station]],
            model.add_linear_constraint(lb=0.0),
        )
        for (k, c), share in zip(self._at[station], cut.shares, strict=True):
            share.set_coefficient(self._load[k][c], -float(layout.weight[k]))
        cut.total.set_coefficient(self._phi[station], 1.0)
        self._add(station, cut, whole)
        return cut

    def _add(self, station: int, cut: _Station, piece: Piece) -> _Variables:
        """Adds a piece to a station of the programme."""
        model = self.model
        chosen, cost = model.add_binary_variable(), model.add_variable(lb=0.0)
        loads = [model.add_variable(lb=0.0) for _ in self._at[station]]
        cut.single.set_coefficient(chosen, 1.0)
        cut.total.set_coefficient(cost, -1.0)
        for share, load in zip(cut.shares, loads, strict=True):
            share.set_coefficient(load, 1.0)
        total = mathopt.fast_sum(loads)
        model.add_linear_constraint(total >= piece.low * chosen)
        most = model.add_linear_constraint(total <= piece.high * chosen)
        variables = _Variables(piece, chosen, loads, cost, most)
        cut.pieces.append(variables)
        return variables

    def _tangent_of(self, variables: _Variables, theta: float) -> None:
        prices = variables.piece.prices(theta)
        paid = mathopt.fast_sum(float(p) * x for p, x in zip(prices, variables.loads, strict=True))
        self.model.add_linear_constraint(variables.cost >= paid - theta * variables.chosen)


def _most_load(layout: Layout) -> Floats:
    """Returns the normalised load [S * C] of each station if all requests went there."""
    most = np.zeros(len(layout.services))
    np.add.at(most, layout.class_service, layout.weight * layout.volume.sum(axis=1))
    return np.repeat(most, len(layout.clusters))
