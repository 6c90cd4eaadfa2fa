"""Describes what holds the split of one route, and what a shift of it would break. Pure.

For a whole solution, see binding.py.
"""

from dataclasses import replace

import numpy as np

from spillway_optimizer.discrete.limits import Row, rows
from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.binding import unseen
from spillway_optimizer.problem.objective import Evaluation
from spillway_optimizer.problem.problem import Problem

_FULL = 0.9  # utilisation above which a service is mentioned
_AT = 2e-4  # shares this close to a limit are at it
_NONE = 1e-9


def why_not(problem: Problem, e: int, i: int, j: int) -> str:
    """Returns why calls of edge `e` from cluster i cannot go to cluster j."""
    layout, c = problem.layout, problem.constraints
    k = int(layout.edge_target[e])
    source, destination, class_id = layout.clusters[i], layout.clusters[j], layout.classes[k]
    service = layout.services[layout.class_service[k]]
    caller = layout.services[layout.class_service[layout.edge_source[e]]]
    if not layout.placed[layout.class_service[k], j]:
        return f"{service} is not placed there"
    if not np.isfinite(layout.rtt[i, j]):
        return f"the topology has no link from {source} to it"
    pin = c.pinned.get((source, caller, class_id))
    if pin is not None and not pin.get(destination, 0.0) > 0:
        return "the route is pinned elsewhere"
    if (source, class_id, destination) in c.denied:
        return "denied"
    if destination in c.drained:
        return "drained"
    return "the calls it makes there cannot be completed"


def limited(problem: Problem, edges: list[int], i: int, row: Floats) -> Row | None:
    """Returns the limits on the destinations of a route from cluster i, with its shares `row` [to].

    None: a pin, the floors or a step home decide all of its shares.
    """
    found = rows(problem, np.zeros_like(problem.layout.floor))
    same = (limits for limits in found if limits.cluster == i and limits.edges == tuple(edges))
    return next((_with(limits, row) for limits in same), None)


def _with(limits: Row, row: Floats) -> Row:
    """Returns the limits with other shares. Remainders of subtractions are no shares."""
    return replace(limits, share=np.where(row > _NONE, row, 0.0))


def broken(
    problem: Problem,
    edges: list[int],
    i: int,
    row: Floats,
    limits: Row | None,
    before: Evaluation,
    after: Evaluation,
) -> list[str]:
    """Returns the constraints that the route's shares `row` [to] would break, or break further.

    `limits`: those of `limited`, with the shares from which calls would be moved.
    """
    layout, c = problem.layout, problem.constraints
    floor = layout.floor[edges, i].max(axis=0)
    held = layout.usable[edges[0], i] & ~layout.free[edges[0], i]
    found = [
        f"the {floor[j]:.1%} that {layout.clusters[j]} must have"
        for j in np.flatnonzero((row < floor - 1e-6) & ~held)
    ]
    found += [
        f"the {floor[j]:.1%} that {layout.clusters[j]} is held at"
        for j in np.flatnonzero((np.abs(row - floor) > 1e-6) & held)
    ]
    found += [] if limits is None else _broken_limits(problem, limits, _with(limits, row))
    budget = c.egress_usd_per_hour
    if budget is not None and after.egress_usd_per_hour > max(budget, before.egress_usd_per_hour) + 1e-9:
        found.append(f"the egress budget of ${budget:g}/h")
    if c.utilisation_ceiling is not None:
        worse = (after.utilisation > c.utilisation_ceiling) & (after.utilisation > before.utilisation + 1e-9)
        found += [
            f"the ceiling of {c.utilisation_ceiling:.0%} for {layout.services[s]} in {layout.clusters[j]}"
            for s, j in zip(*np.nonzero(worse), strict=True)
        ]
    return found


