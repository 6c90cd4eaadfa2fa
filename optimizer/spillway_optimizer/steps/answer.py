"""What one step answers: the rules in force, and what the optimizer and PAPA did."""

import math
from typing import Any

from spillway.v1.ruleset_pb2 import Origin

from spillway_optimizer.inputs.in_force import in_force_of
from spillway_optimizer.judging.memories import rules_by_key
from spillway_optimizer.rulesets.rule_json import as_json
from spillway_optimizer.steps.memory_mesh import MemoryMesh

_SOLVE = ("application", "outcome", "trigger", "reason", "notes")
_STEP = {
    "source_cluster": "source_cluster", "class": "class", "outcome": "outcome", "reason": "reason",
    "weights_before": "weights_before", "weights_after": "weights_after",
    "objective_before": "objective_before_ms", "objective_after": "objective_after_ms",
}  # fmt: skip


def answer(mesh: MemoryMesh) -> dict[str, Any]:
    """Returns the document. What is unknown in it is null."""
    in_force = in_force_of(mesh.rulesets)
    found = rules_by_key(in_force, mesh.at)
    routed = in_force.routing(mesh.at) if in_force else {}
    rules = [
        as_json(rule) | {"weights": dict(routed[key]), "changed_by": _origin(rule.changed_by)}
        for key, rule in sorted(found.items())
        if key in routed
    ]
    return {
        "at_ms": round(mesh.at * 1000),
        "version": mesh.version,
        "policy": in_force.policy if in_force else None,
        "rules": rules,
        "solves": [{key: row[key] for key in _SOLVE} for row in mesh.rows.get("solves", ())],
        "papa_steps": [
            {name: _known(row[key]) for key, name in _STEP.items()} for row in mesh.rows.get("papa_steps", ())
        ],
        "refused": mesh.refused,
    }


def _origin(origin: Origin) -> str:
    return Origin.Name(origin).removeprefix("ORIGIN_").lower()


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value
