"""Keeps an egress budget by a price: the dual of one linear constraint, found by bisection.

At a price lambda on the worth of egress, the minimum of cost + lambda * (egress - budget) is a
lower bound. Egress may jump over the budget as lambda grows. The two routings beside the jump cost
the same at that price, and their mixture that meets the budget is optimal.
"""

from dataclasses import replace

import numpy as np

from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.penalties import BUDGET_FACTOR, budget_ms, egress_ms
from spillway_optimizer.solvers import dual
from spillway_optimizer.solvers.convex import Convex, Stop
from spillway_optimizer.solvers.dual import Priced
from spillway_optimizer.solvers.newton import Start
from spillway_optimizer.solvers.trees import Forest

_ROUNDS = 40


def minimise(convex: Convex, stop: Stop, start: Start | None = None, forest: Forest | None = None) -> Priced:
    """Does what dual.minimise does, within the budget or as close to it as any routing is."""
    forest = forest or Forest()
    most, began = budget_ms(convex.problem), stop.clock()
    if most is None:
        return dual.minimise(convex, stop, start, forest)
    until = began + stop.seconds
    above = free = dual.minimise(convex, replace(stop, seconds=stop.seconds / 2), start, forest)
    if egress_ms(convex.problem, free.minimum.flows) <= most * (1 + 1e-9):
        return free
    low, high, below, gap = 0.0, 1.0, None, stop.relative_gap
    best = free.minimum  # that of the highest bound
    for _ in range(_ROUNDS):
        middle = high if below is None else 0.5 * (low + high)
        # The part of the value that is lambda * egress is subtracted again. The gap must be
        # relative to what is left.
        left = replace(stop, relative_gap=gap, seconds=max(until - stop.clock(), 0.0) / 2)
        dearer = replace(convex, egress_price=1.0 + middle)
        found = dual.minimise(dearer, left, (below or above).start, forest)
        gap = stop.relative_gap * min(abs(free.minimum.value / found.minimum.value), 1.0)
        bound = found.minimum.bound - middle * most
        if bound > best.bound:
            best = replace(found.minimum, bound=bound, egress_price=1.0 + middle)
        if egress_ms(convex.problem, found.minimum.flows) <= most:
            high, below = middle, found
        else:
            low, above = middle, found
            if below is None and high >= BUDGET_FACTOR:
                break
            high = min(4.0 * high, BUDGET_FACTOR) if below is None else high
        flows, value = _mixed(convex, above, below, most)
        near = value - best.bound <= stop.relative_gap * max(abs(value), 1e-9)
        if (below is not None and near) or stop.clock() > until:
            break
    flows, value = _mixed(convex, above, below, most)
    minimum = replace(best, flows=flows, value=value, bound=min(best.bound, value))
    return Priced(minimum, free.start)


def _mixed(convex: Convex, above: Priced, below: Priced | None, most: float) -> tuple[Floats, float]:
    """Returns the mixture of both flows that meets the budget, and its value.

    If none does, these are the flows that come nearest to the budget.
    """
    flows = above.minimum.flows
    if below is not None:
        dear, cheap = (egress_ms(convex.problem, priced.minimum.flows) for priced in (above, below))
        part = min(max((most - cheap) / (dear - cheap), 0.0), 1.0) if dear > cheap else 0.0
        flows = part * flows + (1.0 - part) * below.minimum.flows
    load = convex.layout.demand.copy()
    np.add.at(load, convex.layout.edge_target, flows.sum(axis=1))
    return flows, convex.value(flows, load)