def _broken_limits(problem: Problem, before: Row, after: Row) -> list[str]:
    """Returns the limits on destinations that the shares after a shift break, or break further.

    Floors and held shares come first: see limits.Row.
    """
    clusters, whole = problem.layout.clusters, problem.constraints.whole
    small = after.used & ~after.held & (after.share < after.least - _AT)
    less = ~before.used | (after.share < before.share)
    above_floor = after.share >= problem.layout.floor[list(after.edges), after.cluster].max(axis=0) - 1e-6
    found = [
        f"the {after.least[j]:.1%} that {clusters[j]} must have if it has any"
        for j in np.flatnonzero(small & less & above_floor)
    ]
    if after.crowded and after.used.sum() > before.used.sum():
        kept_whole = after.key.class_id in whole
        found.append(
            "the guardrail that keeps the class whole" if kept_whole else f"the limit of {_many(after.most)}"
        )
    return found


def _many(count: int) -> str:
    return f"{count} destination{'s' * (count != 1)}"


def holding(
    problem: Problem, edges: list[int], i: int, row: Floats, limits: Row | None, u: Floats
) -> list[str]:
    """Returns what holds the shares `row` [to] of a route from cluster i, apart from `why_not`.

    `edges`: the edges that share the route. `limits`: see `limited`. `u`: evaluated utilisation,
    shape [S, C].
    """
    layout = problem.layout
    k, e = int(layout.edge_target[edges[0]]), edges[0]
    caller = layout.services[layout.class_service[layout.edge_source[e]]]
    if (layout.clusters[i], caller, layout.classes[k]) in problem.constraints.pinned:
        return ["the route is pinned: its split is the operator's"]
    floor, held = layout.floor[e, i], layout.usable[e, i] & ~layout.free[e, i]
    leaving = np.zeros_like(held) if limits is None else limits.leaving
    found = [
        f"{layout.clusters[j]} has the least that it must have, {floor[j]:.1%}"
        for j in np.flatnonzero((floor > 0) & (row <= floor + 1e-4) & ~held)
    ]
    found += [
        f"{layout.clusters[j]} is held at {floor[j]:.1%}: it is unknown, or cannot be modelled"
        for j in np.flatnonzero(held & ~leaving)
    ]
    found += [
        f"{layout.clusters[j]} keeps {floor[j]:.1%} in this version: calls leave it by the maximum shift"
        for j in np.flatnonzero(leaving)
    ]
    found += [] if limits is None else _at_limits(problem, limits)
    reached = _reached(problem, k)
    found += [sentence for service, sentence in unseen(problem, u) if service in reached]
    return found + [
        f"{layout.services[s]} in {layout.clusters[j]} is at {u[s, j]:.0%} of its capacity"
        for s, j in zip(*np.nonzero(u > _FULL), strict=True)
        if layout.services[s] in reached
    ]


def _at_limits(problem: Problem, limits: Row) -> list[str]:
    """Returns the limits on destinations that the shares of a route are at."""
    c, count = problem.constraints, int(limits.used.sum())
    if limits.key.class_id in c.whole:
        whole = "the guardrails keep the class whole: one destination gets all of it"
        return [whole] if count == 1 else []
    least = (c.min_share > 0) & limits.used & ~limits.kept & (np.abs(limits.share - c.min_share) <= _AT)
    found = [
        f"{problem.layout.clusters[j]} has the least share that a destination may have, {c.min_share:.1%}"
        for j in np.flatnonzero(least)
    ]
    if c.max_destinations is not None and count >= c.max_destinations:
        found.append(f"it has {_many(count)}, and the guardrails allow {c.max_destinations}")
    return found


def _reached(problem: Problem, k: int) -> set[str]:
    """Returns the services of a class and of all classes that its calls lead to."""
    layout, todo, seen = problem.layout, [k], set()
    while todo:
        class_index = todo.pop()
        if class_index not in seen:
            seen.add(class_index)
            todo += [int(layout.edge_target[e]) for e in layout.out_edges[class_index]]
    return {layout.services[layout.class_service[class_index]] for class_index in seen}
