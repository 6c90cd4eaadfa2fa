"""Minimises the objective by convex problems, with any solver of those.

The total queueing time at a station is A * g(N / capacity), with A = sum(load * a) and N =
sum(load * weight). When the a_ms of a service's classes, times what a ms of them is worth, are in
proportion to their weights, this is convex. Otherwise

- the bound comes from the convex relaxation, which has the convex envelope of each station
  (envelope.py), and from the prices at the end of the descent (certificate.py);
- the routing comes from successive convex surrogates, beginning at the relaxation's routing. A
  surrogate has the value and the gradient of the objective at the last routing. A step is accepted
  only after a line search on the objective itself.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.objective import counted_factor, evaluate, propagate
from spillway_optimizer.problem.penalties import beyond
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.solution import shares_of
from spillway_optimizer.solvers import certificate
from spillway_optimizer.solvers.certificate import Known
from spillway_optimizer.solvers.convex import Convex, Minimum, relative_gap

_STEPS = (1.0, 0.6, 0.3, 0.1, 0.03)
_ROUNDS = 12  # most surrogates from each start
_SAME = 1e-9  # relative difference up to which queueing terms are in proportion
_BOUND_TIME = 0.1  # part of the time left that a large problem's second bound may take
_SURE = 0.01  # relative gap above which further starts are tried
# Relative gain of a surrogate below which the descent ends: a part of what is left to prove, within
# these limits.
_PART_OF_GAP, _LEAST_GAIN, _MOST_GAIN = 0.01, 1e-5, 1e-4
Minimise = Callable[[Convex], Minimum]


@dataclass(frozen=True)
class End:
    """Where a descent ended.

    `flows` [E, C, C] are in rps, and `value` is their penalised cost in ms of waiting per second.
    `serving` [K, C] is what one more request there would cost, in ms. `egress_price` multiplies the
    worth of egress.
    """

    flows: Floats
    value: float
    serving: Floats
    egress_price: float


@dataclass(frozen=True)
class Optimum:
    """The routing found, and a bound.

    `flows` [E, C, C] are in rps. No routing costs less than `bound_ms`, in ms of waiting per
    second. `gained`: whether the hint led to a better routing than every other start.
    """

    flows: Floats
    bound_ms: float
    notes: tuple[str, ...]
    gained: bool = False


def optimum(
    problem: Problem,
    minimise: Minimise,
    enough: float,
    left: Callable[[], float] = lambda: math.inf,
    hint: Floats | None = None,
) -> Optimum:
    """Minimises the objective, until the relative gap is `enough`.

    The descent ends with the best routing so far when no seconds are `left`. `hint`: flows
    [E, C, C] of a known routing, another start. If the problem is convex, the better of it and the
    minimum is returned.
    """
    layout = problem.layout
    convex = relaxation(problem)

    def late() -> bool:
        return left() < 0

    lower = minimise(convex)
    if convex.envelope.even:
        flows, bound = lower.flows, lower.bound
        if hint is None or not _gains(penalised(problem, hint), penalised(problem, flows)):
            return Optimum(flows, bound, ())
        return Optimum(hint, min(bound, penalised(problem, hint)), (), gained=True)
    bound = lower.bound
    least = min(max(_LEAST_GAIN, _PART_OF_GAP * proven_gap(problem, lower.flows, bound)), _MOST_GAIN)
    end = descend(problem, minimise, lower.flows, late, least)
    if proven_gap(problem, end.flows, bound) > enough:
        bound = max(bound, _certified(convex, end, bound, left))
    if proven_gap(problem, end.flows, bound) > max(enough, _SURE):
        # The relaxation is far away, or there was not enough time for it. A looser one is easier.
        # Its routing, or that of an idle mesh, may be a better start.
        loose = minimise(relaxation(problem, least=True))
        idle = shares_of(problem, np.zeros_like(layout.floor), np.zeros_like(layout.demand))
        ends = [end]
        for start in (loose.flows, propagate(layout, idle)[0]):
            if not late():
                ends.append(descend(problem, minimise, start, late, least))
        bound, best = max(bound, loose.bound), min(ends, key=lambda end: end.value)
        if best is not end:
            end, bound = best, max(bound, _certified(convex, best, bound, left))
    gained = False
    if hint is not None:
        known = replace(end, flows=hint, value=penalised(problem, hint))
        if not late():
            known = descend(problem, minimise, hint, late, least)
        gained = _gains(known.value, end.value)
        if known.value < end.value:
            end, bound = known, min(bound, known.value)
    return Optimum(end.flows, bound, not_convex(problem, end.flows, bound), gained)


def _gains(value: float, than: float) -> bool:
    """Returns whether a cost is lower by more than what two descents into one basin differ by."""
    return than - value > _LEAST_GAIN * abs(than)


def _certified(convex: Convex, end: End, bound: float, left: Callable[[], float]) -> float:
    """Returns the bound that follows from the prices at the end of a descent.

    It is -inf if it is not above the known `bound`, or takes more than a part of the time `left`.
    """
    until = (1.0 - _BOUND_TIME) * left()
    layout, load = convex.layout, evaluate(convex.problem, end.flows).load
    n, service = convex.normalised(load), layout.class_service
    total, cost = np.zeros_like(layout.capacity), np.zeros_like(layout.capacity)
    np.add.at(total, service, n)
    # A mixture of what each class would cost alone.
    alone = convex.envelope.classes.phi(total[service])
    np.add.at(cost, service, n / np.maximum(total[service], 1e-12) * alone)
    missed = np.maximum(cost - convex.envelope.cost(n).reshape(cost.shape), 0.0)
    need = missed.sum(axis=1) / np.maximum(total.sum(axis=1), 1e-12)
    return certificate.bound(
        convex, need, end.serving, end.egress_price, Known(end.value, bound), lambda: left() < until
    )


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
    beta = (layout.counted_b + rest)[:, None] + layout.failure_worth
    return Convex(problem, np.repeat(alpha[:, None], len(layout.clusters), axis=1), beta)


def descend(
    problem: Problem,
    minimise: Minimise,
    flows: Floats,
    late: Callable[[], bool],
    least_gain: float = _LEAST_GAIN,
) -> End:
    """Descends from `flows` [E, C, C] by surrogates, until one gains less than `least_gain`.

    The gain is relative to the cost.
    """
    layout, value = problem.layout, penalised(problem, flows)
    for _ in range(_ROUNDS):
        tangent = surrogate(problem, flows)
        target = minimise(tangent)
        # A mixture of feasible flows is feasible: every constraint is linear in them.
        trials = [flows + step * (target.flows - flows) for step in _STEPS]
        values = [penalised(problem, trial) for trial in trials]
        best = int(np.argmin(values))
        gain = value - values[best]
        if gain > 0:
            flows, value = trials[best], values[best]
        if gain <= least_gain * abs(value) or late():
            break
    serving = tangent.beta + layout.weight[:, None] * target.price[layout.class_service]
    return End(flows, value, serving, target.egress_price)


def penalised(problem: Problem, flows: Floats) -> float:
    """Returns the objective in ms of waiting per second, with the penalties for exceeded limits."""
    at = evaluate(problem, flows)
    return at.usd_per_hour / 3600.0 / problem.usd_per_ms + beyond(problem, flows, at.load)


def _alpha(problem: Problem) -> Floats:
    """Returns counted_a / weight [K].

    Values of a service that differ by rounding alone are its least.
    """
    layout = problem.layout
    own = layout.counted_a / layout.weight
    least = _least(problem, own)
    return np.where(own - least > _SAME * np.maximum(own, 1e-12), own, least)


def _least(problem: Problem, values: Floats) -> Floats:
    """Returns the least value [K] of the classes of each class's service."""
    layout = problem.layout
    least = np.full(len(layout.services), np.inf)
    np.minimum.at(least, layout.class_service, values)
    return least[layout.class_service]


