"""Bounds on every route's shares, from what is placed, linked, denied, pinned, drained and held."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spillway_optimizer.problem.arrays import Bools, Floats, Index, Ints
from spillway_optimizer.problem.constraints import (
    Route,
    Shares,
    held_floor,
    shift_floor,
    step_floor,
    with_local,
)
from spillway_optimizer.problem.values import Values


@dataclass(frozen=True)
class Graph:
    """The call graph by index, numbered as in layout.py."""

    clusters: tuple[str, ...]
    classes: tuple[str, ...]
    services: tuple[str, ...]
    class_service: Ints  # [K]
    edge_source: Ints  # [E]
    edge_target: Ints  # [E]
    out_edges: Sequence[Sequence[int]]  # [K]

    def route(self, e: Index, i: Index) -> Route:
        """Returns the route of edge `e` from cluster `i`."""
        source = self.services[self.class_service[self.edge_source[e]]]
        return self.clusters[i], source, self.classes[self.edge_target[e]]


@dataclass(frozen=True)
class Reach:
    """Where the calls of each row may go."""

    usable: Bools  # [E, from, to] calls may go there and be completed
    floor: Floats  # [E, from, to] least share of the row's calls
    free: Bools  # [E, from, to] usable, and may have more than its floor
    closed: Bools  # [E, from] denials leave these calls no destination
    notes: tuple[str, ...]


def reach(problem: Values, graph: Graph, placed: Bools, linked: Bools, demand: Floats) -> Reach:
    """Computes the bounds.

    `placed` [S, C] and `linked` [C, C] are bool, `demand` [K, C] is in rps.
    """
    rules = _Rules(problem, graph)
    usable, everywhere = _complete(graph, placed, linked, rules)
    closed = np.zeros(usable.shape[:2], dtype=bool)
    if rules.denied:
        # Rows that only denials close: all rows of an edge that is closed everywhere, and rows of
        # clusters where requests enter and denials leave no destination.
        free, _ = _complete(graph, placed, linked, None)
        closed[everywhere] = True
        for k, i in zip(*np.nonzero(demand > 0), strict=True):
            for e in graph.out_edges[k]:
                closed[e, i] |= free[e, i].any() and not usable[e, i].any()
        closed &= ~usable.any(axis=2)
    _drain(problem, graph, rules, usable)
    floor, leaving = _floor(problem, graph, rules, usable)
    free = _hold(problem, graph, rules, usable, floor)
    _choose(problem, graph, rules, usable, floor, free, leaving)
    return Reach(usable, floor, free, closed, (*rules.notes, *_closed_notes(graph, closed)))


class _Rules:
    """Pins and denials, looked up by route."""

    def __init__(self, problem: Values, graph: Graph):
        self.column = {name: j for j, name in enumerate(graph.clusters)}
        self.denied: dict[tuple[str, str], list[int]] = {}
        for source, class_id, destination in problem.constraints.denied:
            if destination in self.column:
                self.denied.setdefault((source, class_id), []).append(self.column[destination])
        self.pinned = dict(problem.constraints.pinned)
        self.graph = graph
        self.notes: list[str] = []

    def apply(self, e: int, usable: Bools) -> Bools:
        """Returns what pins and denials leave usable of the rows [from, to] of edge `e`.

        A pin that leads only where its calls cannot be served is dropped, and a note says so.
        """
        if not (self.denied or self.pinned):
            return usable
        usable = usable.copy()
        for i, cluster in enumerate(self.graph.clusters):
            route = self.graph.route(e, i)
            pin = self.pinned.get(route)
            if pin is None:
                usable[i, self.denied.get((cluster, route[2]), [])] = False
                continue
            wanted = np.zeros(usable.shape[1], dtype=bool)
            wanted[[self.column[c] for c, share in pin.items() if share > 0 and c in self.column]] = True
            if usable[i].any() and not (usable[i] & wanted).any():
                self.notes.append(
                    f"the pin of {' '.join(route)} leads only where it cannot be served; left out"
                )
                del self.pinned[route]
                usable[i, self.denied.get((cluster, route[2]), [])] = False
            else:
                usable[i] &= wanted
        return usable


def _complete(graph: Graph, placed: Bools, linked: Bools, rules: _Rules | None) -> tuple[Bools, Bools]:
    """Returns usable [E, C, C], and the edges [E] that denials close everywhere.

    Callees come last in the order of classes, so the walk is backwards. A class can be completed in
    a cluster when its service is placed there and each of its calls can be completed from there.
    Calls over edges that are closed everywhere do not count.
    """
    usable = np.zeros((len(graph.edge_target), *linked.shape), dtype=bool)
    everywhere = np.zeros(len(graph.edge_target), dtype=bool)
    completes = placed[graph.class_service].copy()
    for k in reversed(range(len(graph.classes))):
        for e in graph.out_edges[k]:
            could = linked & completes[graph.edge_target[e]][None, :]
            usable[e] = could if rules is None else rules.apply(e, could)
            here = placed[graph.class_service[k]]
            everywhere[e] = bool(could[here].any()) and not usable[e][here].any()
            if not everywhere[e]:
                completes[k] &= usable[e].any(axis=1)
    for k, edges in enumerate(graph.out_edges):
        usable[list(edges)] &= placed[graph.class_service[k]][None, :, None]
    return usable, everywhere


def _drain(problem: Values, graph: Graph, rules: "_Rules", usable: Bools) -> None:
    """Takes drained clusters away from rows that keep another destination, except pinned rows."""
    drained = [j for j, cluster in enumerate(graph.clusters) if cluster in problem.constraints.drained]
    if not drained:
        return
    rest = usable.copy()
    rest[:, :, drained] = False
    pinned = np.zeros(usable.shape[:2], dtype=bool)
    if rules.pinned:
        for e, i in np.ndindex(*pinned.shape):
            pinned[e, i] = graph.route(e, i) in rules.pinned
    usable[:] = np.where((rest.any(axis=2) & ~pinned)[:, :, None], rest, usable)


def _floor(problem: Values, graph: Graph, rules: _Rules, usable: Bools) -> tuple[Floats, Bools]:
    """Returns least shares, from pins, the maximum shift and what must stay local.

    Also returns which destinations calls leave in steps of the maximum shift. Both are [E, from,
    to].
    """
    c = problem.constraints
    floor, leaving = np.zeros(usable.shape), np.zeros(usable.shape, dtype=bool)
    if not (rules.pinned or c.min_local_share > 0 or c.kept_local or (c.max_shift < 1 and c.in_force)):
        return floor, leaving
    for e, i in zip(*np.nonzero(usable.any(axis=2)), strict=True):
        route, row = graph.route(e, i), usable[e, i]
        if route in rules.pinned:
            pin = _row(rules.column, rules.pinned[route]) * row
            floor[e, i] = pin / pin.sum()
            continue
        least = max(c.min_local_share, c.kept_local.get((route[2], route[0]), 0.0))
        if route in c.in_force:
            before = _row(rules.column, c.in_force[route])
            # Calls leave a destination that is denied or lost at once: the maximum shift sets no
            # floor then.
            if abs(before.sum() - 1) < 1e-3 and not (before[~row] > 0).any():
                before /= before.sum()
                floor[e, i] = shift_floor(before, c.max_shift)
                chosen = _chosen(problem, graph, route, row)
                if chosen is not None and (floor[e, i][~chosen] > 0).any():
                    floor[e, i] = step_floor(before, chosen, c.max_shift)
                    leaving[e, i] = ~chosen & (before > 0)
                least = min(least, before[i] + c.max_shift)
        if row[i]:
            floor[e, i] = with_local(floor[e, i], int(i), least)
    return floor, leaving


def _hold(problem: Values, graph: Graph, rules: _Rules, usable: Bools, floor: Floats) -> Bools:
    """Returns free [E, from, to]. Sets `floor` of held destinations to exactly their share."""
    free = usable.copy()
    for e, i in zip(*np.nonzero(usable.any(axis=2)), strict=True) if problem.constraints.held else ():
        route = graph.route(e, i)
        if route in problem.constraints.held and route not in rules.pinned:
            shares = problem.constraints.held[route]
            listed = _listed(graph, shares)
            kept = held_floor(_row(rules.column, shares), listed, usable[e, i], floor[e, i])
            if kept is not None:
                floor[e, i], free[e, i] = kept
    return free


def _choose(
    problem: Values,
    graph: Graph,
    rules: _Rules,
    usable: Bools,
    floor: Floats,
    free: Bools,
    leaving: Bools,
) -> None:
    """Leaves each route only the destinations that were chosen for it, with their least shares.

    Destinations that have a floor, or that calls leave in steps, stay usable. They have exactly
    their floor, unless no chosen destination may have more. Rows that would lose every destination
    stay as they are. Least shares that do not fit are left out.
    """
    destinations = problem.constraints.destinations
    for e, i in zip(*np.nonzero(usable.any(axis=2)), strict=True) if destinations else ():
        route = graph.route(e, i)
        if route not in destinations or route in rules.pinned:
            continue
        least = _row(rules.column, destinations[route])
        chosen = _listed(graph, destinations[route])
        listed = chosen | (floor[e, i] > 0) | leaving[e, i]
        if not (usable[e, i] & listed).any():
            continue
        usable[e, i] &= listed
        free[e, i] &= chosen if (free[e, i] & chosen).any() else listed
        raised = np.where(free[e, i], np.maximum(floor[e, i], least), floor[e, i])
        if raised.sum() <= 1:
            floor[e, i] = raised


def _chosen(problem: Values, graph: Graph, route: Route, usable: Bools) -> Bools | None:
    """Returns the destinations [C] that were chosen for a route; None: it may use any."""
    shares = problem.constraints.destinations.get(route)
    chosen = None if shares is None else _listed(graph, shares) & usable
    return chosen if chosen is not None and chosen.any() else None


def _listed(graph: Graph, shares: Shares) -> Bools:
    return np.array([cluster in shares for cluster in graph.clusters])


def _row(column: dict[str, int], shares: Shares) -> Floats:
    row = np.zeros(len(column))
    for cluster, share in shares.items():
        if cluster in column:
            row[column[cluster]] = share
    return row


def _closed_notes(graph: Graph, closed: Bools) -> list[str]:
    """Returns one sentence per closed edge, with the clusters in which it is closed."""
    notes = []
    for e in np.flatnonzero(closed.any(axis=1)):
        where = [graph.clusters[i] for i in np.flatnonzero(closed[e])]
        notes.append(
            f"denied everywhere, so closed: {graph.classes[graph.edge_target[e]]!r} called by "
            f"{graph.classes[graph.edge_source[e]]!r} in {', '.join(where)}"
        )
    return notes
