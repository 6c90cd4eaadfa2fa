"""The objective (SLATE equations 1-3, appendix E.2) and the only evaluator of routings.

A routing minimises (compute time + network time + failures) * $/ms + egress, summed over all
requests per unit of time. Failures of a class in a cluster count as time: P * (1/R - 1) per call at
success rate R (failures.py, ADR 28).

Children of a request count one after the other, as in the paper's sums. Each counts by the share of
it that the request waits for (Edge.wait_share, below 1 for children called in parallel). All times
are therefore waiting times.
"""

from dataclasses import dataclass

import numpy as np

from spillway_optimizer import ProblemError
from spillway_optimizer.problem.arrays import Floats, Index
from spillway_optimizer.problem.layout import Layout
from spillway_optimizer.problem.problem import Problem

# Above this utilisation, 1 / (1 - u) continues as its tangent. Overload then stays finite, convex
# and ordered: more overload always costs more, so the optimum is the least bad answer.
U_LINEAR = 0.98
_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class Evaluation:
    """Cost of a routing. Rates of time are ms of request time per second of wall clock."""

    demand_rps: float
    compute_ms_rps: float
    network_ms_rps: float
    failure_ms_rps: float  # time that failures count as; not part of latency
    egress_usd_per_hour: float
    usd_per_hour: float  # the objective
    load: Floats  # [K, C] rps
    utilisation: Floats  # [S, C]; above 1: overload
    latency_ms: Floats  # [K, C] exclusive time

    @property
    def compute_ms(self) -> float:
        """Mean compute time per entry request."""
        return self.compute_ms_rps / self.demand_rps if self.demand_rps else 0.0

    @property
    def network_ms(self) -> float:
        """Mean network time per entry request."""
        return self.network_ms_rps / self.demand_rps if self.demand_rps else 0.0

    @property
    def mean_latency_ms(self) -> float:
        """Mean compute and network time per entry request."""
        return self.compute_ms + self.network_ms


def queue_factor(u: Floats | float) -> Floats:
    """1 / (1 - u) up to U_LINEAR, and its tangent beyond; convex and increasing for u >= 0."""
    u = np.asarray(u, dtype=float)
    edge = 1.0 / (1.0 - U_LINEAR)
    return np.where(u <= U_LINEAR, 1.0 / (1.0 - np.minimum(u, U_LINEAR)), edge + edge**2 * (u - U_LINEAR))


def queue_slope(u: Floats | float) -> Floats:
    """Derivative of queue_factor; continuous."""
    slope: Floats = 1.0 / (1.0 - np.minimum(np.asarray(u, dtype=float), U_LINEAR)) ** 2
    return slope


def propagate(layout: Layout, shares: Floats) -> tuple[Floats, Floats]:
    """Returns the flows [E, C, C] and loads [K, C], in rps, that `shares` [E, from, to] lead to.

    Raises ProblemError when, in a row that has load, a share leads where the edge cannot go or the
    shares do not sum to one.
    """
    load, flows = layout.demand.copy(), np.zeros_like(shares)
    for k, edges in enumerate(layout.out_edges):
        for e in edges:
            flows[e] = (layout.ratio[e] * load[k])[:, None] * shares[e]
            load[layout.edge_target[e]] += flows[e].sum(axis=0)
    _check_rows(layout, load, shares)
    return flows, load


def _check_rows(layout: Layout, load: Floats, shares: Floats) -> None:
    rows = (load[layout.edge_source] > 0) & ~layout.closed
    wrong = rows & (np.abs(shares.sum(axis=2) - 1.0) > 1e-6)
    wrong |= rows & ((shares > 0) & ~layout.usable).any(axis=2)
    if wrong.any():
        e, i = (int(index[0]) for index in np.nonzero(wrong))
        edge = f"{layout.classes[layout.edge_source[e]]} -> {layout.classes[layout.edge_target[e]]}"
        raise ProblemError(
            f"shares[{edge}] from {layout.clusters[i]!r}: must sum to 1 over clusters that can serve it"
        )


def utilisation(layout: Layout, load: Floats) -> Floats:
    """[S, C] normalised load divided by capacity."""
    normalised = np.zeros_like(layout.capacity)
    np.add.at(normalised, layout.class_service, layout.weight[:, None] * load)
    return normalised / layout.capacity


def evaluate(problem: Problem, flows: Floats) -> Evaluation:
    """Prices flows [E, C, C] (rps)."""
    layout = problem.layout
    load = layout.demand.copy()
    np.add.at(load, layout.edge_target, flows.sum(axis=1))
    u = utilisation(layout, load)
    latency = layout.a[:, None] * queue_factor(u)[layout.class_service] + layout.b[:, None]
    compute = float((layout.wait[:, None] * load * latency).sum())
    rtt = np.where(np.isfinite(layout.rtt), layout.rtt, 0.0)
    network = float((layout.hop_wait * (flows * rtt).sum(axis=(1, 2))).sum())
    failure = float((load * layout.failure).sum())
    egress = float((flows * layout.egress).sum()) * _SECONDS_PER_HOUR
    return Evaluation(
        demand_rps=float(layout.demand.sum()),
        compute_ms_rps=compute,
        network_ms_rps=network,
        failure_ms_rps=failure,
        egress_usd_per_hour=egress,
        usd_per_hour=(compute + network + failure) * problem.usd_per_ms * _SECONDS_PER_HOUR + egress,
        load=load,
        utilisation=u,
        latency_ms=latency,
    )


def evaluate_shares(problem: Problem, shares: Floats) -> Evaluation:
    """Prices the flows that shares [E, from, to] lead to."""
    return evaluate(problem, propagate(problem.layout, shares)[0])


def marginal_ms(problem: Problem, load: Floats) -> Floats:
    """[K, C] cost in ms of one more request of a class in a cluster, at these loads [K, C].

    The cost includes all calls that the request causes, each sent the cheapest way. Egress is
    converted at $/ms. The cost is inf where the request cannot be completed. It is the gradient of
    the objective, computed by dynamic programming over the call graph.
    """
    layout = problem.layout
    u = utilisation(layout, load)
    # [S, C] sum of wait * a * load: a longer queue costs in proportion to it
    pull = np.zeros_like(layout.capacity)
    np.add.at(pull, layout.class_service, (layout.wait * layout.a)[:, None] * load)
    crowding = pull * queue_slope(u) / layout.capacity
    service_ms = layout.a[:, None] * queue_factor(u)[layout.class_service] + layout.b[:, None]
    cost = (
        layout.wait[:, None] * service_ms
        + layout.failure
        + layout.weight[:, None] * crowding[layout.class_service]
    )
    cost = np.where(layout.placed[layout.class_service], cost, np.inf)
    for k in reversed(range(len(layout.classes))):
        for e in layout.out_edges[k]:
            cheapest = hop_ms(problem, e, cost[layout.edge_target[e]]).min(axis=1)
            cost[k] += layout.ratio[e] * np.where(layout.closed[e], 0.0, cheapest)
    return cost


def hop_ms(problem: Problem, e: Index, target_cost: Floats) -> Floats:
    """[from, to] cost in ms of one call over edge `e`; inf where the call cannot go.

    The cost is the sum of network time, egress at $/ms and the callee's `target_cost` [C].
    """
    layout = problem.layout
    rtt = np.where(layout.usable[e], layout.rtt, 0.0)
    cost = layout.hop_wait[e] * rtt + layout.egress[e] / problem.usd_per_ms + target_cost[None, :]
    return np.where(layout.usable[e], cost, np.inf)
