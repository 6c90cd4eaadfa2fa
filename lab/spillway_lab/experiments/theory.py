"""What queueing theory predicts for a chain of services, before anything is measured. Pure.

Each pod is an M/M/c queue (Erlang C). With Poisson arrivals from outside and random routing, a
chain of them has a product form (Jackson 1957), so that mean times add up. Proxies, the machine and
models that are learned with errors are left out, and queues are unbounded.
"""

import math
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from spillway_lab.scenario import queues
from spillway_lab.scenario.application import Endpoint, Service
from spillway_lab.scenario.scenario import Scenario

_STEPS = 100  # of a share, in the search for the best routing
_GB, _MILLION = 1e9, 1e6


class Hop(NamedTuple):
    """A service of a chain, and how often a request of the service before calls it, in turn."""

    service: str
    calls: int


Shares = tuple[float, ...]  # by call of the chain: what the first cluster sends to the second


@dataclass(frozen=True)
class Predicted:
    """Mean latency in ms of all users' requests, and egress in US dollars per hour.

    `shares` are those that the first cluster sends to the second at each call.
    """

    mean_ms: float
    egress_usd_per_hour: float
    shares: Shares


def sojourn_ms(workers: int, service_ms: float, rps: float) -> float:
    """Returns the mean time in an M/M/c queue and its service. Infinite when it is overloaded."""
    u = rps * service_ms / 1000 / workers
    return service_ms + queues.wait_ms(workers, service_ms, 1.0, u) if u < 1 else math.inf


def chain(scenario: Scenario) -> list[Hop] | None:
    """Returns the services of a chain, callers first. None if the scenario is not one that fits.

    Fitting are two clusters with one pod per service, one kind of request, one called endpoint
    after each service, and exponential service times without caches, errors and contention.
    """
    document = scenario.document
    alone = all(at.pods == 1 and len(row) == 2 for row in document.placement.values() for at in row.values())
    if (
        len(document.clusters) != 2
        or len(document.requests) != 1
        or not alone
        or document.load.measure.phases
    ):
        return None
    hops, name, repeated = list[Hop](), document.requests[0].service, 1
    while name not in {hop.service for hop in hops}:
        hops.append(Hop(name, repeated))
        service = scenario.application.services[name]
        if len(service.endpoints) != 1 or service.endpoints[0].service_time.distribution != "exponential":
            return None
        stages = service.endpoints[0].calls
        if not stages:
            return hops
        call, repeated = stages[0][0], len(stages)
        if any(stage != [call] for stage in stages):
            return None
        if call.probability is not None or call.count is not None:
            return None
        name = call.service
    return None


def at(scenario: Scenario, hops: list[Hop], shares: Shares) -> Predicted:
    """Returns what a routing of the chain comes to. Calls of the second cluster stay there."""
    first, second = scenario.clusters
    rates = scenario.document.load.measure.first_rps
    here, there = rates.get(first, 0.0), rates.get(second, 0.0)
    total, busy_ms, crossing_ms, usd = here + there, 0.0, 0.0, 0.0
    links = {(x.source_cluster, x.destination_cluster): x for x in scenario.links()}
    for i, (name, calls) in enumerate(hops):
        here, there = here * calls, there * calls
        if i:
            moved = here * shares[i - 1]
            here, there = here - moved, there + moved
            forth, back = links[first, second], links[second, first]
            crossing_ms += moved * forth.rtt_ms
            answer = _endpoint(scenario.application.services[name]).response_bytes
            usd += moved * (answer * back.egress_usd_per_gb) / _GB * 3600
        for cluster, rps in ((first, here), (second, there)):
            service = scenario.application_of(cluster).services[name]
            mean_ms = _endpoint(service).service_time.mean_ms
            busy_ms += rps * sojourn_ms(service.workers, mean_ms, rps) if rps > 0 else 0.0
    return Predicted((busy_ms + crossing_ms) / total, usd, shares)


def waterfall(scenario: Scenario, hops: list[Hop]) -> Predicted:
    """Returns the routing by static thresholds: each hop sends on what exceeds the threshold."""
    first, second = scenario.clusters
    here, shares = scenario.document.load.measure.first_rps.get(first, 0.0), list[float]()
    for name, calls in hops[1:]:
        kept = min(here * calls, scenario.threshold_rps(name, first))
        shares.append(1 - kept / (here * calls))
        here = kept
    return at(scenario, hops, tuple(shares))


def best(scenario: Scenario, hops: list[Hop]) -> Predicted:
    """Returns the routing with the least objective, of latency and egress, on a grid of shares.

    At most two calls send anything, since the search is exhaustive.
    """
    rates = scenario.document.load.measure.first_rps
    requests_per_hour = sum(rates.values()) * 3600
    worth = scenario.document.usd_per_ms_per_million_requests / _MILLION * requests_per_hour
    calls = len(hops) - 1
    steps = [x / _STEPS for x in range(_STEPS)]
    grid = [(0.0,) * (calls - 2) + tail for tail in product(steps, repeat=min(calls, 2))]
    found = [at(scenario, hops, shares) for shares in grid]
    return min(found, key=lambda x: worth * x.mean_ms + x.egress_usd_per_hour)


def predict(scenario: Scenario) -> dict[str, Predicted]:
    """Returns predictions for `waterfall` and, as `spillway`, for the best routing.

    Empty if the scenario is no such chain.
    """
    hops = chain(scenario)
    if hops is None or len(hops) < 2:
        return {}
    return {"waterfall": waterfall(scenario, hops), "spillway": best(scenario, hops)}


def _endpoint(service: Service) -> Endpoint:
    return service.endpoints[0]
