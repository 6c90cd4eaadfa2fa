"""What can serve where: heartbeats, and what stands for them where no Envoy subscribes, or while a relay is silent. Pure.

A heartbeat lists Envoys that subscribe to a relay. In a mesh that only sends telemetry there are none, so an absent
service is gone only where something shows that its Envoys would be listed (ADR 32).
"""

from collections.abc import Collection, Iterator

from spillway.v1.topology_pb2 import Topology

from spillway_optimizer.found import Found
from spillway_optimizer.telemetry import Telemetry
from spillway_optimizer.unknown import CLOCK_AHEAD_S, Unknown

Placed = frozenset[tuple[str, str]]  # (service, cluster)
# Calls of the last minute show that a service is there.
SERVED_S = 60.0
# After its Envoys have left, boards may still show calls of its last pods for so long.
SETTLED_S = 30.0
_MOST_NAMED = 5


def placements(
    telemetry: Telemetry, topology: Topology, entries: set[tuple[str, str]], now: float, unknown: Unknown
) -> Found[Placed]:
    """A service is in a cluster if a fresh heartbeat lists it. If none does, and none has before, the calls of the last
    minute decide. Where no Envoy subscribes anywhere, the topology's declaration does too. For a cluster whose relays
    are silent the last heartbeat goes on, else the topology's declaration: a dead relay stops no Envoy. Telemetry without
    any placement (a model read from a file) means what is declared. `entries` (service, cluster) serve users now, whatever
    heartbeats say."""
    placed, notes = set(), []
    quiet = _nobody_subscribes(telemetry, topology)
    everywhere = {s.name for s in topology.services if s.placements}
    for cluster in (c.name for c in topology.clusters):
        services = telemetry.placement.get(cluster)
        declared = {s.name for s in topology.services for p in s.placements if p.cluster == cluster}
        if services is None and cluster in telemetry.placed_last:
            services = telemetry.placed_last[cluster]
            notes.append(f"placement: no heartbeat from {cluster!r}, its last one is assumed")
        if services is None:
            placed |= {(service, cluster) for service in declared}
            if telemetry.placement:
                notes.append(f"placement: no heartbeat from {cluster!r}, its declared services are assumed")
            continue
        calls, gone = _served(telemetry, cluster, services, now, unknown)
        # Spans alone put no service where the topology, which has it elsewhere, has none.
        calls = [service for service in calls if service in declared or service not in everywhere]
        idle = sorted(declared - services - {*calls} - gone) if quiet else []
        placed |= {(service, cluster) for service in (*services, *calls, *idle)}
        notes += _notes(cluster, calls, idle)
    for service, cluster in sorted(entries - placed):
        # Users are being served there: the board is evidence enough for the entry itself.
        notes.append(f"placement: {service!r} serves users in {cluster!r} without a heartbeat")
    return Found(frozenset(placed | entries), tuple(notes))


def _served(
    telemetry: Telemetry, cluster: str, listed: Collection[str], now: float, unknown: Unknown
) -> tuple[list[str], set[str]]:
    """Services without Envoys in the heartbeat that serve calls, and those whose Envoys have left. While a service is
    unknown, the last calls that it was seen to serve go on counting."""
    gone = {service for service, c in telemetry.left if c == cluster}
    calls = []
    for (service, c), at in sorted(telemetry.calls_at().items()):
        if c != cluster or service in listed or at > now + CLOCK_AHEAD_S:
            continue
        known = unknown.why(service, cluster) is None
        left = telemetry.left.get((service, cluster))
        if (left is None or at > left + SETTLED_S) and (now - at <= SERVED_S or not known):
            calls.append(service)
    return calls, gone


def _nobody_subscribes(telemetry: Telemetry, topology: Topology) -> bool:
    """Every cluster's heartbeat is fresh and lists no Envoy, and none has left: a mesh that only sends telemetry. As soon
    as one workload subscribes, a declaration no longer shows that a service is there."""
    fresh = [telemetry.placement.get(c.name) for c in topology.clusters]
    seen = any(telemetry.placed_last.values()) or bool(telemetry.left)
    return not seen and all(services is not None and not services for services in fresh)


def _notes(cluster: str, calls: list[str], idle: list[str]) -> Iterator[str]:
    for services, why in ((calls, "serve calls there"), (idle, "are declared there")):
        if services:
            more = len(services) - _MOST_NAMED
            shown = ", ".join(services[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
            yield f"placement: no Envoy subscribes in {cluster!r} for {shown}, which {why}"
