"""The objective (SLATE equations 1-3, appendix E.2) and the only evaluator of routings.

A routing minimises (compute time + network time + failures) * $/ms + egress, summed over all
requests per unit of time. Failures of a class in a cluster count as time: P * (1/R - 1) per call at
success rate R (failures.py, ADR 28).

Children of a request count one after the other, as in the paper's sums. Each counts by the share of
it that the request waits for (Edge.wait_share, below 1 for children called in parallel). All times
are therefore waiting times. In US dollars, each counts by the value of its class (Layout.value),
and queueing beyond the loads that curves were fitted to counts more (counted_factor). What the p99
of a class exceeds its target by counts too (tails.py).
"""

from dataclasses import dataclass

import numpy as np

from spillway_optimizer import ProblemError
from spillway_optimizer.problem.arrays import Floats, Ints
from spillway_optimizer.problem.layout import Layout
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.tails import Tail, targeted

# Above this utilisation, 1 / (1 - u) continues as its tangent. Overload then stays finite, convex
# and ordered: more overload always costs more, so the optimum is the least bad answer.
U_LINEAR = 0.98
_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class Evaluation:
    """Cost of a routing.

    Rates of time are ms of request time per second of wall clock, whatever the time is worth.
    Amounts in US dollars count each ms by the value of its class.
    """

    demand_rps: float
    compute_ms_rps: float
    network_ms_rps: float
    failure_ms_rps: float  # time that failures count as; not part of latency
    compute_usd_per_hour: float
    caution_usd_per_hour: float  # the part of compute that no request is expected to take
    network_usd_per_hour: float
    failure_usd_per_hour: float
    egress_usd_per_hour: float
    tail_usd_per_hour: float  # what estimated p99s exceed their targets by
    usd_per_hour: float  # the objective: compute, network, failure, egress and tail
    load: Floats  # [K, C] rps
    utilisation: Floats  # [S, C]; above 1: overload
    latency_ms: Floats  # [K, C] exclusive time
    tails: tuple[Tail, ...] = ()  # of the tail targets that are enforced

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


def extrapolated(u: Floats, seen: Floats) -> tuple[Floats, Floats]:
    """Returns what queue_factor has above its tangent at `seen`, and the derivative by u.

    Both are 0 up to `seen`, continuous and increasing beyond; inf: nothing is extrapolated.
    """
    edge = np.minimum(seen, U_LINEAR)  # beyond it the factor is a line itself
    slope = queue_slope(edge)
    above = np.maximum(np.asarray(u, dtype=float), edge)
    return queue_factor(above) - queue_factor(edge) - slope * (above - edge), queue_slope(above) - slope


def counted_factor(problem: Problem, u: Floats) -> tuple[Floats, Floats]:
    """Returns the factor by which queueing counts at utilisation u [S, C], and its derivative by u.

    It is queue_factor, and the extrapolated part of it again, times the caution.
    """
    caution = problem.extrapolation_caution
    if caution == 0.0:
        return queue_factor(u), queue_slope(u)
    factor, slope = extrapolated(u, problem.layout.seen)
    return queue_factor(u) + caution * factor, queue_slope(u) + caution * slope


