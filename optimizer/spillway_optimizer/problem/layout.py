"""A Problem as arrays. Only this file assigns the indices.

Axes: K classes (callers before callees), S services, E edges, C clusters.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from spillway_optimizer.problem.arrays import Bools, Floats, Ints
from spillway_optimizer.problem.reach import Graph, reach
from spillway_optimizer.problem.tail_targets import Target, enforced
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
    sd_a: Floats  # [K] ms; NaN: the spread is unknown
    sd_b: Floats  # [K] ms; NaN where sd_a is
    weight: Floats  # [K] normalised cost of one request
    failure: Floats  # [K, C] ms that failures cost per request
    # [S, C] normalised rps; 1 where the service is not placed (and has no load), NaN where unknown
    capacity: Floats
    seen: Floats  # [S, C] highest utilisation that curves were fitted to; inf: unknown
    placed: Bools  # [S, C]
    rtt: Floats  # [C, C] ms; inf: no link
    rtt_noise: Floats  # [C, C] ms, standard error
    egress: Floats  # [E, C, C] US dollars per call
    usable: Bools  # [E, C, C] an edge's calls may go there and can be completed
    floor: Floats  # [E, C, C] least share of each row's calls
    free: Bools  # [E, C, C] usable, and may have more than its floor
    closed: Bools  # [E, C] denials leave no destination; these rows carry no calls
    wait: Floats  # [K] share of a request's time that the user waits for
    edge_wait: Floats  # [E] share of an edge's calls that the caller's request waits for
    hop_wait: Floats  # [E] share of an edge's network time that the user waits for
    value: Floats  # [K] what one ms that a user waits for the class counts, in ms
    targets: tuple[Target, ...]  # tail targets that can be enforced
    tail_mean: Floats  # [K] what one ms of a call counts in addition, for tail targets
    tail_spread: Floats  # [K] what one ms of a call's standard deviation counts, for tail targets
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
        shut = np.all(bounds.closed, axis=1)
        wait, hop_wait, value = _waits(problem, graph, ratio, demand, shut)
        targets, unknown = enforced(problem, graph, np.where(shut, 0.0, ratio))
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
            sd_a=_known([problem.curves[k].sd_a_ms for k in classes]),
            sd_b=_known([problem.curves[k].sd_b_ms for k in classes]),
            weight=np.array([problem.curves[k].norm_weight for k in classes], dtype=float),
            failure=_failure(problem, classes, clusters),
            capacity=_capacity(problem, services).reshape(shape),
            seen=np.array(
                [[problem.seen_utilisation.get(s, np.inf)] * len(clusters) for s in services], dtype=float
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
            edge_wait=np.array([e.wait_share for e in problem.edges], dtype=float),
            hop_wait=hop_wait,
            value=value,
            targets=targets,
            tail_mean=_priced(problem, classes, "mean"),
            tail_spread=_priced(problem, classes, "spread"),
            notes=(*bounds.notes, *unknown),
        )

    @cached_property
    def depth(self) -> Ints:
        """[K] calls on the longest way to each class; 0: nobody calls it."""
        return _longest(len(self.classes), self.edge_source, self.edge_target)

    @cached_property
    def height(self) -> Ints:
        """[K] calls on the longest way that starts at each class; 0: it calls nobody."""
        return _longest(len(self.classes), self.edge_target, self.edge_source)

    @cached_property
    def down(self) -> tuple[Ints, ...]:
        """Edges [n] that can be walked at once, in groups: callers before the classes they call."""
        return _grouped(self.depth[self.edge_source])

    @cached_property
    def up(self) -> tuple[Ints, ...]:
        """Edges [n] that can be walked at once, in groups: callees before the classes that call."""
        return _grouped(self.height[self.edge_target])

    @cached_property
    def volume(self) -> Floats:
        """[K, C] rps of each class that demand of each entry cluster causes, at most."""
        volume: Floats = self.demand.copy()
        for k, edges in enumerate(self.out_edges):
            for e in edges:
                volume[self.edge_target[e]] += self.ratio[e] * volume[k]
        return volume

    @cached_property
    def worth(self) -> Floats:
        """[K] what one ms of a request counts in the objective, in ms."""
        return self.wait * self.value

    @cached_property
    def counted_a(self) -> Floats:
        """[K] ms that the objective counts per request for 1 / (1 - u), with tail prices."""
        return self.worth * self.a + self._tail(self.a, self.sd_a)

    @cached_property
    def counted_b(self) -> Floats:
        """[K] ms that the objective counts per request at any load, with tail prices."""
        return self.worth * self.b + self._tail(self.b, self.sd_b)

    def _tail(self, mean: Floats, spread: Floats) -> Floats:
        """[K] ms that tail prices count for a mean and a standard deviation in ms [K]."""
        return self.tail_mean * mean + np.where(self.tail_spread > 0, self.tail_spread * spread, 0.0)

    @cached_property
    def hop_worth(self) -> Floats:
        """[E] what one ms of an edge's network time counts in the objective, in ms."""
        source = self.edge_source
        return self.hop_wait * self.value[source] + self.tail_mean[source] * self.edge_wait

    @cached_property
    def failure_worth(self) -> Floats:
        """[K, C] what failures count in the objective, in ms per request."""
        return self.failure * self.value[:, None]

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


