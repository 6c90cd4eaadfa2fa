"""A Problem as arrays. Only this file assigns the indices.

Axes: K classes (callers before callees), S services, E edges, C clusters.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from spillway_optimizer.problem.arrays import Bools, Floats, Ints
from spillway_optimizer.problem.reach import Graph, reach
from spillway_optimizer.problem.values import Values

_BYTES_PER_GB = 1e9
_LEAST_WAIT = 1e-3


@dataclass(frozen=True)
class Layout:
    """The arrays of a problem. A pair of C axes is always (from, to)."""

    clusters: tuple[str, ...]
    classes: tuple[str, ...]
    services: tuple[str, ...]
    class_service: Ints  # [K] index of the service
    edge_source: Ints  # [E] index of the class
    edge_target: Ints  # [E] index of the class
    out_edges: tuple[tuple[int, ...], ...]  # [K] edges that leave each class
    ratio: Floats  # [E] calls per request
    demand: Floats  # [K, C] rps
    a: Floats  # [K] ms
    b: Floats  # [K] ms
    weight: Floats  # [K] normalised cost of one request
    failure: Floats  # [K, C] ms that failures cost per request
    capacity: Floats  # [S, C] normalised rps; 1 where the service is not placed (and has no load)
    placed: Bools  # [S, C]
    rtt: Floats  # [C, C] ms; inf: no link
    rtt_noise: Floats  # [C, C] ms, standard error
    egress: Floats  # [E, C, C] US dollars per call
    usable: Bools  # [E, C, C] an edge's calls may go there and can be completed
    floor: Floats  # [E, C, C] least share of each row's calls
    free: Bools  # [E, C, C] usable, and may have more than its floor
    closed: Bools  # [E, C] denials leave no destination; these rows carry no calls
    wait: Floats  # [K] share of a request's time that the user waits for
    hop_wait: Floats  # [E] share of an edge's network time that the user waits for
    notes: tuple[str, ...]  # constraints that could not be kept as given, one sentence each

    @classmethod
    def of(cls, problem: Values) -> Self:
        """Builds the arrays from the values of a problem."""
        clusters, classes = problem.clusters, problem.class_order
        services = tuple(sorted(set(problem.classes.values())))
        k_of, s_of = _index(classes), _index(services)
        source = np.array([k_of[e.source] for e in problem.edges], dtype=int)
        target = np.array([k_of[e.target] for e in problem.edges], dtype=int)
        class_service = np.array([s_of[problem.classes[k]] for k in classes], dtype=int)
        placed = np.array([[(s, c) in problem.placement for c in clusters] for s in services], dtype=bool)
        rtt, shape = _pairs(clusters, problem.rtt_ms, np.inf), (len(services), len(clusters))
        out_edges = tuple(tuple(np.flatnonzero(source == k).tolist()) for k in range(len(classes)))
        ratio = np.array([e.calls_per_request for e in problem.edges], dtype=float)
        demand = np.array(
            [[problem.demand_rps.get((c, k), 0.0) for c in clusters] for k in classes], dtype=float
        ).reshape(len(classes), len(clusters))
        graph = Graph(clusters, classes, services, class_service, source, target, out_edges)
        bounds = reach(problem, graph, placed.reshape(shape), np.isfinite(rtt), demand)
        wait, hop_wait = _waits(problem, graph, ratio, demand, np.all(bounds.closed, axis=1))
        return cls(
            clusters=clusters,
            classes=classes,
            services=services,
            class_service=class_service,
            edge_source=source,
            edge_target=target,
            out_edges=out_edges,
            ratio=ratio,
            demand=demand,
            a=np.array([problem.curves[k].a_ms for k in classes], dtype=float),
            b=np.array([problem.curves[k].b_ms for k in classes], dtype=float),
            weight=np.array([problem.curves[k].norm_weight for k in classes], dtype=float),
            failure=_failure(problem, classes, clusters),
            capacity=np.array(
                [
                    [problem.capacity_rps[s, c] if (s, c) in problem.placement else 1.0 for c in clusters]
                    for s in services
                ],
                dtype=float,
            ).reshape(shape),
            placed=placed.reshape(shape),
            rtt=rtt,
            rtt_noise=_pairs(clusters, problem.rtt_noise_ms, 0.0),
            egress=_egress(problem, clusters),
            usable=bounds.usable,
            floor=bounds.floor,
            free=bounds.free,
            closed=bounds.closed,
            wait=wait,
            hop_wait=hop_wait,
            notes=bounds.notes,
        )

    def stranded(self) -> list[str]:
        """Returns a sentence for each demand that no routing can complete."""
        found = []
        for k, c in zip(*np.nonzero(self.demand > 0), strict=True):
            where = f"{self.classes[k]!r} entering in {self.clusters[c]!r}"
            if not self.placed[self.class_service[k], c]:
                found.append(f"placement: {self.services[self.class_service[k]]!r} is not placed for {where}")
            for e in self.out_edges[k]:
                if not self.usable[e, c].any() and not self.closed[e, c]:
                    found.append(
                        f"placement: nothing can serve {self.classes[self.edge_target[e]]!r} for {where}"
                    )
        return found


def _failure(problem: Values, classes: tuple[str, ...], clusters: tuple[str, ...]) -> Floats:
    costs = [[problem.failure_ms.get((k, c), 0.0) for c in clusters] for k in classes]
    return np.array(costs, dtype=float).reshape(len(classes), len(clusters))


def _index(names: tuple[str, ...]) -> dict[str, int]:
    return {name: i for i, name in enumerate(names)}


def _pairs(clusters: tuple[str, ...], values: Mapping[tuple[str, str], float], default: float) -> Floats:
    return np.array(
        [[values.get((i, j), 0.0 if i == j else default) for j in clusters] for i in clusters], dtype=float
    )


def _egress(problem: Values, clusters: tuple[str, ...]) -> Floats:
    """[E, from, to] US dollars per call.

    Request bytes leave the caller's cluster and response bytes the callee's. Each has its own
    price.
    """
    price = _pairs(clusters, problem.egress_usd_per_gb, 0.0) / _BYTES_PER_GB
    np.fill_diagonal(price, 0.0)
    there = np.array([e.request_bytes for e in problem.edges], dtype=float)
    back = np.array([e.response_bytes for e in problem.edges], dtype=float)
    return there[:, None, None] * price + back[:, None, None] * price.T


def _waits(
    problem: Values, graph: Graph, ratio: Floats, demand: Floats, shut: Bools
) -> tuple[Floats, Floats]:
    """Returns wait [K] and hop_wait [E]: the wait shares multiplied along the call path.

    A class with several callers gets the mean of theirs, weighted by volume. This is an
    approximation where the callers differ. Routing does not change it, because routing moves no
    volume between classes. Edges that are `shut` [E] carry no volume. Calls that nobody waits for
    still count _LEAST_WAIT, so that their overload has a price.
    """
    edge_wait = np.array([edge.wait_share for edge in problem.edges], dtype=float)
    volume = demand.sum(axis=1)
    waited, hop_wait = volume.copy(), edge_wait.copy()
    wait = np.ones(len(graph.classes))
    for k, edges in enumerate(graph.out_edges):
        if volume[k] > 0:
            wait[k] = waited[k] / volume[k]
        for e in edges:
            hop_wait[e] = max(wait[k] * edge_wait[e], _LEAST_WAIT)
            if not shut[e]:
                volume[graph.edge_target[e]] += ratio[e] * volume[k]
                waited[graph.edge_target[e]] += ratio[e] * volume[k] * hop_wait[e]
    return wait, hop_wait
