"""The call graph of one application, in the order in which costs go up and requests go down.

Shapes: K classes, S services, C clusters of the application; D stations whose load has a price.
"""

from dataclasses import dataclass

import numpy as np

from spillway_optimizer.problem.arrays import Bools, Floats, Ints
from spillway_optimizer.problem.layout import Layout


@dataclass(frozen=True)
class Level:
    """Edges [n] that can be walked at once, and the matrices that sum over them."""

    edges: slice | Ints  # [n], as a slice where they are consecutive
    source: Ints  # [n] class
    target: Ints  # [n] class
    to_source: Floats  # [K, n] calls per request; turns costs of calls into costs of callers
    to_target: Floats  # [K, n] 1 at the callee; turns arriving calls into loads of callees
    ratio: Floats  # [n, 1]


def applications(layout: Layout) -> list[Ints]:
    """Returns the classes [K] of each application.

    An application shares no service with another and calls none of its classes.
    """
    parent = list(range(len(layout.classes) + len(layout.services)))

    def find(x: int) -> int:
        while parent[x] != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        return x

    offset = len(layout.classes)
    pairs = [*zip(layout.edge_source, layout.edge_target, strict=True)]
    pairs += [(k, offset + s) for k, s in enumerate(layout.class_service)]
    for a, b in pairs:
        parent[find(int(a))] = find(int(b))
    roots = np.array([find(k) for k in range(offset)])
    return [np.flatnonzero(roots == root) for root in np.unique(roots)]


def levels(layout: Layout, classes: Ints, edges: Ints) -> tuple[tuple[Level, ...], tuple[Level, ...]]:
    """Groups the edges by the height of the callee, and by the depth of the caller.

    The first grouping puts callees before their callers, and the second callers before their
    callees.
    """
    source = np.searchsorted(classes, layout.edge_source[edges])
    target = np.searchsorted(classes, layout.edge_target[edges])
    ratio = layout.ratio[edges]
    depth, height = layout.depth[classes], layout.height[classes]

    def level(chosen: Ints) -> Level:
        count, at = len(classes), np.arange(len(chosen))
        to_source, to_target = np.zeros((count, len(chosen))), np.zeros((count, len(chosen)))
        to_source[source[chosen], at] = ratio[chosen]
        to_target[target[chosen], at] = 1.0
        return Level(
            run(chosen), source[chosen], target[chosen], to_source, to_target, ratio[chosen][:, None]
        )

    up = tuple(level(np.flatnonzero(height[target] == h)) for h in np.unique(height[target]))
    down = tuple(level(np.flatnonzero(depth[source] == d)) for d in np.unique(depth[source]))
    return up, down


def stations(priced: Bools, class_service: Ints, up: tuple[Level, ...]) -> Ints:
    """Returns the numbers of the priced stations [S, C]; -1 for the others.

    They are numbered depth first, so that the stations that a subtree loads are adjacent.
    """
    callees: dict[int, dict[int, None]] = {}  # each once, in order
    for level in up:
        sources, targets = class_service[level.source].tolist(), class_service[level.target].tolist()
        for source, target in zip(sources, targets, strict=True):
            callees.setdefault(source, {})[target] = None
    called = {s for targets in callees.values() for s in targets}
    order: list[int] = []
    todo = [s for s in range(len(priced)) if s not in called] + list(range(len(priced)))
    while todo:
        service = todo.pop(0)
        if service not in order:
            order.append(service)
            todo[:0] = callees.get(service, ())
    station = np.full(priced.shape, -1)
    s, c = np.array(order, dtype=int), np.arange(priced.shape[1])
    station[np.ix_(s, c)] = np.where(priced[s], np.cumsum(priced[s]).reshape(priced.shape) - 1, -1)
    return station


def run(indices: Ints) -> slice | Ints:
    """Returns the indices, as a slice if they are consecutive."""
    if len(indices) and (np.diff(indices) == 1).all():
        return slice(int(indices[0]), int(indices[-1]) + 1)
    return indices