def propagate(layout: Layout, shares: Floats) -> tuple[Floats, Floats]:
    """Returns the flows [E, C, C] and loads [K, C], in rps, that `shares` [E, from, to] lead to.

    Raises ProblemError when, in a row that has load, a share leads where the edge cannot go or the
    shares do not sum to one.
    """
    load, flows = layout.demand.copy(), np.zeros_like(shares)
    for edges in layout.down:
        calls = layout.ratio[edges, None] * load[layout.edge_source[edges]]
        flows[edges] = calls[:, :, None] * shares[edges]
        np.add.at(load, layout.edge_target[edges], flows[edges].sum(axis=1))
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
    queueing = queue_factor(u)
    latency = layout.a[:, None] * queueing[layout.class_service] + layout.b[:, None]
    rtt = np.where(np.isfinite(layout.rtt), layout.rtt, 0.0)
    compute_ms = (load * latency).sum(axis=1)  # [K] per second, as network_ms [E]
    network_ms = (flows * rtt).sum(axis=(1, 2))
    usd = problem.usd_per_ms * _SECONDS_PER_HOUR
    surcharge = (counted_factor(problem, u)[0] - queueing)[layout.class_service]
    caution = float((layout.counted_a[:, None] * load * surcharge).sum()) * usd
    compute = float((layout.worth * compute_ms).sum()) * usd + caution
    if problem.tail_prices:
        counted = layout.counted_a[:, None] * queueing[layout.class_service] + layout.counted_b[:, None]
        compute = float((counted * load).sum()) * usd + caution
    network = float((layout.hop_worth * network_ms).sum()) * usd
    failure = float((load * layout.failure_worth).sum()) * usd
    egress = float((flows * layout.egress).sum()) * _SECONDS_PER_HOUR
    tails = targeted(layout, flows, queueing) if layout.targets else ()
    tail = sum(found.penalty_ms_rps for found in tails) * usd
    return Evaluation(
        demand_rps=float(layout.demand.sum()),
        compute_ms_rps=float((layout.wait * compute_ms).sum()),
        network_ms_rps=float((layout.hop_wait * network_ms).sum()),
        failure_ms_rps=float((load * layout.failure).sum()),
        compute_usd_per_hour=compute,
        caution_usd_per_hour=caution,
        network_usd_per_hour=network,
        failure_usd_per_hour=failure,
        egress_usd_per_hour=egress,
        tail_usd_per_hour=tail,
        usd_per_hour=compute + network + failure + egress + tail,
        load=load,
        utilisation=u,
        latency_ms=latency,
        tails=tails,
    )


def evaluate_shares(problem: Problem, shares: Floats) -> Evaluation:
    """Prices the flows that shares [E, from, to] lead to."""
    return evaluate(problem, propagate(problem.layout, shares)[0])


def own_marginal_ms(problem: Problem, load: Floats) -> Floats:
    """[K, C] cost in ms of one more request of a class in a cluster, without its calls.

    `load` [K, C] is in requests per second. The cost is inf where the service is not placed.
    """
    layout = problem.layout
    u = utilisation(layout, load)
    # [S, C] sum of counted_a * load: a longer queue costs in proportion to it
    pull = np.zeros_like(layout.capacity)
    np.add.at(pull, layout.class_service, layout.counted_a[:, None] * load)
    factor, slope = counted_factor(problem, u)
    crowding = pull * slope / layout.capacity
    cost = (
        layout.counted_a[:, None] * factor[layout.class_service]
        + layout.counted_b[:, None]
        + layout.failure_worth
        + layout.weight[:, None] * crowding[layout.class_service]
    )
    return np.where(layout.placed[layout.class_service], cost, np.inf)


def marginal_ms(problem: Problem, load: Floats) -> Floats:
    """[K, C] cost in ms of one more request of a class in a cluster, at these loads [K, C].

    Each ms counts by its value. The cost includes all calls that the request causes, each sent the
    cheapest way. Egress is converted at $/ms. The cost is inf where the request cannot be
    completed. It is the gradient of the objective, computed by dynamic programming over the call
    graph.
    """
    layout, cost = problem.layout, own_marginal_ms(problem, load)
    for edges in layout.up:
        cheapest = hop_ms(problem, edges, cost).min(axis=2)
        calls = layout.ratio[edges, None] * np.where(layout.closed[edges], 0.0, cheapest)
        np.add.at(cost, layout.edge_source[edges], calls)
    return cost


def hop_ms(problem: Problem, edges: Ints, cost: Floats) -> Floats:
    """[n, from, to] cost in ms of one call over each of `edges` [n]; inf where it cannot go.

    It is the sum of network time, egress at $/ms and what the call costs where it is served, by
    `cost` [K, C].
    """
    layout = problem.layout
    usable, there = layout.usable[edges], cost[layout.edge_target[edges]]
    network = layout.hop_worth[edges, None, None] * np.where(usable, layout.rtt, 0.0)
    total = network + layout.egress[edges] / problem.usd_per_ms + there[:, None, :]
    return np.where(usable, total, np.inf)
