"""What rules can express of a policy's shares: one split per route, within pins, floors and budget.

Pure. Caller classes that share an outbound route have one rule for their calls, even where their
bytes cost differently.
"""

from dataclasses import dataclass

import numpy as np

from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.destinations import within
from spillway_optimizer.problem.objective import Evaluation, evaluate_shares
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.rules import TOTAL, RuleKey, imposed, merge, routes
from spillway_optimizer.problem.solution import Solution

# Relative: egress this close to the budget counts as at it.
_AT = 1e-3
_HALVINGS = 30


def _within_floors(problem: Problem, shares: Floats) -> Floats:
    """Returns shares [E, from, to] above every floor.

    Rows that the problem imposes are exactly what it imposes.
    """
    layout = problem.layout
    above = np.maximum(shares - layout.floor, 0.0) * layout.free
    held = layout.usable & ~layout.free
    if held.any():
        # A policy that does not know what is held may leave nothing for the free destinations. They
        # then share equally.
        lacking = held.any(axis=2) & (above.sum(axis=2) <= 0)
        above[lacking] = layout.free[lacking]
    total, kept = above.sum(axis=2, keepdims=True), layout.floor.sum(axis=2, keepdims=True)
    whole = layout.floor / np.where(kept > 0, kept, 1.0)
    spread = layout.floor + above * np.maximum(1.0 - kept, 0.0) / np.where(total > 0, total, 1.0)
    return _imposed(problem, np.where(total > 0, spread, whole))


@dataclass(frozen=True)
class Projected:
    """The best that the rules of a solution can be, before they are rounded."""

    shares: Floats  # [E, from, to], one split per route
    evaluation: Evaluation  # exceeds budget and ceiling only where nothing better is possible
    # USD/h of egress that the rules may cost: the budget, or what the solution costs within pins
    # and floors if that is more. None: no limit, also for a policy that does not know the budget
    # and exceeds it.
    most_egress: float | None


def project(problem: Problem, solution: Solution) -> Projected:
    """Returns what rules can express of a solution.

    Edges that share a route are merged by volume, which may cost more egress than the solution
    does. Where that breaks the budget, the split moves towards the destinations that cost least
    egress. It moves as far as the budget needs and the floors allow.
    """
    merged = _within_floors(problem, merge(problem, solution.shares, solution.flows))
    evaluation, most = evaluate_shares(problem, merged), _most_egress(problem, solution)
    if most is None or evaluation.egress_usd_per_hour <= most:
        return Projected(merged, evaluation, most)
    chosen = within(problem, solution.destinations)
    home = _imposed(problem, _cheapest(chosen, solution.flows.sum(axis=2)))
    low, high = 0.0, 1.0
    if _egress(problem, home) < most:
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            enough = _egress(problem, merged + middle * (home - merged)) <= most
            low, high = (low, middle) if enough else (middle, high)
    shares = merged + high * (home - merged)
    return Projected(shares, evaluate_shares(problem, shares), most)


def rounding(problem: Problem, shares: Floats) -> tuple[float, Floats]:
    """Returns the egress [USD/h] and the utilisation [S, C] that rounding of `shares` may add.

    `shares` is [E, from, to]. Each route with a choice may send up to one part of TOTAL too much to
    one destination. The surplus of its callers comes on top.
    """
    layout, dollars = problem.layout, 0.0
    load, surplus = layout.demand.copy(), np.zeros_like(layout.demand)
    for k, edges in enumerate(layout.out_edges):
        for e in edges:
            chosen = layout.usable[e] & (layout.usable[e].sum(axis=1) > 1)[:, None]
            extra = chosen * (layout.ratio[e] * load[k] / TOTAL)[:, None]
            extra = extra + shares[e] * (layout.ratio[e] * surplus[k])[:, None]
            dollars += 3600.0 * float((extra * layout.egress[e]).sum())
            load[layout.edge_target[e]] += (shares[e] * (layout.ratio[e] * load[k])[:, None]).sum(axis=0)
            surplus[layout.edge_target[e]] += extra.sum(axis=0)
    normalised = np.zeros_like(layout.capacity)
    np.add.at(normalised, layout.class_service, layout.weight[:, None] * surplus)
    return dollars, normalised / layout.capacity


def _most_egress(problem: Problem, solution: Solution) -> float | None:
    """Returns the egress [USD/h] that rules may cost; None: no limit. See Projected."""
    budget = problem.constraints.egress_usd_per_hour
    if budget is None:
        return None
    egress = _egress(problem, _within_floors(problem, solution.shares))
    if egress > budget * (1 + _AT) and solution.bound_usd_per_hour is None:
        return None
    return max(budget, egress)


def _egress(problem: Problem, shares: Floats) -> float:
    return evaluate_shares(problem, shares).egress_usd_per_hour


def _imposed(problem: Problem, shares: Floats) -> Floats:
    """Returns the shares with the rows that pins and steps home impose."""
    c, layout = problem.constraints, problem.layout
    if not (c.pinned or (c.min_local_share > 0 and c.max_shift < 1 and c.in_force)):
        return shares
    shares = shares.copy()
    for (s, k), edges in routes(problem).items():
        for i in np.flatnonzero(layout.usable[edges].any(axis=(0, 2))):
            key = RuleKey(layout.clusters[i], layout.services[s], layout.classes[k])
            row = imposed(problem, key, edges[0], int(i))
            if row is not None:
                shares[edges, i] = row
    return shares


def _cheapest(problem: Problem, calls: Floats) -> Floats:
    """[E, from, to] shares that send all free calls to where they cost least egress.

    The cost includes all calls that a call causes. Ties go to the nearest cluster. `calls` [E,
    from] weigh the edges that share a route.
    """
    layout = problem.layout
    shares, cost = layout.floor.copy(), np.zeros_like(layout.demand)
    into: dict[int, list[list[int]]] = {}
    for (_, k), edges in routes(problem).items():
        into.setdefault(k, []).append(edges)
    # Callees are last in the order of classes. Walking backwards, the cost of a class is known
    # before any of its callers needs it.
    for k in reversed(range(len(layout.classes))):
        for edges in into.get(k, []):
            usable = layout.usable[edges[0]]
            weight = calls[edges] + 1e-12
            price = (weight[:, :, None] * layout.egress[edges]).sum(axis=0) / weight.sum(axis=0)[:, None]
            price = np.where(usable, price + cost[k], np.inf)
            free = layout.free[edges[0]]
            least = price <= np.where(free, price, np.inf).min(axis=1, keepdims=True) * (1 + 1e-9)
            nearest = np.where(free & least, layout.rtt, np.inf).argmin(axis=1)
            for e in edges:
                for i in np.flatnonzero(usable.any(axis=1)):
                    shares[e, i, nearest[i]] += max(1.0 - layout.floor[e, i].sum(), 0.0)
                paid = (shares[e] * np.where(usable, layout.egress[e] + cost[k], 0.0)).sum(axis=1)
                cost[layout.edge_source[e]] += layout.ratio[e] * paid
    return shares
