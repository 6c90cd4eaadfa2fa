"""The values that a problem consists of, as frozen dataclasses (SLATE 4.3, appendix E.1).

Units in the whole package: time in milliseconds, rates in requests per second (rps), sizes in bytes
per call, prices in US dollars. A pair of clusters is always (from, to).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

from spillway_optimizer import ProblemError
from spillway_optimizer.callers.averages import Route, RouteSignals
from spillway_optimizer.problem.constraints import Constraints

# P of the L3 paper: what a call costs at a success rate of one half.
FAILURE_COST_MS = 600.0


@dataclass(frozen=True)
class Curve:
    """Latency of one class: L(u) = a_ms / (1 - u) + b_ms.

    u is the service's normalised load divided by its capacity. b_ms may be below 0 (several workers
    hide part of the queue at low load), but not below -a_ms.
    """

    a_ms: float
    b_ms: float
    norm_weight: float = 1.0  # cost of one request in units of the service's baseline class
    # Standard deviation of one call's time: sd_a_ms / (1 - u) + sd_b_ms, at least 0 at u = 0. None:
    # unknown, for both or neither.
    sd_a_ms: float | None = None
    sd_b_ms: float | None = None


@dataclass(frozen=True)
class TailTarget:
    """The p99 that users' requests of an entry class shall not exceed.

    Each ms above it counts like `value` ms of the mean of each of these requests.
    """

    p99_ms: float
    value: float


@dataclass(frozen=True)
class TailPrice:
    """What one ms of a class counts in addition to its value, so that tail targets are met.

    `mean`: a ms that every call takes, and a ms of network that its calls take. `spread`: a ms of
    the standard deviation of a call. Only solvers set it.
    """

    mean: float
    spread: float


@dataclass(frozen=True)
class Edge:
    """The calls that one request of class `source` makes to class `target`."""

    source: str
    target: str
    calls_per_request: float
    request_bytes: float
    response_bytes: float
    # Share of these calls whose end the caller's request waits for. 1: the children are called one
    # after the other. For children called in parallel it is the probability of each to end last,
    # which is the derivative of the expected maximum of their times.
    wait_share: float = 1.0


@dataclass(frozen=True)
class Values:
    """The fields of a Problem, before they are checked."""

    clusters: tuple[str, ...]
    classes: Mapping[str, str]  # class id -> service
    edges: tuple[Edge, ...]
    demand_rps: Mapping[tuple[str, str], float]  # (cluster, entry class)
    curves: Mapping[str, Curve]  # by class id
    capacity_rps: Mapping[tuple[str, str], float]  # (service, cluster), in requests of the baseline class
    placement: frozenset[tuple[str, str]]  # (service, cluster) that can serve
    rtt_ms: Mapping[tuple[str, str], float]  # a pair that is absent cannot be routed; (c, c) is local
    egress_usd_per_gb: Mapping[tuple[str, str], float]
    usd_per_ms: float  # US dollars that one millisecond of one request is worth
    # Static spill thresholds that operators declare, by (service, cluster). Only baselines read
    # them.
    threshold_rps: Mapping[tuple[str, str], float] = field(default_factory=dict)
    constraints: Constraints = Constraints()
    # Cost of failures per call, by (class, cluster); 0 where it is absent.
    failure_ms: Mapping[tuple[str, str], float] = field(default_factory=dict)
    # Standard error of rtt_ms that is due to chance; 0 where it is absent. The objective does not
    # use it.
    rtt_noise_ms: Mapping[tuple[str, str], float] = field(default_factory=dict)
    # What the queueing that no data has shown counts in addition, as a factor; 0: nothing. It is
    # what exceeds the tangent to the curve at the highest utilisation that its service was seen at.
    extrapolation_caution: float = 0.0
    seen_utilisation: Mapping[str, float] = field(default_factory=dict)  # by service; absent: unknown
    # Factor on usd_per_ms for users' requests of an entry class; 1 where it is absent.
    latency_values: Mapping[str, float] = field(default_factory=dict)
    tail_targets: Mapping[str, TailTarget] = field(default_factory=dict)  # by entry class
    tail_prices: Mapping[str, TailPrice] = field(default_factory=dict)  # by class
    # What callers see of their destinations; a route that is absent was never measured. Only
    # policies without a model read it.
    callers: Mapping[Route, RouteSignals] = field(default_factory=dict)
    # P of the L3 paper, for policies that follow `callers`; `failure_ms` has it already
    failure_cost_ms: float = FAILURE_COST_MS
    # Classes whose time is not known at any load; their curves and capacities stand for nothing.
    unmodelled: frozenset[str] = frozenset()

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
