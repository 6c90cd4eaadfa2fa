"""The call trees of one application, in the order in which costs go up and requests go down.

Shapes: K classes, S services, C clusters of the application; D stations whose load has a price.
"""

from dataclasses import dataclass

import numpy as np

from spillway_optimizer.problem.arrays import Bools, Floats, Ints
from spillway_optimizer.problem.layout import Layout


@dataclass(frozen=True)
class Level:
    """Edges [n] that can be walked at once, and the matrices that sum over them."""

    edges: Ints  # [n]
    source: Ints  # [n] class
    target: Ints  # [n] class
    to_source: Floats  # [K, n] calls per request; turns costs of calls into costs of callers
    to_target: Floats  # [K, n] 1 at the callee; turns arriving calls into loads of callees
    ratio: Floats  # [n, 1]


@dataclass(frozen=True)
class Bundle:
    """Edges [n], sorted by source, that are handled together.

    Their callees load the same stations [m] and are at the same height of their trees.
    """

    edges: Ints  # [n]
    target: Ints  # [n] class
    ratio: Floats  # [n, 1, 1]
    callers: Ints  # classes that call, each once
    first: Ints  # where the edges of each caller begin
    stations: slice | Ints  # [m] indices below D, as a slice where they are consecutive
    block: tuple[slice | Ints, ...]  # the same for the rows and columns of a [D, D] matrix


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
    local = {int(k): i for i, k in enumerate(classes)}
    source = np.array([local[int(k)] for k in layout.edge_source[edges]], dtype=int)
    target = np.array([local[int(k)] for k in layout.edge_target[edges]], dtype=int)
    ratio = layout.ratio[edges]
    depth, height = np.zeros(len(classes), dtype=int), np.zeros(len(classes), dtype=int)
    # Classes are ordered callers first, so one pass over the sorted edges settles every path.
    for e in np.argsort(source, kind="stable"):
        depth[target[e]] = max(depth[target[e]], depth[source[e]] + 1)
    for e in np.argsort(-source, kind="stable"):
        height[source[e]] = max(height[source[e]], height[target[e]] + 1)

    def level(chosen: Ints) -> Level:
        count, at = len(classes), np.arange(len(chosen))
        to_source, to_target = np.zeros((count, len(chosen))), np.zeros((count, len(chosen)))
        to_source[source[chosen], at] = ratio[chosen]
        to_target[target[chosen], at] = 1.0
        return Level(chosen, source[chosen], target[chosen], to_source, to_target, ratio[chosen][:, None])

    up = tuple(level(np.flatnonzero(height[target] == h)) for h in np.unique(height[target]))
    down = tuple(level(np.flatnonzero(depth[source] == d)) for d in np.unique(depth[source]))
    return up, down


def stations(priced: Bools, class_service: Ints, up: tuple[Level, ...]) -> Ints:
    """Returns the numbers of the priced stations [S, C]; -1 for the others.

    They are numbered depth first, so that the stations that a subtree loads are adjacent.
    """
    callees: dict[int, list[int]] = {}
    for level in up:
        for source, target in zip(level.source, level.target, strict=True):
            callees.setdefault(int(class_service[source]), []).append(int(class_service[target]))
    called = {s for targets in callees.values() for s in targets}
    order: list[int] = []
    todo = [s for s in range(len(priced)) if s not in called] + list(range(len(priced)))
    while todo:
        service = todo.pop(0)
        if service not in order:
            order.append(service)
            todo[:0] = callees.get(service, [])
    station = np.full(priced.shape, -1)
    s, c = np.array(order, dtype=int), np.arange(priced.shape[1])
    station[np.ix_(s, c)] = np.where(priced[s], np.cumsum(priced[s]).reshape(priced.shape) - 1, -1)
    return station


def bundles(station: Ints, class_service: Ints, up: tuple[Level, ...]) -> tuple[Bundle, ...]:
    """Groups the edges into bundles, callees before their callers."""
    below: list[frozenset[int]] = [frozenset([int(s)]) for s in class_service]
    found = []
    for level in up:
        groups: dict[frozenset[int], list[int]] = {}
        for at in np.argsort(level.source, kind="stable"):
            groups.setdefault(below[level.target[at]], []).append(int(at))
            below[level.source[at]] |= below[level.target[at]]
        for services, members in groups.items():
            loaded = np.sort(station[sorted(services)], axis=None)
            loaded = loaded[loaded >= 0]
            if len(loaded):
                callers, first = np.unique(level.source[members], return_index=True)
                ratio = level.ratio[members][:, :, None]
                chosen, block = _together(loaded)
                found.append(
                    Bundle(level.edges[members], level.target[members], ratio, callers, first, chosen, block)
                )
    return tuple(found)


def _together(indices: Ints) -> tuple[slice | Ints, tuple[slice | Ints, ...]]:
    """Returns sorted indices, and the block of a matrix that they select.

    Both are slices if the indices are consecutive.
    """
    if indices[-1] - indices[0] + 1 == len(indices):
        run = slice(int(indices[0]), int(indices[-1]) + 1)
        return run, (run, run)
    return indices, np.ix_(indices, indices)
