"""PAPA's measurements of user latency, and of destinations against their predictions. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from spillway.v1.topology_pb2 import Topology
from spillway_contracts import traffic_class
from spillway_contracts.guardrails import Guardrails
from spillway_contracts.hot_state import LoadBoardEntry

from spillway_optimizer import ProblemError
from spillway_optimizer.inputs.guardrails import latency_values
from spillway_optimizer.inputs.in_force import InForce
from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.model.model import Limits, build
from spillway_optimizer.papa.step import Observation, Observations
from spillway_optimizer.problem.objective import (
    evaluate,
    hop_ms,
    own_marginal_ms,
    propagate,
    queue_factor,
    utilisation,
)
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.rules import RuleKey, Rules, routes, to_shares

_SECONDS_PER_HOUR = 3600.0
# A jump of a gap: samples on each side of it, and standard errors, which are known from six samples
# at least. Every place where it may be is looked at, for every destination.
_TAIL, _JUMP = 3, 12.0


@dataclass(frozen=True)
class Sample:
    """One measurement of the mesh."""

    # Mean latency, weighted by demand and by the values of classes, plus egress at $/ms.
    objective_ms: float
    failed_share: float
    # In ms by "cluster class": end-to-end at entries, exclusive for other classes.
    latency_ms: Mapping[str, float]
    gaps_ms: Mapping[tuple[RuleKey, str], float]  # by rule and destination, as in Observation
    costs_ms: Mapping[tuple[RuleKey, str], float]
    rule_rps: Mapping[RuleKey, float]


@dataclass(frozen=True)
class Measurement:
    """Samples of several windows.

    Values that PAPA compares are averaged. Values whose spread it needs are kept for each sample.
    """

    objective_ms: float
    failed_share: float
    latency_ms: Mapping[str, float]
    observations: Mapping[RuleKey, Observations]
    rule_rps: Mapping[RuleKey, float]
    objectives_ms: Sequence[float] = ()  # one value per sample


def sample(
    telemetry: Telemetry,
    in_force: InForce,
    topology: Topology,
    now: float,
    max_age_s: float,
    guardrails: Guardrails,
) -> Sample:
    """Takes one sample. Raises ProblemError with the reason if no sound sample is possible now.

    Of the guardrails, only the values of latency count.
    """
    model = build(telemetry, topology, now, Limits(board_max_age_s=max_age_s))
    if model.problem is None:
        raise ProblemError("; ".join(model.refusals))
    entries = [
        (cluster, class_id, entry)
        for cluster, board in telemetry.demand.items()
        for class_id, entry in board.items()
        if now - entry.at <= max_age_s and entry.rps > 0
    ]
    total = sum(entry.rps for _, _, entry in entries)
    if total <= 0:
        raise ProblemError("demand: no fresh board has requests")
    values = latency_values(guardrails, model.problem.demand_rps)
    worth_ms = sum(
        values.get(class_id, 1.0) * entry.rps * entry.duration_ms for _, class_id, entry in entries
    )
    egress_ms, rule_rps = _priced(model.problem, in_force.rules)
    gaps_ms, costs_ms = _compared(telemetry, model.problem, in_force, now, max_age_s)
    latency = {f"{cluster} {class_id}": entry.duration_ms for cluster, class_id, entry in entries}
    for cluster, board in telemetry.load.items():
        for class_id, entry in board.items():
            if now - entry.at <= max_age_s and entry.rps > 0:
                latency.setdefault(f"{cluster} {class_id}", entry.exclusive_ms)
    return Sample(
        objective_ms=worth_ms / total + egress_ms,
        failed_share=sum(e.rps * e.failed_share for _, _, e in entries) / total,
        latency_ms=latency,
        gaps_ms=gaps_ms,
        costs_ms=costs_ms,
        rule_rps=rule_rps,
    )


def _priced(problem: Problem, rules: Rules) -> tuple[float, dict[RuleKey, float]]:
    """Returns egress per entry request in ms at $/ms, and the calls per second of each rule."""
    layout = problem.layout
    flows, _ = propagate(layout, to_shares(problem, rules))
    evaluation = evaluate(problem, flows)
    egress = evaluation.egress_usd_per_hour / _SECONDS_PER_HOUR / problem.usd_per_ms / evaluation.demand_rps
    rps: dict[RuleKey, float] = {}
    for e in range(len(flows)):
        service = layout.services[layout.class_service[layout.edge_source[e]]]
        for i, cluster in enumerate(layout.clusters):
            key = RuleKey(cluster, service, layout.classes[layout.edge_target[e]])
            rps[key] = rps.get(key, 0.0) + float(flows[e, i].sum())
    return egress, rps


Pairs = Mapping[tuple[RuleKey, str], float]  # by rule and destination


def _compared(
    telemetry: Telemetry, problem: Problem, in_force: InForce, now: float, max_age_s: float
) -> tuple[Pairs, Pairs]:
    """Returns gaps and costs (see Observation) of the destinations in use, in ms.

    A time is expected by the curve at the load of the moment, and by the network time that the rule
    was made with. A cost includes the calls that the request causes, which go where the rules in
    force send them, and what these destinations are slower than expected. What is not observed now,
    or cannot be served there, is left out.
    """
    layout, observed = problem.layout, _observed(telemetry, problem, now, max_age_s)
    load = np.array([[e.rps if e else 0.0 for e in row] for row in observed], dtype=float)
    taken = np.array([[e.exclusive_ms if e else np.nan for e in row] for row in observed], dtype=float)
    queueing = queue_factor(utilisation(layout, load))[layout.class_service]
    own_gap = layout.a[:, None] * queueing + layout.b[:, None] - taken  # [K, C]; NaN: not observed
    cost = own_marginal_ms(problem, load) - layout.worth[:, None] * np.nan_to_num(own_gap)
    shares = to_shares(problem, in_force.rules)
    for edges in layout.up:
        hops = np.where(shares[edges] > 0, hop_ms(problem, edges, cost), 0.0)
        calls = layout.ratio[edges, None] * (shares[edges] * hops).sum(axis=2)
        np.add.at(cost, layout.edge_source[edges], calls)
    gaps, costs, network = {}, {}, _predicted_network(in_force)
    for (s, k), of_route in routes(problem).items():
        hops = hop_ms(problem, np.array(of_route[:1]), cost)[0]
        for i, j in zip(*np.nonzero(np.isfinite(hops)), strict=True):
            key = RuleKey(layout.clusters[i], layout.services[s], layout.classes[k])
            to = layout.clusters[j]
            if to not in in_force.rules.get(key, {}) or np.isnan(own_gap[k, j]):
                continue
            slower = layout.rtt[i, j] - network.get((key, to), layout.rtt[i, j])
            gaps[key, to], costs[key, to] = float(own_gap[k, j] - slower), float(hops[i, j])
    return gaps, costs


def _observed(
    telemetry: Telemetry, problem: Problem, now: float, max_age_s: float
) -> list[list[LoadBoardEntry | None]]:
    """Returns the entries of the load boards, [K, C]; None: no calls, or nothing fresh."""

    def entry(cluster: str, class_id: str) -> LoadBoardEntry | None:
        found = telemetry.load.get(cluster, {}).get(class_id)
        return found if found and found.rps > 0 and now - found.at <= max_age_s else None

    layout = problem.layout
    return [[entry(cluster, class_id) for cluster in layout.clusters] for class_id in layout.classes]


def _predicted_network(in_force: InForce) -> Pairs:
    """Returns the network times that the rules in force were made with, in ms."""
    predictions = {}
    for ruleset in in_force.rulesets.values():
        for rule in ruleset.rules:
            class_id = traffic_class.format_id(rule.traffic_class)
            key = RuleKey(rule.source_cluster, rule.source_service, class_id)
            for destination in rule.destinations:
                # A destination that comes back in a rollback has no prediction.
                if destination.predicted_compute_ms or destination.predicted_network_ms:
                    predictions[key, destination.cluster] = destination.predicted_network_ms
    return predictions


def measure(samples: Sequence[Sample]) -> Measurement:
    """Combines samples into a measurement. Raises ValueError without samples."""
    if not samples:
        raise ValueError("samples: empty; at least one is needed")
    observations: dict[RuleKey, dict[str, Observation]] = {}
    for key, cluster in sorted({pair for s in samples for pair in s.gaps_ms}):
        those = [s for s in samples if (key, cluster) in s.gaps_ms]
        observations.setdefault(key, {})[cluster] = Observation(
            [s.gaps_ms[key, cluster] for s in those], [s.costs_ms[key, cluster] for s in those]
        )
    return Measurement(
        objective_ms=_mean([s.objective_ms for s in samples]),
        failed_share=_mean([s.failed_share for s in samples]),
        latency_ms={
            k: _mean([s.latency_ms[k] for s in samples if k in s.latency_ms])
            for k in {k for s in samples for k in s.latency_ms}
        },
        observations=observations,
        rule_rps={
            k: _mean([s.rule_rps.get(k, 0.0) for s in samples])
            for k in {k for s in samples for k in s.rule_rps}
        },
        objectives_ms=tuple(s.objective_ms for s in samples),
    )


def steady(samples: Sequence[Sample], delta: float) -> Sequence[Sample]:
    """Returns the newest samples, since a destination's gap last jumped.

    The expected time is that of the load of the moment, so a jump comes from outside. A mean over
    both sides of it describes neither. A jump is larger than `delta` of the objective and than what
    chance explains.
    """
    least_ms = delta * _mean([s.objective_ms for s in samples])
    for at in range(len(samples) - _TAIL, _TAIL - 1, -1):
        earlier, later = samples[:at], samples[at:]
        pairs = {pair for s in earlier for pair in s.gaps_ms} & {pair for s in later for pair in s.gaps_ms}
        if any(_jumped(earlier, later, pair, least_ms) for pair in pairs):
            return later
    return samples


def _jumped(
    earlier: Sequence[Sample], later: Sequence[Sample], pair: tuple[RuleKey, str], least_ms: float
) -> bool:
    a, b = ([s.gaps_ms[pair] for s in side if pair in s.gaps_ms] for side in (earlier, later))
    if min(len(a), len(b)) < _TAIL:
        return False
    squares = float(np.var(a)) * len(a) + float(np.var(b)) * len(b)
    error = math.sqrt(squares / (len(a) + len(b) - 2) * (1 / len(a) + 1 / len(b)))
    return abs(_mean(b) - _mean(a)) > max(least_ms, _JUMP * error)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
