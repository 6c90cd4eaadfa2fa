"""Converts a Problem to a JSON document and back (contracts/golden/4_problem.json).

Values by pair become nested objects, sorted by key.
"""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from spillway_optimizer import ProblemError
from spillway_optimizer.problem.constraints import Constraints
from spillway_optimizer.problem.problem import Curve, Edge, Problem

_NONE = Constraints()
_PAIRS = ("demand_rps", "capacity_rps", "rtt_ms", "egress_usd_per_gb", "threshold_rps")
_OPTIONAL_PAIRS = ("failure_ms", "rtt_noise_ms")


def to_document(problem: Problem) -> dict[str, Any]:
    """Returns the problem as a JSON document."""
    document: dict[str, Any] = {
        "clusters": list(problem.clusters),
        "classes": dict(sorted(problem.classes.items())),
        "edges": [asdict(edge) for edge in problem.edges],
        "curves": {class_id: asdict(curve) for class_id, curve in sorted(problem.curves.items())},
        "placement": sorted(map(list, problem.placement)),
        "usd_per_ms": problem.usd_per_ms,
    }
    for name in (*_PAIRS, *(name for name in _OPTIONAL_PAIRS if getattr(problem, name))):
        nested: dict[str, dict[str, float]] = {}
        for (first, second), value in sorted(getattr(problem, name).items()):
            nested.setdefault(first, {})[second] = value
        document[name] = nested
    document["constraints"] = _constraints(problem.constraints)
    return document


def _constraints(constraints: Constraints) -> dict[str, Any]:
    """Returns only the fields that differ from the default. Routes become objects."""
    found: dict[str, Any] = {}
    for item in fields(Constraints):
        value = getattr(constraints, item.name)
        if value == getattr(_NONE, item.name):
            continue
        if item.name in ("pinned", "in_force", "held"):
            value = [{"route": list(route), "shares": dict(s)} for route, s in sorted(value.items())]
        elif isinstance(value, frozenset):
            value = sorted(list(v) if isinstance(v, tuple) else v for v in value)
        found[item.name] = value
    return found


def _read_constraints(document: Mapping[str, Any]) -> Constraints:
    known = dict(document)
    for name in ("pinned", "in_force", "held"):
        if name in known:
            known[name] = {tuple(row["route"]): dict(row["shares"]) for row in known[name]}
    for name in ("denied", "unruled"):
        if name in known:
            known[name] = frozenset(tuple(triple) for triple in known[name])
    if "drained" in known:
        known["drained"] = frozenset(known["drained"])
    return Constraints(**known)


def from_document(document: Mapping[str, Any]) -> Problem:
    """Builds the problem from a document. Raises ProblemError if its shape is wrong."""
    try:
        pairs = {
            name: {
                (first, second): value
                for first, row in (document[name] if name in _PAIRS else document.get(name, {})).items()
                for second, value in row.items()
            }
            for name in (*_PAIRS, *_OPTIONAL_PAIRS)
        }
        return Problem(
            clusters=tuple(document["clusters"]),
            classes=dict(document["classes"]),
            edges=tuple(Edge(**edge) for edge in document["edges"]),
            curves={class_id: Curve(**curve) for class_id, curve in document["curves"].items()},
            placement=frozenset((service, cluster) for service, cluster in document["placement"]),
            usd_per_ms=document["usd_per_ms"],
            constraints=_read_constraints(document.get("constraints", {})),
            **pairs,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, ProblemError):
            raise
        raise ProblemError(f"problem document: {type(error).__name__}: {error}") from error
