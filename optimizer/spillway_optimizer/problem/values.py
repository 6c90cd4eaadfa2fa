"""What a problem consists of, as plain frozen values (SLATE 4.3, appendix E.1).

Units, everywhere in this package: time in milliseconds, rates in requests per second (rps), sizes in
bytes per call, prices in US dollars. A pair of clusters is always (from, to).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

from spillway_optimizer import ProblemError
from spillway_optimizer.problem.constraints import Constraints


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
class Values:
    """The fields of a Problem, not checked yet."""

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

    @cached_property
    def class_order(self) -> tuple[str, ...]:
        """Class ids, callers before the classes they call."""
        return tuple(_sorted_classes(self))


def _sorted_classes(values: Values) -> list[str]:
    callers: dict[str, list[str]] = {class_id: [] for class_id in sorted(values.classes)}
    for edge in values.edges:
        callers[edge.target].append(edge.source)
    try:
        return list(TopologicalSorter(callers).static_order())
    except CycleError as error:
        raise ProblemError(
            "edges: classes call each other in a cycle: " + " -> ".join(error.args[1])
        ) from error
