"""Minimises a convex problem by outer approximation (Kelley).

A linear programme over flows is refined by tangent cuts. Its value is always a lower bound and its
flows are a feasible routing, so the two close the gap.
"""

import datetime
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from ortools.math_opt.python import mathopt

from spillway_optimizer import SolveError
from spillway_optimizer.problem.arrays import Floats, Ints
from spillway_optimizer.problem.penalties import BUDGET_FACTOR, beyond, budget_ms
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.solvers.convex import Convex, Minimum, Stop, relative_gap

# Utilisations whose tangents start the approximation. They are dense where the curve bends.
_FIRST_CUTS = (0.0, 0.2, 0.4, 0.55, 0.7, 0.8, 0.86, 0.9, 0.93, 0.955, 0.98, 1.1, 1.5)

_DEMAND = 100.0  # of a problem, in the unit of its programme
_LOG = logging.getLogger(__name__)
_INTEGER = mathopt.SolverType.GSCIP
_SECOND = mathopt.SolverType.HIGHS


def minimise(convex: Convex, stop: Stop, solver: mathopt.SolverType = mathopt.SolverType.GLOP) -> Minimum:
    """Minimises the problem. Raises SolveError when the linear programme has no optimum."""
    lp = Programme(convex)
    handle = mathopt.IncrementalSolver(lp.model, solver)
    started, bound = stop.clock(), -math.inf
    found: tuple[Minimum, Floats] | None = None  # the best flows and their load
    for _ in range(stop.rounds):
        result = handle.solve()
        if result.termination.reason != mathopt.TerminationReason.OPTIMAL:
            # Penalties and costs are many orders of magnitude apart. What the tolerances of one
            # solver call infeasible, another can solve.
            result = mathopt.solve(lp.model, _SECOND)
        if result.termination.reason != mathopt.TerminationReason.OPTIMAL:
            raise SolveError(
                f"the linear programme ended with {result.termination.reason.name}: {result.termination.detail}"
            )
        bound = max(bound, result.objective_value())
        flows, load = lp.read(result.variable_values())
        value = convex.value(flows, load)
        if found is None or value < found[0].value:
            found = Minimum(flows, value, bound, lp.prices(result.dual_values())), load
        best, best_load = found
        beyond_ms = beyond(convex.problem, best.flows, best_load)
        close = relative_gap(best.value, bound, beyond_ms) <= stop.relative_gap
        if close or not lp.cut(load) or stop.clock() - started > stop.seconds:
            break
    assert found is not None  # Stop.rounds is at least 1
    best, _ = found
    return replace(best, bound=min(bound, best.value))


def in_unit(problem: Problem) -> tuple[Problem, float]:
    """Returns the problem with its rates in a unit for programmes, and the unit in rps.

    Tolerances of solvers are absolute numbers. In this unit the demand is always the same, and all
    costs are in proportion to it.
    """
    unit = float(problem.layout.demand.sum()) / _DEMAND or 1.0
    limits = problem.constraints
    budget = limits.egress_usd_per_hour
    scaled = replace(
        problem,
        demand_rps={key: rps / unit for key, rps in problem.demand_rps.items()},
        capacity_rps={key: rps / unit for key, rps in problem.capacity_rps.items()},
        constraints=replace(limits, egress_usd_per_hour=None if budget is None else budget / unit),
    )
    return scaled, unit


