"""Describes what holds the split of one route, and what a shift of it would break. Pure.

For a whole solution, see binding.py.
"""

import numpy as np

from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.objective import Evaluation
from spillway_optimizer.problem.problem import Problem

_FULL = 0.9  # utilisation above which a service is mentioned


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


def broken(
    problem: Problem, edges: list[int], i: int, row: Floats, before: Evaluation, after: Evaluation
) -> list[str]:
    """Returns the constraints that the route's shares `row` [to] would break, or break further."""
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


def holding(problem: Problem, edges: list[int], i: int, row: Floats, u: Floats) -> list[str]:
    """Returns what holds the shares `row` [to] of a route from cluster i, apart from `why_not`.

    `edges`: the edges that share the route. `u`: evaluated utilisation, shape [S, C].
    """
    layout = problem.layout
    k, e = int(layout.edge_target[edges[0]]), edges[0]
    caller = layout.services[layout.class_service[layout.edge_source[e]]]
    if (layout.clusters[i], caller, layout.classes[k]) in problem.constraints.pinned:
        return ["the route is pinned: its split is the operator's"]
    floor, held = layout.floor[e, i], layout.usable[e, i] & ~layout.free[e, i]
    found = [
        f"{layout.clusters[j]} has the least that it must have, {floor[j]:.1%}"
        for j in np.flatnonzero((floor > 0) & (row <= floor + 1e-4) & ~held)
    ]
    found += [
        f"{layout.clusters[j]} is held at {floor[j]:.1%}: it is unknown, or cannot be modelled"
        for j in np.flatnonzero(held)
    ]
    reached = _reached(problem, k)
    return found + [
        f"{layout.services[s]} in {layout.clusters[j]} is at {u[s, j]:.0%} of its capacity"
        for s, j in zip(*np.nonzero(u > _FULL), strict=True)
        if layout.services[s] in reached
    ]


def _reached(problem: Problem, k: int) -> set[str]:
    """Returns the services of a class and of all classes that its calls lead to."""
    layout, todo, seen = problem.layout, [k], set()
    while todo:
        class_index = todo.pop()
        if class_index not in seen:
            seen.add(class_index)
            todo += [int(layout.edge_target[e]) for e in layout.out_edges[class_index]]
    return {layout.services[layout.class_service[class_index]] for class_index in seen}
