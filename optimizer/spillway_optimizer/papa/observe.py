"""PAPA's measurements of user latency, and of destinations against their predictions. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spillway.v1.topology_pb2 import Topology
from spillway_contracts.guardrails import Guardrails

from spillway_optimizer import ProblemError
from spillway_optimizer.inputs.guardrails import latency_values
from spillway_optimizer.inputs.in_force import InForce
from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.model.model import Limits, build
from spillway_optimizer.papa.step import Observation, Observations
from spillway_optimizer.problem.objective import evaluate, propagate
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.rules import RuleKey, Rules, to_shares

_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class Sample:
    """One measurement of the mesh."""

    # Mean latency, weighted by demand and by the values of classes, plus egress at $/ms.
    objective_ms: float
    failed_share: float
    # In ms by "cluster class": end-to-end at entries, exclusive for other classes.
    latency_ms: Mapping[str, float]
    observed_ms: Mapping[tuple[RuleKey, str], float]  # by rule and destination
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
    latency = {f"{cluster} {class_id}": entry.duration_ms for cluster, class_id, entry in entries}
    for cluster, board in telemetry.load.items():
        for class_id, entry in board.items():
            if now - entry.at <= max_age_s and entry.rps > 0:
                latency.setdefault(f"{cluster} {class_id}", entry.exclusive_ms)
    return Sample(
        objective_ms=worth_ms / total + egress_ms,
        failed_share=sum(e.rps * e.failed_share for _, _, e in entries) / total,
        latency_ms=latency,
        observed_ms=_observed(telemetry, model.problem, in_force.rules, now, max_age_s),
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


def _observed(
    telemetry: Telemetry, problem: Problem, rules: Rules, now: float, max_age_s: float
) -> dict[tuple[RuleKey, str], float]:
    """Returns exclusive time plus network time in ms, by rule and destination."""
    observed = {}
    for key, weights in rules.items():
        for cluster in weights:
            entry = telemetry.load.get(cluster, {}).get(key.class_id)
            network = problem.rtt_ms.get((key.source_cluster, cluster))
            if entry is not None and network is not None and now - entry.at <= max_age_s and entry.rps > 0:
                observed[key, cluster] = entry.exclusive_ms + network
    return observed


def expected(in_force: InForce) -> dict[tuple[RuleKey, str], float]:
    """Returns the predictions in the rules in force: exclusive time plus network time, in ms."""
    predictions = {}
    for ruleset in in_force.rulesets.values():
        for rule in ruleset.rules:
            c = rule.traffic_class
            key = RuleKey(
                rule.source_cluster, rule.source_service, f"{c.service} {c.method} {c.path_template}"
            )
            for d in rule.destinations:
                predictions[key, d.cluster] = d.predicted_compute_ms + d.predicted_network_ms
    return predictions


def measure(samples: Sequence[Sample], predictions: Mapping[tuple[RuleKey, str], float]) -> Measurement:
    """Combines samples into a measurement. Raises ValueError without samples."""
    if not samples:
        raise ValueError("samples: empty; at least one is needed")
    observations: dict[RuleKey, dict[str, Observation]] = {}
    for key, cluster in sorted({pair for s in samples for pair in s.observed_ms} & predictions.keys()):
        values = tuple(s.observed_ms[key, cluster] for s in samples if (key, cluster) in s.observed_ms)
        observations.setdefault(key, {})[cluster] = Observation(predictions[key, cluster], values)
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


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
