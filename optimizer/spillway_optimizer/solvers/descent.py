"""Minimises the objective by convex problems, with any solver of those.

The total queueing time at a station is A * g(N / capacity), with A = sum(load * a) and N =
sum(load * weight). When the a_ms of a service's classes are in proportion to their weights, this is
convex. Otherwise

- the bound comes from the convex relaxation, which has the convex envelope of each station
  (envelope.py);
- the routing comes from successive convex surrogates, beginning at the relaxation's routing. A
  surrogate has the value and the gradient of the objective at the last routing. A step is accepted
  only after a line search on the objective itself.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.objective import evaluate, propagate, queue_factor
from spillway_optimizer.problem.penalties import beyond
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.solution import shares_of
from spillway_optimizer.solvers.convex import Convex, Minimum, relative_gap

_STEPS = (1.0, 0.6, 0.3, 0.1, 0.03)
_ROUNDS = 12  # most surrogates from each start
_SAME = 1e-9  # relative difference up to which queueing terms are in proportion
_SURE = 0.02  # relative gap above which further starts are tried
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


def optimum(
    problem: Problem, minimise: Minimise, enough: float, late: Callable[[], bool] = lambda: False
) -> Optimum:
    """Minimises the objective, until the relative gap is `enough`.

    `late` ends the descent with the best routing so far.
    """
    layout = problem.layout
    convex = relaxation(problem)
    lower = minimise(convex)
    if convex.envelope.even:
        return Optimum(lower.flows, lower.bound, ())
    flows, bound = lower.flows, lower.bound
    starts = [flows]
    if proven_gap(problem, flows, bound) > max(enough, _SURE):
        # The relaxation is far away, or there was not enough time for it. A looser one is easier.
        # Its routing, or that of an idle mesh, may be a better start.
        loose = minimise(relaxation(problem, least=True))
        bound = max(bound, loose.bound)
        idle = shares_of(problem, np.zeros_like(layout.floor), np.zeros_like(layout.demand))
        starts += [loose.flows, propagate(layout, idle)[0]]
    ends: list[tuple[Floats, float]] = []
    for start in sorted(starts, key=lambda flows: penalised(problem, flows)):
        if not ends or not late():
            ends.append(descend(problem, minimise, start, late))
    flows = min(ends, key=lambda end: end[1])[0]
    return Optimum(flows, bound, not_convex(problem, flows, bound))


def not_convex(problem: Problem, flows: Floats, bound_ms: float) -> tuple[str, ...]:
    """Returns the note on a routing of a problem that is not convex."""
    return (
        "not convex: queueing terms are not in proportion to normalised weight in "
        f"{', '.join(_spread(problem))}; the routing is proven to be at most "
        f"{proven_gap(problem, flows, bound_ms):.2%} above the global optimum",
    )


def proven_gap(problem: Problem, flows: Floats, bound_ms: float) -> float:
    """Returns the relative gap of flows [E, C, C] to a bound, at least 0."""
    over = beyond(problem, flows, evaluate(problem, flows).load)
    return max(relative_gap(penalised(problem, flows), bound_ms, over), 0.0)


def relaxation(problem: Problem, least: bool = False) -> Convex:
    """Returns the convex problem that never costs more than the objective.

    It equals the objective where the queueing terms are in proportion to the weights. With `least`,
    all classes of a service queue like the one that queues least, and the rest of their queueing
    terms counts as if stations were idle.
    """
    layout, alpha = problem.layout, _alpha(problem)
    rest = np.zeros_like(alpha)
    if least:
        smallest = _least(problem, alpha)
        rest, alpha = (alpha - smallest) * layout.weight, smallest
    beta = (layout.wait * layout.b + rest)[:, None] + layout.failure
    return Convex(problem, np.repeat(alpha[:, None], len(layout.clusters), axis=1), beta)


def descend(
    problem: Problem, minimise: Minimise, flows: Floats, late: Callable[[], bool]
) -> tuple[Floats, float]:
    """Descends from `flows` [E, C, C] by surrogates.

    Returns the last flows and their penalised cost.
    """
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


def _alpha(problem: Problem) -> Floats:
    """Returns a / weight [K]. Values of a service that differ by rounding alone are its least."""
    layout = problem.layout
    own = layout.wait * layout.a / layout.weight
    least = _least(problem, own)
    return np.where(own - least > _SAME * np.maximum(own, 1e-12), own, least)


def _least(problem: Problem, values: Floats) -> Floats:
    """Returns the least value [K] of the classes of each class's service."""
    layout = problem.layout
    least = np.full(len(layout.services), np.inf)
    np.minimum.at(least, layout.class_service, values)
    return least[layout.class_service]


def _spread(problem: Problem) -> list[str]:
    """Returns the services whose classes differ in a / weight."""
    layout, alpha = problem.layout, _alpha(problem)
    return [
        name
        for s, name in enumerate(layout.services)
        if len(set(alpha[layout.class_service == s].tolist())) > 1
    ]


def _surrogate(problem: Problem, flows: Floats) -> Convex:
    """Returns the convex problem that is tangent to the objective at `flows`."""
    layout, at = problem.layout, evaluate(problem, flows)
    a = layout.wait * layout.a
    queueing, normalised = np.zeros_like(layout.capacity), np.zeros_like(layout.capacity)
    np.add.at(queueing, layout.class_service, a[:, None] * at.load)
    np.add.at(normalised, layout.class_service, layout.weight[:, None] * at.load)
    smallest = np.full(len(layout.services), np.inf)
    np.minimum.at(smallest, layout.class_service, _alpha(problem))
    idle = normalised <= 1e-12
    alpha = np.where(idle, smallest[:, None], queueing / np.where(idle, 1.0, normalised))
    factor = queue_factor(at.utilisation)[layout.class_service]
    rest = a[:, None] - alpha[layout.class_service] * layout.weight[:, None]
    beta = (layout.wait * layout.b)[:, None] + layout.failure + rest * factor
    return Convex(problem, alpha[layout.class_service], beta)
