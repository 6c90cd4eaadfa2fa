"""Converts a Problem to a JSON document and back (contracts/golden/4_problem.json).

Values by pair become nested objects, sorted by key. What callers see (`callers`) is left out, and
what a failure costs them: solvers do not read it.
"""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from spillway_optimizer import ProblemError
from spillway_optimizer.problem.constraints import Constraints
from spillway_optimizer.problem.problem import Curve, Edge, Problem, TailPrice, TailTarget
from spillway_optimizer.problem.values import FAILURE_COST_MS

_NONE = Constraints()
_BY_ROUTE = ("pinned", "in_force", "held", "destinations")
_BY_PLACE = ("kept_local",)
_SETS = ("drained", "whole")
_PAIRS = ("demand_rps", "capacity_rps", "rtt_ms", "egress_usd_per_gb", "threshold_rps")
_OPTIONAL_BY_NAME = ("latency_values", "seen_utilisation")
_OPTIONAL_PAIRS = ("failure_ms", "rtt_noise_ms")
_TAILS = ("tail_targets", "tail_prices")


def to_document(problem: Problem) -> dict[str, Any]:
    """Returns the problem as a JSON document."""
    document: dict[str, Any] = {
        "clusters": list(problem.clusters),
        "classes": dict(sorted(problem.classes.items())),
        "edges": [asdict(edge) for edge in problem.edges],
        "curves": {class_id: _curve(curve) for class_id, curve in sorted(problem.curves.items())},
        "placement": sorted(map(list, problem.placement)),
        "usd_per_ms": problem.usd_per_ms,
    }
    for name in (*_PAIRS, *(name for name in _OPTIONAL_PAIRS if getattr(problem, name))):
        nested: dict[str, dict[str, float]] = {}
        for (first, second), value in sorted(getattr(problem, name).items()):
            nested.setdefault(first, {})[second] = value
        document[name] = nested
    for name in (name for name in _OPTIONAL_BY_NAME if getattr(problem, name)):
        document[name] = dict(sorted(getattr(problem, name).items()))
    for name in (name for name in _TAILS if getattr(problem, name)):
        document[name] = {key: asdict(value) for key, value in sorted(getattr(problem, name).items())}
    if problem.unmodelled:
        document["unmodelled"] = sorted(problem.unmodelled)
    if problem.extrapolation_caution:
        document["extrapolation_caution"] = problem.extrapolation_caution
    document["constraints"] = _constraints(problem.constraints)
    return document


def _curve(curve: Curve) -> dict[str, float]:
    """Returns a curve without the keys of what is unknown."""
    return {key: value for key, value in asdict(curve).items() if value is not None}


def _constraints(constraints: Constraints) -> dict[str, Any]:
    """Returns only the fields that differ from the default. Routes become objects."""
    found: dict[str, Any] = {}
    for item in fields(Constraints):
        value = getattr(constraints, item.name)
        if value == getattr(_NONE, item.name):
            continue
        if item.name in _BY_ROUTE:
            value = [{"route": list(route), "shares": dict(s)} for route, s in sorted(value.items())]
        elif item.name in _BY_PLACE:
            value = [{"class": k, "cluster": c, "share": share} for (k, c), share in sorted(value.items())]
        elif isinstance(value, frozenset):
            value = sorted(list(v) if isinstance(v, tuple) else v for v in value)
        found[item.name] = value
    return found


def _read_constraints(document: Mapping[str, Any]) -> Constraints:
    known = dict(document)
    for name in _BY_ROUTE:
        if name in known:
            known[name] = {tuple(row["route"]): dict(row["shares"]) for row in known[name]}
    for name in _BY_PLACE:
        if name in known:
            known[name] = {(row["class"], row["cluster"]): row["share"] for row in known[name]}
    for name in ("denied", "unruled"):
        if name in known:
            known[name] = frozenset(tuple(triple) for triple in known[name])
    for name in _SETS:
        if name in known:
            known[name] = frozenset(known[name])
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
            extrapolation_caution=document.get("extrapolation_caution", 0.0),
            latency_values=dict(document.get("latency_values", {})),
            seen_utilisation=dict(document.get("seen_utilisation", {})),
            tail_targets={k: TailTarget(**target) for k, target in document.get("tail_targets", {}).items()},
            tail_prices={k: TailPrice(**price) for k, price in document.get("tail_prices", {}).items()},
            constraints=_read_constraints(document.get("constraints", {})),
            callers={},
            failure_cost_ms=FAILURE_COST_MS,
            unmodelled=frozenset(document.get("unmodelled", [])),
            **pairs,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, ProblemError):
            raise
        raise ProblemError(f"problem document: {type(error).__name__}: {error}") from error