def _spread(problem: Problem) -> list[str]:
    """Returns the services whose classes differ in counted_a / weight."""
    layout, alpha = problem.layout, _alpha(problem)
    return [
        name
        for s, name in enumerate(layout.services)
        if len(set(alpha[layout.class_service == s].tolist())) > 1
    ]


def surrogate(problem: Problem, flows: Floats) -> Convex:
    """Returns the convex problem that is tangent to the objective at `flows`."""
    layout, at = problem.layout, evaluate(problem, flows)
    a = layout.counted_a
    queueing, normalised = np.zeros_like(layout.capacity), np.zeros_like(layout.capacity)
    np.add.at(queueing, layout.class_service, a[:, None] * at.load)
    np.add.at(normalised, layout.class_service, layout.weight[:, None] * at.load)
    smallest = np.full(len(layout.services), np.inf)
    np.minimum.at(smallest, layout.class_service, _alpha(problem))
    idle = normalised <= 1e-12
    alpha = np.where(idle, smallest[:, None], queueing / np.where(idle, 1.0, normalised))
    factor = counted_factor(problem, at.utilisation)[0][layout.class_service]
    rest = a[:, None] - alpha[layout.class_service] * layout.weight[:, None]
    beta = layout.counted_b[:, None] + layout.failure_worth + rest * factor
    return Convex(problem, alpha[layout.class_service], beta)