class Programme:
    """The growing linear programme. It has variables only where calls may go."""

    def __init__(self, convex: Convex, cuts: Sequence[float] = _FIRST_CUTS):
        self._convex, self._layout = convex, convex.layout
        layout = self._layout
        self.model = mathopt.Model(name="outer")
        self._flow = {
            (int(e), int(i), int(j)): self.model.add_variable(lb=0.0)
            for e, i, j in zip(*np.nonzero(layout.usable), strict=True)
        }
        shape = layout.demand.shape
        self._load = [[self.model.add_variable(lb=0.0) for _ in range(shape[1])] for _ in range(shape[0])]
        self._conserve()
        self._keep_floors()
        self._envelope, stations = convex.envelope, convex.envelope.stations
        self._stations = np.unique(self._envelope.station[self._envelope.station >= 0])
        self._n = {station: self.model.add_variable(lb=0.0) for station in self._stations}
        self._phi = {station: self.model.add_variable(lb=0.0) for station in self._stations}
        self._at = {
            station: list(zip(*np.nonzero(self._envelope.station == station), strict=True))
            for station in self._stations
        }
        self._sum = {
            station: self.model.add_linear_constraint(
                mathopt.fast_sum(float(layout.weight[k]) * self._load[k][c] for k, c in self._at[station])
                == n
            )
            for station, n in self._n.items()
        }
        for u in sorted({*cuts, convex.ceiling} - {np.inf}):
            self._tangents(stations.slope(u * stations.capacity), self._stations)
        self.model.minimize(
            mathopt.fast_sum(
                [1.0 * phi for phi in self._phi.values()]
                + [
                    float(convex.beta[k, c]) * self._load[k][c]
                    for k in range(shape[0])
                    for c in range(shape[1])
                ]
                + [float(convex.hops[key]) * x for key, x in self._flow.items()]
                + self._budget()
            )
        )

    def solve_integer(
        self, seconds: float, gap: float, hints: mathopt.ModelSolveParameters | None = None
    ) -> mathopt.SolveResult | None:
        """Solves the programme with its integer variables, to a relative gap.

        Returns None if the time was not enough, or if the arithmetic of the solver was not.
        """
        limits = mathopt.SolveParameters(
            time_limit=datetime.timedelta(seconds=max(seconds, 0.01)), relative_gap_tolerance=gap
        )
        try:
            result = mathopt.solve(self.model, _INTEGER, params=limits, model_params=hints)
        except Exception as error:  # numerical troubles come as any exception of the bindings
            _LOG.warning("the mixed-integer programme failed: %s: %s", type(error).__name__, error)
            return None
        if not result.has_primal_feasible_solution():
            if result.termination.reason != mathopt.TerminationReason.NO_SOLUTION_FOUND:
                _LOG.warning("the mixed-integer programme ended with %s", result.termination.reason.name)
            return None
        return result

    def _keep_floors(self) -> None:
        """Requires flow >= floor * calls of the row, and equality where the destination is held."""
        layout = self._layout
        for e, i, j in zip(*np.nonzero(layout.floor > 0), strict=True):
            k = layout.edge_source[e]
            least = float(layout.floor[e, i, j] * layout.ratio[e])
            # A little less, so that rounding does not make shares that sum to one infeasible.
            self.model.add_linear_constraint(
                self._flow[int(e), int(i), int(j)] >= least * (1 - 1e-9) * self._load[k][i]
            )
        for e, i, j in zip(*np.nonzero(layout.usable & ~layout.free), strict=True):
            k = layout.edge_source[e]
            most = float(layout.floor[e, i, j] * layout.ratio[e])
            self.model.add_linear_constraint(
                self._flow[int(e), int(i), int(j)] <= most * (1 + 1e-9) * self._load[k][i]
            )

    def _budget(self) -> list[mathopt.LinearTerm]:
        """Keeps egress within the budget. Returns the terms of the objective that this adds.

        A variable that costs BUDGET_FACTOR allows egress above the budget.
        """
        most = budget_ms(self._convex.problem)
        if most is None:
            return []
        above = self.model.add_variable(lb=0.0)
        worth = self._layout.egress / self._convex.problem.usd_per_ms
        paid = mathopt.fast_sum([float(worth[key]) * x for key, x in self._flow.items()])
        self.model.add_linear_constraint(paid <= most + above)
        return [BUDGET_FACTOR * above]

    def _conserve(self) -> None:
        """Conserves requests: arrivals make load, and load makes calls. Closed rows make none."""
        layout = self._layout
        arriving: dict[tuple[int, int], list[mathopt.Variable]] = {}
        leaving: dict[tuple[int, int], list[mathopt.Variable]] = {}
        for (e, i, j), x in self._flow.items():
            arriving.setdefault((int(layout.edge_target[e]), j), []).append(x)
            leaving.setdefault((e, i), []).append(x)
        for k, row in enumerate(self._load):
            for c, load in enumerate(row):
                total = mathopt.fast_sum(arriving.get((k, c), [])) + float(layout.demand[k, c])
                self.model.add_linear_constraint(total == load)
                for e in layout.out_edges[k]:
                    if layout.closed[e, c]:
                        continue
                    calls = mathopt.fast_sum(leaving.get((e, c), []))
                    self.model.add_linear_constraint(calls == float(layout.ratio[e]) * load)

    def _tangents(self, price: Floats, stations: Ints) -> None:
        """Adds the tangents of these stations' costs that have the reference prices `price` [D]."""
        prices, offset = self._envelope.prices(price), self._envelope.stations.conjugate(price)
        for station in stations:
            if self._envelope.uneven[station]:
                cost = mathopt.fast_sum(
                    float(prices[k, c] * self._layout.weight[k]) * self._load[k][c]
                    for k, c in self._at[station]
                )
            else:
                cost = float(price[station]) * self._n[station]
            self.model.add_linear_constraint(self._phi[station] >= cost - float(offset[station]))

    def read(self, values: dict[mathopt.Variable, float]) -> tuple[Floats, Floats]:
        """Returns the flows [E, C, C] and the loads [K, C] of a solution, in rps.

        The loads are computed from the flows.
        """
        layout = self._layout
        flows = np.zeros(layout.usable.shape)
        for key, x in self._flow.items():
            flows[key] = max(values[x], 0.0)
        load = layout.demand.copy()
        np.add.at(load, layout.edge_target, flows.sum(axis=1))
        self._values = values
        return flows, load

    def prices(self, duals: Mapping[mathopt.LinearConstraint, float]) -> Floats:
        """Returns what one more normalised request costs at each station [S, C], in ms.

        0 where the classes differ, because their prices do too.
        """
        price = np.zeros(self._layout.capacity.size)
        for station, total in self._sum.items():
            price[station] = -duals[total]
        return price.reshape(self._layout.capacity.shape)

    def cut(self, load: Floats) -> bool:
        """Adds a tangent wherever the approximation is below the curve.

        Returns False when it is nowhere below.
        """
        n = self._convex.normalised(load)
        true = self._envelope.cost(n)
        low = [
            station
            for station in self._stations
            if true[station] - self._values[self._phi[station]] > 1e-9 * max(true[station], 1e-9)
        ]
        self._tangents(self._envelope.reference(n), np.array(low, dtype=int))
        return bool(low)
