"""Problem <-> JSON document (contracts/golden/4_problem.json): pairs become nested objects, sorted."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from spillway_optimizer import ProblemError
from spillway_optimizer.problem import Curve, Edge, Problem

_PAIRS = ("demand_rps", "capacity_rps", "rtt_ms", "egress_usd_per_gb", "threshold_rps")


def to_document(problem: Problem) -> dict[str, Any]:
    document: dict[str, Any] = {
        "clusters": list(problem.clusters),
        "classes": dict(sorted(problem.classes.items())),
        "edges": [asdict(edge) for edge in problem.edges],
        "curves": {class_id: asdict(curve) for class_id, curve in sorted(problem.curves.items())},
        "placement": sorted(map(list, problem.placement)),
        "usd_per_ms": problem.usd_per_ms,
    }
    for name in _PAIRS:
        nested: dict[str, dict[str, float]] = {}
        for (first, second), value in sorted(getattr(problem, name).items()):
            nested.setdefault(first, {})[second] = value
        document[name] = nested
    return document


def from_document(document: Mapping[str, Any]) -> Problem:
    """Raises ProblemError for a wrong shape."""
    try:
        pairs = {
            name: {
                (first, second): value
                for first, row in document[name].items()
                for second, value in row.items()
            }
            for name in _PAIRS
        }
        return Problem(
            clusters=tuple(document["clusters"]),
            classes=dict(document["classes"]),
            edges=tuple(Edge(**edge) for edge in document["edges"]),
            curves={class_id: Curve(**curve) for class_id, curve in document["curves"].items()},
            placement=frozenset((service, cluster) for service, cluster in document["placement"]),
            usd_per_ms=document["usd_per_ms"],
            **pairs,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, ProblemError):
            raise
        raise ProblemError(f"problem document: {type(error).__name__}: {error}") from error
