"""A convex routing problem by outer approximation: an LP over flows, refined by tangent cuts (Kelley).

    min  sum_sc alpha[s,c] * phi(n[s,c]; capacity[s,c])  +  sum_kc beta[k,c] * load[k,c]  +  sum_e hop * x[e]
    phi(n; cap) = n * queue_factor(n / cap),  n = normalised load,  in units of ms of request time per second

Every LP value is a lower bound, every LP flow a feasible routing: the two close the gap.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from ortools.math_opt.python import mathopt

from spillway_optimizer import SolveError
from spillway_optimizer.layout import Layout
from spillway_optimizer.objective import queue_factor, queue_slope
from spillway_optimizer.problem import Problem

# Utilisations whose tangents start the approximation: dense where the curve bends.
_FIRST_CUTS = (0.0, 0.2, 0.4, 0.55, 0.7, 0.8, 0.86, 0.9, 0.93, 0.955, 0.98, 1.1, 1.5)


@dataclass(frozen=True)
class Stop:
    """When refining ends: at the relative gap, or with the best so far at the limits."""

    relative_gap: float = 1e-4
    rounds: int = 60
    seconds: float = 30.0
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class Outer:
    flows: np.ndarray  # [E, C, C] rps
    value: float  # of these flows, ms of request time per second
    bound: float  # no flows have a smaller value


def minimise(
    problem: Problem,
    alpha: np.ndarray,
    beta: np.ndarray,
    stop: Stop,
    solver: mathopt.SolverType = mathopt.SolverType.GLOP,
) -> Outer:
    """alpha [S, C] >= 0 and beta [K, C] in ms. Raises SolveError when the LP has no optimum."""
    lp = _Lp(problem, alpha, beta)
    handle = mathopt.IncrementalSolver(lp.model, solver)
    started, best, bound = stop.clock(), None, -math.inf
    for _ in range(stop.rounds):
        result = handle.solve()
        if result.termination.reason != mathopt.TerminationReason.OPTIMAL:
            raise SolveError(
                f"linear programme ended {result.termination.reason.name}: {result.termination.detail}"
            )
        bound = max(bound, result.objective_value())
        flows, load = lp.read(result.variable_values())
        value = _value(problem, alpha, beta, flows, load)
        if best is None or value < best.value:
            best = Outer(flows, value, bound)
        close = best.value - bound <= stop.relative_gap * max(abs(best.value), 1e-9)
        if close or not lp.cut(load) or stop.clock() - started > stop.seconds:
            break
    return Outer(best.flows, best.value, min(bound, best.value))


def _normalised(layout: Layout, load: np.ndarray) -> np.ndarray:
    total = np.zeros_like(layout.capacity)
    np.add.at(total, layout.class_service, layout.weight[:, None] * load)
    return total


def _value(problem: Problem, alpha, beta, flows, load) -> float:
    layout = problem.layout
    n = _normalised(layout, load)
    hops = np.where(layout.usable, layout.rtt + layout.egress / problem.usd_per_ms, 0.0)
    return float(
        (alpha * n * queue_factor(n / layout.capacity)).sum() + (beta * load).sum() + (hops * flows).sum()
    )


class _Lp:
    """The growing linear programme; variables only where calls may go."""

    def __init__(self, problem: Problem, alpha: np.ndarray, beta: np.ndarray):
        self._layout = layout = problem.layout
        self.model = mathopt.Model(name="outer")
        self._flow = {
            (int(e), int(i), int(j)): self.model.add_variable(lb=0.0)
            for e, i, j in zip(*np.nonzero(layout.usable), strict=True)
        }
        shape = layout.demand.shape
        self._load = [[self.model.add_variable(lb=0.0) for _ in range(shape[1])] for _ in range(shape[0])]
        self._conserve()
        # Only stations whose queue has a price need the convex term.
        self._stations = [
            (int(s), int(c)) for s, c in zip(*np.nonzero(layout.placed & (alpha > 0)), strict=True)
        ]
        self._n = {station: self.model.add_variable(lb=0.0) for station in self._stations}
        self._phi = {station: self.model.add_variable(lb=0.0) for station in self._stations}
        for (s, c), n in self._n.items():
            classes = np.flatnonzero(layout.class_service == s)
            self.model.add_linear_constraint(
                mathopt.fast_sum(float(layout.weight[k]) * self._load[k][c] for k in classes) == n
            )
            for u in _FIRST_CUTS:
                self._tangent((s, c), u * layout.capacity[s, c])
        hops = layout.rtt + layout.egress / problem.usd_per_ms
        self.model.minimize(
            mathopt.fast_sum(
                [float(alpha[station]) * phi for station, phi in self._phi.items()]
                + [float(beta[k, c]) * self._load[k][c] for k in range(shape[0]) for c in range(shape[1])]
                + [float(hops[key]) * x for key, x in self._flow.items()]
            )
        )

    def _conserve(self) -> None:
        layout = self._layout
        arriving: dict[tuple[int, int], list] = {}
        leaving: dict[tuple[int, int], list] = {}
        for (e, i, j), x in self._flow.items():
            arriving.setdefault((int(layout.edge_target[e]), j), []).append(x)
            leaving.setdefault((e, i), []).append(x)
        for k, row in enumerate(self._load):
            for c, load in enumerate(row):
                total = mathopt.fast_sum(arriving.get((k, c), [])) + float(layout.demand[k, c])
                self.model.add_linear_constraint(total == load)
                for e in layout.out_edges[k]:
                    calls = mathopt.fast_sum(leaving.get((e, c), []))
                    self.model.add_linear_constraint(calls == float(layout.ratio[e]) * load)

    def _tangent(self, station: tuple[int, int], at: float) -> None:
        u = at / self._layout.capacity[station]
        slope = float(queue_factor(u) + u * queue_slope(u))
        offset = float(at * queue_factor(u)) - slope * float(at)
        self.model.add_linear_constraint(self._phi[station] >= slope * self._n[station] + offset)

    def read(self, values: dict) -> tuple[np.ndarray, np.ndarray]:
        """Flows [E, C, C] and loads [K, C]; the loads follow from the flows."""
        layout = self._layout
        flows = np.zeros(layout.usable.shape)
        for key, x in self._flow.items():
            flows[key] = max(values[x], 0.0)
        load = layout.demand.copy()
        np.add.at(load, layout.edge_target, flows.sum(axis=1))
        self._values = values
        return flows, load

    def cut(self, load: np.ndarray) -> bool:
        """Adds a tangent wherever the approximation is below the curve; False when it is nowhere."""
        layout, n = self._layout, _normalised(self._layout, load)
        added = False
        for station in self._stations:
            true = n[station] * float(queue_factor(n[station] / layout.capacity[station]))
            if true - self._values[self._phi[station]] > 1e-9 * max(true, 1e-9):
                self._tangent(station, n[station])
                added = True
        return added
