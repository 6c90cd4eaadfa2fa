"""Predicts what every policy would do in one situation, as a JSON document with rules.

Nothing is published.
"""

import time
from collections.abc import Collection
from dataclasses import asdict
from typing import Any

from google.protobuf import json_format
from spillway.v1.ruleset_pb2 import Origin, Ruleset

from spillway_optimizer import OptimizerError
from spillway_optimizer.commands.whatif_arguments import words
from spillway_optimizer.explain.p99 import p99s
from spillway_optimizer.policies import REGISTRY, SPILLWAY
from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.objective import Evaluation
from spillway_optimizer.problem.rules import of_ruleset, to_shares
from spillway_optimizer.problem.solution import from_shares
from spillway_optimizer.process.progress import Progress
from spillway_optimizer.rulesets.assemble import Stamp, from_solution
from spillway_optimizer.rulesets.rule_json import as_json
from spillway_optimizer.sources.situation import Situation, now

TTL_S = 120.0


def plan(of: Situation, policies: Collection[str], progress: Progress) -> dict[str, Any]:
    """Returns the document.

    Keys: source, what_if, input_window, notes, applications, size, now, policies, optimum, ruleset.
    `policies`: names in the REGISTRY. The optimum is always computed, because the others are
    measured against it. A policy without an answer gives {"error": why}.
    """
    problem, answers, ruleset = of.problem, {}, None
    for name in REGISTRY:
        if name in policies or name == SPILLWAY:
            with progress.step(f"solving {name}"):
                answers[name], rules = _answer(of, name)
            ruleset = rules if name == SPILLWAY else ruleset
    today = now(of)
    with_today = from_shares(problem, today.shares)
    document = {
        "source": of.data.source,
        "what_if": words(of.what_if),
        "input_window": of.model.window.id,
        "notes": list(of.notes),
        "applications": [
            {"name": a.name, "services": sorted(a.services), "held": list(a.refusals)}
            for a in of.model.applications
        ],
        "size": _size(of),
        "now": _predicted(with_today.evaluation)
        | {
            "rules_from": today.rules_from,
            "notes": list(with_today.notes),
            "p99": _p99(of, today.shares),
        },
        "policies": answers,
        "optimum": SPILLWAY,
        "ruleset": ruleset and json_format.MessageToDict(ruleset, preserving_proto_field_name=True),
    }
    _measure(document)
    return document


def _size(of: Situation) -> dict[str, Any]:
    layout = of.problem.layout
    return {
        "clusters": len(layout.clusters),
        "services": len(layout.services),
        "classes": len(layout.classes),
        "edges": len(layout.edge_source),
        "demand_rps": {
            cluster: float(rps)
            for cluster, rps in zip(layout.clusters, layout.demand.sum(axis=0), strict=True)
        },
    }


def _answer(of: Situation, name: str) -> tuple[dict[str, Any], Ruleset | None]:
    """Returns the prediction and rules of one policy as JSON, and its ruleset."""
    problem, data, model = of.problem, of.data, of.model
    began = time.monotonic()
    stamp = Stamp(f"plan-{name}", name, Origin.ORIGIN_OPTIMIZER, model.window, data.now, TTL_S, model.classes)
    try:
        solution = REGISTRY[name]().route(problem)
        solve_s = time.monotonic() - began
        extracted = from_solution(problem, solution, stamp, data.topology)
    except OptimizerError as error:
        return {"error": str(error)}, None
    return _predicted(extracted.evaluation) | {
        "relative_gap": solution.relative_gap,
        "extraction_loss": extracted.loss,
        "solve_s": solve_s,
        "notes": list(solution.notes),
        "binding": list(solution.binding),
        "p99": _p99(of, to_shares(problem, of_ruleset(extracted.ruleset))),
        "rules": [as_json(rule) for rule in extracted.ruleset.rules],
    }, extracted.ruleset


def _predicted(evaluation: Evaluation) -> dict[str, float]:
    return {
        "mean_latency_ms": evaluation.mean_latency_ms,
        "compute_ms": evaluation.compute_ms,
        "network_ms": evaluation.network_ms,
        "egress_usd_per_hour": evaluation.egress_usd_per_hour,
        "objective_usd_per_hour": evaluation.usd_per_hour,
        "demand_rps": evaluation.demand_rps,
        "highest_utilisation": float(evaluation.utilisation.max(initial=0.0)),
    }


def _p99(of: Situation, shares: Floats) -> list[dict[str, Any]]:
    """Returns the estimated p99 of each entry class in each cluster; None where it is unknown."""
    return [asdict(p99) for p99 in p99s(of.problem, shares)]


def _measure(document: dict[str, Any]) -> None:
    """Adds above_optimum to `now` and to every policy that has an answer.

    It is the difference of the objective to that of the optimum's rules, relative to the latter.
    Negative: cheaper. None if the optimum has no answer.
    """
    best = document["policies"][SPILLWAY].get("objective_usd_per_hour")
    for row in (document["now"], *document["policies"].values()):
        if "error" not in row:
            cost = row["objective_usd_per_hour"]
            row["above_optimum"] = (cost - best) / best if best else None
