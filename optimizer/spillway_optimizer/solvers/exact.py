"""The policy `spillway`: the objective's minimum, with the bound that can be proven.

When the classes of a service have queueing terms a_ms in proportion to their normalised weight, the
objective is convex and one outer approximation solves it to the stated gap. When they have not, total
queueing time at a station is A * g(N / cap) with A = sum(load * a) and N = sum(load * weight), a product
that is not convex; then
  - the bound comes from alpha = min(a / weight), which never overstates A, and g >= 1 for the rest;
  - the routing comes from successive convex surrogates that share value and gradient with the objective
    at the last routing, each accepted only after a line search on the objective itself.
"""

from dataclasses import dataclass, field

import numpy as np
from ortools.math_opt.python import mathopt

from spillway_optimizer.objective import evaluate, queue_factor
from spillway_optimizer.problem import Problem
from spillway_optimizer.solution import Solution, from_flows
from spillway_optimizer.solvers.outer import Stop, minimise

_HOUR = 3600.0
_STEPS = (1.0, 0.6, 0.3, 0.1, 0.03)


@dataclass(frozen=True)
class Exact:
    stop: Stop = field(default_factory=Stop)
    solver: mathopt.SolverType = mathopt.SolverType.GLOP
    surrogate_rounds: int = 12  # at most, for problems that are not convex

    def route(self, problem: Problem) -> Solution:
        layout = problem.layout
        alpha, spread = _proportion(problem)
        beta = layout.b[:, None] + (layout.a - alpha[layout.class_service] * layout.weight)[:, None]
        ones = np.ones_like(layout.capacity)
        lower = minimise(
            problem, alpha[:, None] * ones, beta + np.zeros_like(layout.demand), self.stop, self.solver
        )
        bound = lower.bound * problem.usd_per_ms * _HOUR
        if not spread:
            return from_flows(problem, lower.flows, bound)
        flows = self._descend(problem, lower.flows)
        note = (
            "not convex: queueing terms are not in proportion to normalised weight in "
            + ", ".join(spread)
            + "; a local optimum, with a proven lower bound"
        )
        return from_flows(problem, flows, bound, (note,))

    def _descend(self, problem: Problem, flows: np.ndarray) -> np.ndarray:
        value = evaluate(problem, flows).usd_per_hour
        for _ in range(self.surrogate_rounds):
            alpha, beta = _surrogate(problem, flows)
            target = minimise(problem, alpha, beta, self.stop, self.solver).flows
            # Flows of the same problem mix to feasible flows: loads are linear in them.
            trials = [flows + step * (target - flows) for step in _STEPS]
            values = [evaluate(problem, trial).usd_per_hour for trial in trials]
            best = int(np.argmin(values))
            if values[best] >= value * (1 - 1e-6):
                break
            flows, value = trials[best], values[best]
        return flows


def _proportion(problem: Problem) -> tuple[np.ndarray, list[str]]:
    """[S] the smallest a / weight of each service's classes, and the services whose classes differ."""
    layout = problem.layout
    per_weight = layout.a / layout.weight
    alpha, spread = np.zeros(len(layout.services)), []
    for s, service in enumerate(layout.services):
        values = per_weight[layout.class_service == s]
        alpha[s] = values.min()
        if values.max() - values.min() > 1e-9 * max(values.max(), 1e-12):
            spread.append(service)
    return alpha, spread


def _surrogate(problem: Problem, flows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Convex coefficients (alpha [S, C], beta [K, C]) tangent to the objective at `flows`."""
    layout, at = problem.layout, evaluate(problem, flows)
    queueing, normalised = np.zeros_like(layout.capacity), np.zeros_like(layout.capacity)
    np.add.at(queueing, layout.class_service, layout.a[:, None] * at.load)
    np.add.at(normalised, layout.class_service, layout.weight[:, None] * at.load)
    smallest, _ = _proportion(problem)
    idle = normalised <= 1e-12
    alpha = np.where(idle, smallest[:, None], queueing / np.where(idle, 1.0, normalised))
    factor = queue_factor(at.utilisation)[layout.class_service]
    rest = layout.a[:, None] - alpha[layout.class_service] * layout.weight[:, None]
    return alpha, layout.b[:, None] + rest * factor
