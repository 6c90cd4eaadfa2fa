"""The optimizer's input: plain frozen values (SLATE 4.3, appendix E.1).

Units, everywhere in this package: time in milliseconds, rates in requests per second (rps), sizes in
bytes per call, prices in US dollars. A pair of clusters is always (from, to).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

from spillway_optimizer import ProblemError
from spillway_optimizer import constraints as side
from spillway_optimizer.constraints import Constraints
from spillway_optimizer.layout import Layout


@dataclass(frozen=True)
class Curve:
    """L(u) = a_ms / (1 - u) + b_ms of one class, u = the service's normalised load / capacity.

    b_ms may be below 0 (several workers hide part of the queue at low load) but not below -a_ms.
    """

    a_ms: float
    b_ms: float
    norm_weight: float = 1.0  # cost of one request in units of the service's baseline class


@dataclass(frozen=True)
class Edge:
    """Calls that one request of class `source` makes to class `target`."""

    source: str
    target: str
    calls_per_request: float
    request_bytes: float
    response_bytes: float
    # Share of these calls on whose end the caller's request waits. 1: the children come one after the other.
    # Of children called in parallel: the probability of each to end last, which is the derivative of the
    # expected maximum of their times.
    wait_share: float = 1.0


@dataclass(frozen=True)
class Problem:
    """Everything a routing decision depends on. Raises ProblemError listing all that is wrong.

    Entry demand is served in the cluster it enters; only edges are routed.
    """

    clusters: tuple[str, ...]
    classes: Mapping[str, str]  # class id -> service
    edges: tuple[Edge, ...]
    demand_rps: Mapping[tuple[str, str], float]  # (cluster, entry class)
    curves: Mapping[str, Curve]  # by class id
    capacity_rps: Mapping[tuple[str, str], float]  # (service, cluster), in requests of the baseline class
    placement: frozenset[tuple[str, str]]  # (service, cluster) that can serve
    rtt_ms: Mapping[tuple[str, str], float]  # a pair that is absent cannot be routed; (c, c) is local
    egress_usd_per_gb: Mapping[tuple[str, str], float]
    usd_per_ms: float  # worth of one millisecond of one request
    # Static spill thresholds that operators declare (service, cluster); only baselines read them.
    threshold_rps: Mapping[tuple[str, str], float] = field(default_factory=dict)
    constraints: Constraints = Constraints()
    # What failures of a class in a cluster cost per call, (class, cluster); 0 where it is absent.
    failure_ms: Mapping[tuple[str, str], float] = field(default_factory=dict)
    # How far chance may have moved rtt_ms, one standard error; 0 where it is absent. The objective does not have it.
    rtt_noise_ms: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def __post_init__(self):
        if problems := _problems(self):
            raise ProblemError("; ".join(problems))
        stranded = self.layout.stranded()
        if stranded:
            raise ProblemError("; ".join(stranded))

    @cached_property
    def class_order(self) -> tuple[str, ...]:
        """Class ids, callers before the classes they call."""
        return tuple(_sorted_classes(self))

    @cached_property
    def layout(self) -> Layout:
        """The same values as arrays; see layout.py."""
        return Layout.of(self)


def _sorted_classes(problem: Problem) -> list[str]:
    callers: dict[str, list[str]] = {class_id: [] for class_id in sorted(problem.classes)}
    for edge in problem.edges:
        callers[edge.target].append(edge.source)
    try:
        return list(TopologicalSorter(callers).static_order())
    except CycleError as error:
        raise ProblemError(
            "edges: classes call each other in a cycle: " + " -> ".join(error.args[1])
        ) from error


def _problems(problem: Problem) -> list[str]:
    found: list[str] = []

    def number(key: str, value: float, above_zero: bool = False) -> None:
        if not (math.isfinite(value) and (value > 0 if above_zero else value >= 0)):
            found.append(f"{key}: {value} must be a number {'above' if above_zero else 'of at least'} 0")

    def known(key: str, value: str, allowed) -> None:
        if value not in allowed:
            found.append(f"{key}: unknown {value!r}; known: {', '.join(sorted(allowed)) or 'none'}")

    services = set(problem.classes.values())
    number("usd_per_ms", problem.usd_per_ms, above_zero=True)
    seen: set[tuple[str, str]] = set()
    for edge in problem.edges:
        key = f"edges[{edge.source} -> {edge.target}]"
        known(key, edge.source, problem.classes)
        known(key, edge.target, problem.classes)
        number(f"{key}.calls_per_request", edge.calls_per_request)
        number(f"{key}.request_bytes", edge.request_bytes)
        number(f"{key}.response_bytes", edge.response_bytes)
        if not 0.0 <= edge.wait_share <= 1.0:
            found.append(f"{key}.wait_share: {edge.wait_share} must be from 0 to 1")
        if (edge.source, edge.target) in seen:
            found.append(f"{key}: listed twice")
        seen.add((edge.source, edge.target))
    for (cluster, class_id), rps in problem.demand_rps.items():
        known("demand_rps", cluster, problem.clusters)
        known("demand_rps", class_id, problem.classes)
        number(f"demand_rps[{cluster}, {class_id}]", rps)
    for class_id in problem.classes:
        curve = problem.curves.get(class_id)
        if curve is None:
            found.append(f"curves: none for class {class_id!r}")
            continue
        number(f"curves[{class_id}].a_ms", curve.a_ms)
        if not (math.isfinite(curve.b_ms) and curve.a_ms + curve.b_ms >= 0):
            found.append(f"curves[{class_id}].b_ms: {curve.b_ms} must be a number of at least -a_ms")
        number(f"curves[{class_id}].norm_weight", curve.norm_weight, above_zero=True)
    for service, cluster in sorted(problem.placement):
        known("placement", cluster, problem.clusters)
        if service in services:
            if (service, cluster) not in problem.capacity_rps:
                found.append(f"capacity_rps: none for {service!r} in {cluster!r}")
            else:
                number(
                    f"capacity_rps[{service}, {cluster}]",
                    problem.capacity_rps[service, cluster],
                    above_zero=True,
                )
    for name in ("rtt_ms", "rtt_noise_ms", "egress_usd_per_gb", "threshold_rps", "failure_ms"):
        for pair, value in getattr(problem, name).items():
            number(f"{name}[{pair[0]}, {pair[1]}]", value)
    return found + side.problems(problem.constraints, problem.clusters)
