"""What every policy would do with one model: predictions and rules. Nothing is published."""

from typing import Any

from spillway.v1.ruleset_pb2 import Origin
from spillway.v1.topology_pb2 import Topology
from spillway_contracts import traffic_class

from spillway_optimizer import ProblemError
from spillway_optimizer.extract import Extracted, Stamp, from_solution
from spillway_optimizer.model import Limits, build
from spillway_optimizer.policies import REGISTRY
from spillway_optimizer.solution import Solution
from spillway_optimizer.telemetry import Telemetry


def plan(telemetry: Telemetry, topology: Topology, now: float, ttl_s: float = 120.0) -> dict[str, Any]:
    """A JSON document: notes, window, and per policy its prediction and rules. Raises ProblemError with the
    refusals when no problem can be built."""
    model = build(telemetry, topology, now, Limits())
    if model.problem is None:
        raise ProblemError("; ".join(model.refusals))
    policies = {}
    for name, policy in REGISTRY.items():
        solution = policy().route(model.problem)
        stamp = Stamp(f"plan-{name}", name, Origin.ORIGIN_OPTIMIZER, model.window, now, ttl_s, model.classes)
        policies[name] = _summary(solution, from_solution(model.problem, solution, stamp, topology))
    return {"input_window": model.window.id, "notes": list(model.notes), "policies": policies}


def _summary(solution: Solution, extracted: Extracted) -> dict[str, Any]:
    predicted = extracted.evaluation
    return {
        "mean_latency_ms": predicted.mean_latency_ms,
        "compute_ms": predicted.compute_ms,
        "network_ms": predicted.network_ms,
        "egress_usd_per_hour": predicted.egress_usd_per_hour,
        "objective_usd_per_hour": predicted.usd_per_hour,
        "demand_rps": predicted.demand_rps,
        "relative_gap": solution.relative_gap,
        "extraction_loss": extracted.loss,
        "notes": list(solution.notes),
        "rules": [
            {
                "source_cluster": rule.source_cluster,
                "source_service": rule.source_service,
                "class": traffic_class.format_id(rule.traffic_class),
                "weights": {d.cluster: d.weight for d in rule.destinations},
                "reason": rule.reason,
            }
            for rule in extracted.ruleset.rules
        ],
    }


def as_text(document: dict[str, Any]) -> str:
    lines = [f"input window {document['input_window']}"]
    lines += [f"note: {note}" for note in document["notes"]]
    lines.append(
        f"\n{'policy':<12}{'mean ms':>10}{'compute':>10}{'network':>10}"
        f"{'egress $/h':>12}{'$/h':>10}{'gap':>10}"
    )
    for name, row in document["policies"].items():
        gap = "-" if row["relative_gap"] is None else f"{row['relative_gap']:.1e}"
        lines.append(
            f"{name:<12}{row['mean_latency_ms']:>10.2f}{row['compute_ms']:>10.2f}{row['network_ms']:>10.2f}"
            f"{row['egress_usd_per_hour']:>12.4f}{row['objective_usd_per_hour']:>10.4f}{gap:>10}"
        )
    for name, row in document["policies"].items():
        lines.append(f"\n{name}:")
        lines += [f"  note: {note}" for note in row["notes"]]
        for rule in row["rules"]:
            weights = ", ".join(
                f"{cluster} {weight / 100:g} %" for cluster, weight in rule["weights"].items()
            )
            lines.append(f"  {rule['source_cluster']}/{rule['source_service']} -> {rule['class']}: {weights}")
            lines.append(f"      {rule['reason']}")
    return "\n".join(lines)
