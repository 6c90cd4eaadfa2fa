"""Explains why the calls of a class from a cluster are split as they are. Pure.

The result lists destinations with their marginal costs, the effect of one percent more or less, and
what binds. The evaluator recomputes the effect instead of linearising it.
"""

from dataclasses import dataclass

import numpy as np

from spillway_optimizer.discrete.limits import Row
from spillway_optimizer.explain.holding import broken, holding, limited, why_not
from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.marginal import PARTS, Marginal, marginal, way
from spillway_optimizer.problem.objective import Evaluation, evaluate, evaluate_shares, propagate
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.rules import routes

STEP = 0.01
_TINY = 1e-9


@dataclass(frozen=True)
class Effect:
    """The effect of shifting `moved` of a route's calls, as differences to the present split."""

    moved: float
    mean_latency_ms: float
    egress_usd_per_hour: float
    objective_usd_per_hour: float
    objective_share: float  # relative
    breaks: tuple[str, ...]  # constraints that the shift would break


@dataclass(frozen=True)
class Destination:
    """One possible destination of a route, with its share and its costs."""

    cluster: str
    share: float
    utilisation: float  # utilisation of the callee's service there
    # Cost of one more call in ms, by part (see PARTS in problem/marginal.py). `here`: at the callee
    # and on the way to it. `below`: of the calls that it causes.
    here: dict[str, float]
    below: dict[str, float]
    marginal_ms: float
    more: Effect | None  # None: the destination already has all calls
    less: Effect | None  # None: the destination has no calls


@dataclass(frozen=True)
class Route:
    """The explanation of one route.

    `rps`: calls per second. `excluded`: clusters that cannot be a destination, with the reason.
    `values`: what a ms of the callers and of the class counts, by class, where it is not 1.
    """

    source_cluster: str
    source_service: str
    class_id: str
    rps: float
    destinations: tuple[Destination, ...]
    excluded: dict[str, str]
    binding: tuple[str, ...]
    values: dict[str, float]


def explain(problem: Problem, shares: Floats, class_id: str, cluster: str) -> tuple[Route, ...]:
    """Returns every route of a class from a cluster, by source service.

    `shares`: the routing, shape [E, from, to]. Empty if nothing in the cluster calls the class.
    Both names must be known.
    """
    layout = problem.layout
    i = layout.clusters.index(cluster)
    flows, _ = propagate(layout, shares)
    at = _At(problem, shares, flows, evaluate(problem, flows), marginal(problem, shares))
    return tuple(
        at.route(edges, i) for edges in callers(problem, class_id).values() if layout.usable[edges, i].any()
    )


def callers(problem: Problem, class_id: str) -> dict[str, list[int]]:
    """Returns, for each service that calls the class, the edges that share its route. Sorted."""
    layout = problem.layout
    k = layout.classes.index(class_id)
    return {layout.services[s]: edges for (s, to), edges in sorted(routes(problem).items()) if to == k}