def _longest(count: int, begin: Ints, end: Ints) -> Ints:
    """Returns the number of edges on the longest way to each of `count` classes."""
    longest, before = np.zeros(count, dtype=int), None
    while before is None or (longest != before).any():
        before = longest.copy()
        np.maximum.at(longest, end, before[begin] + 1)
    return longest


def _grouped(values: Ints) -> tuple[Ints, ...]:
    """Returns the indices of equal values together, in the order of the values."""
    return tuple(np.flatnonzero(values == value) for value in np.unique(values))


def _failure(problem: Values, classes: tuple[str, ...], clusters: tuple[str, ...]) -> Floats:
    costs = [[problem.failure_ms.get((k, c), 0.0) for c in clusters] for k in classes]
    return np.array(costs, dtype=float).reshape(len(classes), len(clusters))


def _known(values: list[float | None]) -> Floats:
    """Returns the values [K], NaN where one is unknown."""
    return np.array([np.nan if value is None else value for value in values], dtype=float)


def _priced(problem: Values, classes: tuple[str, ...], part: str) -> Floats:
    """Returns a part of the tail prices [K], 0 where a class has none."""
    prices = problem.tail_prices
    return np.array([getattr(prices[k], part) if k in prices else 0.0 for k in classes], dtype=float)


def _capacity(problem: Values, services: tuple[str, ...]) -> Floats:
    """[S, C] capacities. All times of a service that has a class without a model are unknown."""
    unknown = {problem.classes[class_id] for class_id in problem.unmodelled}
    return np.array(
        [
            [
                1.0
                if (s, c) not in problem.placement
                else np.nan
                if s in unknown
                else problem.capacity_rps[s, c]
                for c in problem.clusters
            ]
            for s in services
        ],
        dtype=float,
    )


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
) -> tuple[Floats, Floats, Floats]:
    """Returns wait [K] and hop_wait [E], the wait shares multiplied along the call path; value [K].

    A class with several callers gets the mean of their waits, weighted by volume, and the mean of
    their values, weighted by the time that users wait for. This is an approximation where the
    callers differ. Routing does not change it, because routing moves no volume between classes.
    Edges that are `shut` [E] carry no volume. Calls that nobody waits for still count _LEAST_WAIT,
    so that their overload has a price. A class without volume gets the means that it would have if
    each entry class had the volume 1, so that its first request does not make them jump from 1.
    """
    edge_wait = np.array([edge.wait_share for edge in problem.edges], dtype=float)
    value = np.array([problem.latency_values.get(k, 1.0) for k in graph.classes], dtype=float)
    entry = np.array([k in problem.latency_values for k in graph.classes], dtype=bool)
    entry |= ~np.isin(np.arange(len(graph.classes)), graph.edge_target)
    passed_on = np.where(shut, 0.0, ratio)
    volume, wait, mean = _inherited(graph, passed_on, edge_wait, demand.sum(axis=1), value)
    _, idle_wait, idle_mean = _inherited(graph, passed_on, edge_wait, entry.astype(float), value)
    wait, mean = np.where(volume > 0, wait, idle_wait), np.where(volume > 0, mean, idle_mean)
    return wait, np.maximum(wait[graph.edge_source] * edge_wait, _LEAST_WAIT), mean


def _inherited(
    graph: Graph, ratio: Floats, edge_wait: Floats, demand: Floats, value: Floats
) -> tuple[Floats, Floats, Floats]:
    """Returns volume, mean wait and mean value of each class [K], for the users' requests `demand`.

    `value` [K] is that of users' requests; it stays where the volume is 0.
    """
    wait, mean, volume = np.ones_like(value), value.copy(), demand.copy()
    waited, valued = demand.copy(), demand * value
    for k, edges in enumerate(graph.out_edges):
        if volume[k] > 0:
            wait[k], mean[k] = waited[k] / volume[k], valued[k] / waited[k]
        for e in edges:
            to, calls = graph.edge_target[e], ratio[e] * volume[k]
            volume[to] += calls
            waited[to] += calls * max(wait[k] * edge_wait[e], _LEAST_WAIT)
            valued[to] += calls * max(wait[k] * edge_wait[e], _LEAST_WAIT) * mean[k]
    return volume, wait, mean
