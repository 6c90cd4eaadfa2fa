"""Calls in flight as the callers' Envoys report them, in place of Little's law. Pure.

Little's law (rate times mean duration) knows only calls that have ended, so calls that hang are
missing from it. Envoys count calls by destination service and cluster, not by class. The number is
split over the classes of the same caller, service and destination in proportion to their values by
Little's law, or equally where all are 0.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace

from spillway.v1.heartbeat_pb2 import Heartbeat
from spillway_contracts import traffic_class

from spillway_optimizer.callers.averages import Outcomes, Route
from spillway_optimizer.callers.signals import Outcome

# By source cluster and service, then by destination service and cluster. A caller that is not here
# is unknown; a destination that is not here has no calls.
Reported = Mapping[tuple[str, str], Mapping[tuple[str, str], float]]
# Of the connected Envoys: by how much those that report may be fewer, or more, as while some move
# from one relay to another.
_MISSING = 0.1


def reported(heartbeats: Mapping[str, Heartbeat]) -> Reported:
    """Returns the calls in flight of the callers of which nearly all Envoys report.

    `heartbeats`: the placement of each cluster. The sums are scaled to all connected Envoys.
    """
    found: dict[tuple[str, str], Mapping[tuple[str, str], float]] = {}
    for cluster, heartbeat in heartbeats.items():
        connected = {s.service: s.connected_envoys for s in heartbeat.services}
        for source in heartbeat.calls_in_flight:
            envoys, all_ = source.reporting_envoys, connected.get(source.service, 0)
            if envoys > 0 and abs(envoys - all_) <= _MISSING * all_:
                found[cluster, source.service] = {
                    (to.service, to.cluster): to.calls * all_ / envoys for to in source.destinations
                }
    return found


def measured(outcomes: Outcomes, routes: Collection[Route], calls: Reported) -> Outcomes:
    """Returns the outcomes with what Envoys report.

    `routes` are those known from before, since streams forget a route of which no call ends. A
    destination at which every call hangs has no outcome. Here it gets one with a rate of 0.
    """
    found = {route: dict(destinations) for route, destinations in outcomes.items()}
    alike: dict[tuple[str, str, str], list[Route]] = defaultdict(list)  # by caller and callee
    for cluster, service, class_id in sorted({*outcomes, *routes}):
        callee = traffic_class.parse(class_id).service
        alike[cluster, service, callee].append((cluster, service, class_id))
    for (cluster, service, callee), same in alike.items():
        by_destination = calls.get((cluster, service))
        if by_destination is None:
            continue
        destinations = {name for route in same for name in outcomes.get(route, {})}
        destinations |= {name for to, name in by_destination if to == callee}
        for name in sorted(destinations):
            _split(found, same, name, by_destination.get((callee, name), 0.0))
    return found


def _split(found: dict[Route, dict[str, Outcome]], routes: list[Route], name: str, calls: float) -> None:
    """Replaces the calls in flight of these routes at destination `name`."""
    before = [found.get(route, {}).get(name) for route in routes]
    little = [0.0 if outcome is None else outcome.in_flight for outcome in before]
    total = sum(little)
    for route, outcome, part in zip(routes, before, little, strict=True):
        in_flight = calls * (part / total if total > 0 else 1 / len(routes))
        if outcome is not None:
            found[route][name] = replace(outcome, in_flight=in_flight, reported=True)
        elif in_flight > 0:
            found.setdefault(route, {})[name] = Outcome(0.0, 1.0, None, None, in_flight, reported=True)
