"""Minimises the objective by convex problems, with any solver of those.

When the queueing terms a_ms of a service's classes are in proportion to their normalised weights,
the objective is one convex problem. Otherwise the total queueing time at a station is A * g(N /
capacity), with A = sum(load * a) and N = sum(load * weight). This product is not convex. Then

- the bound comes from alpha = min(a / weight), which never overstates A, and g >= 1 for the rest;
- the routing comes from successive convex surrogates, from several starts. A surrogate has the
  value and the gradient of the objective at the last routing. A step is accepted only after a line
  search on the objective itself.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.objective import evaluate, propagate, queue_factor
from spillway_optimizer.problem.penalties import beyond
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.solution import shares_of
from spillway_optimizer.solvers.convex import Convex, Minimum

_STEPS = (1.0, 0.6, 0.3, 0.1, 0.03)
_ROUNDS = 12  # most surrogates from each start
_LEAST_GAIN = 1e-5  # relative gain of a surrogate, below which the descent ends
Minimise = Callable[[Convex], Minimum]


@dataclass(frozen=True)
class Optimum:
    """The routing found, and a bound.

    `flows` [E, C, C] are in rps. No routing costs less than `bound_ms`, in ms of waiting per
    second.
    """

    flows: Floats
    bound_ms: float
    notes: tuple[str, ...]


def optimum(problem: Problem, minimise: Minimise, late: Callable[[], bool] = lambda: False) -> Optimum:
    """Minimises the objective. `late` ends the descent with the best routing so far."""
    layout = problem.layout
    _, spread = _proportion(problem)
    lower = minimise(minorant(problem))
    if not spread:
        return Optimum(lower.flows, lower.bound, ())
    ends: list[tuple[Floats, float]] = []
    idle = shares_of(problem, np.zeros_like(layout.floor), np.zeros_like(layout.demand))
    for start in (lower.flows, propagate(layout, idle)[0]):
        if not ends or not late():
            ends.append(_descend(problem, minimise, start, late))
    values = [value for _, value in ends]
    best, worst = min(values), max(values)
    apart = (worst - best) / best if best > 0 else 0.0
    note = (
        f"not convex: queueing terms are not in proportion to normalised weight in {', '.join(spread)}; "
        f"a local optimum with a proven lower bound; {len(ends)} starts ended {apart:.2%} apart"
    )
    return Optimum(ends[int(np.argmin(values))][0], lower.bound, (note,))


def minorant(problem: Problem) -> Convex:
    """Returns the convex problem that never costs more than the objective.

    It equals the objective where the queueing terms are in proportion to the weights.
    """
    layout = problem.layout
    alpha, _ = _proportion(problem)
    rest = _waited_a(problem) - alpha[layout.class_service] * layout.weight
    beta = (layout.wait * layout.b + rest)[:, None] + layout.failure
    return Convex(problem, alpha[:, None] * np.ones_like(layout.capacity), beta)


def _descend(
    problem: Problem, minimise: Minimise, flows: Floats, late: Callable[[], bool]
) -> tuple[Floats, float]:
    """Descends from `flows` by surrogates. Returns the last flows and their penalised cost."""
    value = penalised(problem, flows)
    for _ in range(_ROUNDS):
        target = minimise(_surrogate(problem, flows)).flows
        # A mixture of feasible flows is feasible: every constraint is linear in them.
        trials = [flows + step * (target - flows) for step in _STEPS]
        values = [penalised(problem, trial) for trial in trials]
        best = int(np.argmin(values))
        gain = value - values[best]
        if gain > 0:
            flows, value = trials[best], values[best]
        if gain <= _LEAST_GAIN * abs(value) or late():
            break
    return flows, value


def penalised(problem: Problem, flows: Floats) -> float:
    """Returns the objective in ms of waiting per second, with the penalties for exceeded limits."""
    at = evaluate(problem, flows)
    return at.usd_per_hour / 3600.0 / problem.usd_per_ms + beyond(problem, flows, at.load)


def _waited_a(problem: Problem) -> Floats:
    return problem.layout.wait * problem.layout.a


def _proportion(problem: Problem) -> tuple[Floats, list[str]]:
    """Returns the least a / weight per service [S], and the services whose classes differ in it."""
    layout = problem.layout
    per_weight = _waited_a(problem) / layout.weight
    alpha, spread = np.zeros(len(layout.services)), []
    for s, service in enumerate(layout.services):
        values = per_weight[layout.class_service == s]
        alpha[s] = values.min()
        if values.max() - values.min() > 1e-9 * max(values.max(), 1e-12):
            spread.append(service)
    return alpha, spread


def _surrogate(problem: Problem, flows: Floats) -> Convex:
    """Returns the convex problem that is tangent to the objective at `flows`."""
    layout, at = problem.layout, evaluate(problem, flows)
    a = _waited_a(problem)
    queueing, normalised = np.zeros_like(layout.capacity), np.zeros_like(layout.capacity)
    np.add.at(queueing, layout.class_service, a[:, None] * at.load)
    np.add.at(normalised, layout.class_service, layout.weight[:, None] * at.load)
    smallest, _ = _proportion(problem)
    idle = normalised <= 1e-12
    alpha = np.where(idle, smallest[:, None], queueing / np.where(idle, 1.0, normalised))
    factor = queue_factor(at.utilisation)[layout.class_service]
    rest = a[:, None] - alpha[layout.class_service] * layout.weight[:, None]
    return Convex(problem, alpha, (layout.wait * layout.b)[:, None] + layout.failure + rest * factor)