@dataclass(frozen=True)
class _At:
    """One routing with its evaluation and marginal costs."""

    problem: Problem
    shares: Floats
    flows: Floats
    evaluation: Evaluation
    costs: Marginal

    def route(self, edges: list[int], i: int) -> Route:
        layout = self.problem.layout
        e, row = edges[0], self._row(edges, i)
        limits = limited(self.problem, edges, i, row)
        return Route(
            layout.clusters[i],
            layout.services[layout.class_service[layout.edge_source[e]]],
            layout.classes[layout.edge_target[e]],
            float(self.flows[edges, i].sum()),
            tuple(self._destination(edges, i, int(j), limits) for j in np.flatnonzero(layout.usable[e, i])),
            {
                layout.clusters[j]: why_not(self.problem, e, i, int(j))
                for j in np.flatnonzero(~layout.usable[e, i])
            },
            tuple(holding(self.problem, edges, i, row, limits, self.evaluation.utilisation)),
            self._values(edges),
        )

    def _values(self, edges: list[int]) -> dict[str, float]:
        layout = self.problem.layout
        classes = [*(int(layout.edge_source[e]) for e in edges), int(layout.edge_target[edges[0]])]
        return {layout.classes[k]: float(layout.value[k]) for k in classes if layout.value[k] != 1.0}

    def _row(self, edges: list[int], i: int) -> Floats:
        """Returns the route's shares [to], averaged over its edges by volume."""
        calls = self.flows[edges, i].sum(axis=0)
        row: Floats = calls / calls.sum() if calls.sum() > 0 else self.shares[edges[0], i]
        return row

    def _destination(self, edges: list[int], i: int, j: int, limits: Row | None) -> Destination:
        layout = self.problem.layout
        k, share = int(layout.edge_target[edges[0]]), float(self._row(edges, i)[j])
        volume = self.flows[edges, i].sum(axis=1)
        of_edge = volume / volume.sum() if volume.sum() > 0 else np.full(len(edges), 1 / len(edges))
        on_way = sum(part * way(self.problem, e)[:, i, j] for part, e in zip(of_edge, edges, strict=True))
        here, below = self.costs.here[:, k, j] + on_way, self.costs.below[:, k, j]
        return Destination(
            cluster=layout.clusters[j],
            share=share,
            utilisation=float(self.evaluation.utilisation[layout.class_service[k], j]),
            here=dict(zip(PARTS, here.tolist(), strict=True)),
            below=dict(zip(PARTS, below.tolist(), strict=True)),
            marginal_ms=float(here.sum() + below.sum()),
            more=self._effect(edges, i, j, STEP, limits) if share < 1 - _TINY else None,
            less=self._effect(edges, i, j, -min(STEP, share), limits) if share > _TINY else None,
        )

    def _effect(self, edges: list[int], i: int, j: int, step: float, limits: Row | None) -> Effect | None:
        """Returns the effect of moving `step` of the calls to destination j.

        A negative step moves calls away from j. The other destinations give or take in proportion
        to their shares.
        """
        row = self._row(edges, i)
        moved = _shift(row, j, step, self._takers(edges, i, j))
        if moved is None:
            return None
        shares = self.shares.copy()
        for e in edges:
            shares[e, i] = moved
        after, before = evaluate_shares(self.problem, shares), self.evaluation
        change = after.usd_per_hour - before.usd_per_hour
        return Effect(
            float(moved[j] - row[j]),
            after.mean_latency_ms - before.mean_latency_ms,
            after.egress_usd_per_hour - before.egress_usd_per_hour,
            change,
            change / before.usd_per_hour if before.usd_per_hour > 0 else 0.0,
            tuple(broken(self.problem, edges, i, moved, limits, before, after)),
        )

    def _takers(self, edges: list[int], i: int, j: int) -> Floats:
        """Returns where calls would go from destination j if it serves all of them, shape [to].

        That is the cheapest other destination.
        """
        layout = self.problem.layout
        k = int(layout.edge_target[edges[0]])
        cost = self.costs.total()[k] + way(self.problem, edges[0])[:, i].sum(axis=0)
        cost = np.where(layout.usable[edges[0], i], cost, np.inf)
        cost[j] = np.inf
        return np.eye(len(cost))[int(np.argmin(cost))] if np.isfinite(cost).any() else np.zeros(len(cost))


def _shift(row: Floats, j: int, step: float, takers: Floats) -> Floats | None:
    """Returns the row with `step` more at j. None if no destination could give or take it."""
    others = row.copy()
    others[j] = 0.0
    if others.sum() <= _TINY:
        others = takers.copy()
        if others.sum() <= 0 or step > 0:
            return None
    elif step > 0:
        step = min(step, float(others.sum()))
    moved: Floats = row - step * others / others.sum()
    moved[j] = row[j] + step
    return np.maximum(moved, 0.0)
