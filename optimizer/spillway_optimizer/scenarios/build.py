"""Common parts of the papers' scenarios: clusters, prices, and a short form for applications."""

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from spillway_optimizer.problem.problem import Curve, Edge, Problem

# SLATE footnote 1 and HotNets 4.2, round trips in ms. UT-SC is not given there. It is derived as
# the path over IOW.
GCP = ("OR", "UT", "IOW", "SC")
GCP_RTT_MS = {
    ("OR", "UT"): 30.0,
    ("UT", "IOW"): 20.0,
    ("IOW", "SC"): 35.0,
    ("OR", "SC"): 66.0,
    ("OR", "IOW"): 37.0,
    ("UT", "SC"): 55.0,
}
# SLATE footnote 2: AWS between us-west-1 and us-east-1.
USD_PER_GB = 0.02
# Derived: a price of a millisecond at which kilobytes of egress are negligible. These figures
# compare latency.
LATENCY_FIRST = 1e-6


@dataclass(frozen=True)
class Scenario:
    """One panel of a figure.

    The problems follow each other in time. Policies are compared at the last one.
    """

    name: str
    source: str
    summary: str
    problems: Callable[[], tuple[Problem, ...]]


@dataclass(frozen=True)
class Call:
    """`caller` calls `callee` while it serves `path`. Sizes are bytes per call."""

    caller: str
    callee: str
    path: str
    request_bytes: float = 1_000.0
    response_bytes: float = 10_000.0


def class_of(service: str, path: str) -> str:
    """Returns the class id of a service's GET path."""
    return f"{service} GET {path}"


def chain(*services: str, paths: Iterable[str] = ("/",)) -> list[Call]:
    """Returns calls in which each service calls the next once, for every path."""
    return [Call(a, b, path) for path in paths for a, b in itertools.pairwise(services)]


def assemble(
    clusters: tuple[str, ...],
    rtt_ms: Mapping[tuple[str, str], float],
    calls: Iterable[Call],
    demand_rps: Mapping[tuple[str, str, str], float],  # (cluster, entry service, path)
    curves: Mapping[tuple[str, str], Curve],  # (service, path)
    capacity_rps: Mapping[str, float],  # by service, the same in every cluster
    threshold_rps: Mapping[str, float],  # by service, the same in every cluster
    absent: Iterable[tuple[str, str]] = (),  # (service, cluster)
    usd_per_ms: float = LATENCY_FIRST,
) -> Problem:
    """Builds the problem. Raises ProblemError as Problem does.

    `rtt_ms` needs each pair of clusters once, because links are symmetric.
    """
    places = set(itertools.product(capacity_rps, clusters))
    both_ways = {(j, i): ms for (i, j), ms in rtt_ms.items()}
    return Problem(
        clusters=clusters,
        classes={class_of(service, path): service for service, path in curves},
        edges=tuple(
            Edge(
                class_of(c.caller, c.path), class_of(c.callee, c.path), 1.0, c.request_bytes, c.response_bytes
            )
            for c in calls
        ),
        demand_rps={(c, class_of(service, path)): rps for (c, service, path), rps in demand_rps.items()},
        curves={class_of(service, path): curve for (service, path), curve in curves.items()},
        capacity_rps={(s, c): capacity_rps[s] for s, c in places},
        placement=frozenset(places - set(absent)),
        rtt_ms={**dict(rtt_ms), **both_ways, **{(c, c): 0.0 for c in clusters}},
        egress_usd_per_gb={(i, j): USD_PER_GB for i in clusters for j in clusters if i != j},
        usd_per_ms=usd_per_ms,
        threshold_rps={(s, c): rps for s, rps in threshold_rps.items() for c in clusters},
    )
