"""Which services can serve in which clusters: from heartbeats, or from other evidence. Pure.

Other evidence counts where no Envoy subscribes, and while a relay is silent. A heartbeat lists the
Envoys that subscribe to a relay, and a mesh that only sends telemetry has none. An absent service
is therefore gone only where something shows that its Envoys would be listed (ADR 32).
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping

from spillway.v1.topology_pb2 import Topology

from spillway_optimizer.inputs.refusals import Found
from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.inputs.unknown import CLOCK_AHEAD_S, Unknown

Placed = frozenset[tuple[str, str]]  # (service, cluster)
# Calls within this many seconds show that a service is there.
SERVED_S = 60.0
# For this many seconds after its Envoys have left, boards may still show calls of a service's last
# pods.
SETTLED_S = 30.0
_MOST_NAMED = 5


def placements(
    telemetry: Telemetry, topology: Topology, entries: set[tuple[str, str]], now: float, unknown: Unknown
) -> Found[Placed]:
    """Returns the (service, cluster) pairs that can serve, with notes.

    - A service is in a cluster if a fresh heartbeat lists it.
    - If no heartbeat lists it or did, calls of the last minute show that it is there.
    - If no Envoy subscribes in any cluster, the topology's declaration shows the same.
    - While all relays of a cluster are silent, its last heartbeat stays valid, or else the
      declaration. A dead relay stops no Envoy.
    - Telemetry without any placement (a model read from a file) means what is declared.

    `entries` (service, cluster) serve users now. They are always placed, whatever heartbeats list.
    """
    placed, notes = set(), []
    quiet, served = _nobody_subscribes(telemetry, topology), telemetry.calls_at()
    declarations: dict[str, set[str]] = defaultdict(set)
    for service in topology.services:
        for placement in service.placements:
            declarations[placement.cluster].add(service.name)
    everywhere = set().union(*declarations.values())
    for cluster in (c.name for c in topology.clusters):
        services, declared = telemetry.placement.get(cluster), declarations[cluster]
        if services is None and cluster in telemetry.placed_last:
            services = telemetry.placed_last[cluster]
            notes.append(f"placement: no heartbeat from {cluster!r}, its last one is assumed")
        if services is None:
            placed |= {(service, cluster) for service in declared}
            if telemetry.placement:
                notes.append(f"placement: no heartbeat from {cluster!r}, its declared services are assumed")
            continue
        # Calls alone do not place a service where the topology does not, if it declares the service
        # in other clusters.
        believable = {
            service: at
            for service, at in served.get(cluster, {}).items()
            if service not in services and (service in declared or service not in everywhere)
        }
        calls = _serving(telemetry, cluster, believable, now, unknown)
        idle = sorted(declared - {*calls}) if quiet else []
        placed |= {(service, cluster) for service in (*services, *calls, *idle)}
        notes += _notes(cluster, calls, idle)
    for service, cluster in sorted(entries - placed):
        # Users are served there. The demand board is evidence enough for the entry itself.
        notes.append(f"placement: {service!r} serves users in {cluster!r} without a heartbeat")
    return Found(frozenset(placed | entries), tuple(notes))


def _serving(
    telemetry: Telemetry, cluster: str, served: Mapping[str, float], now: float, unknown: Unknown
) -> list[str]:
    """Returns those services of `served` whose calls show that they are in the cluster.

    `served` has the newest calls of each service, in Unix seconds. While a service is unknown, its
    last calls count at any age.
    """
    found = []
    for service, at in sorted(served.items()):
        left = telemetry.left.get((service, cluster), -math.inf)
        fresh = now - at <= SERVED_S or unknown.why(service, cluster) is not None
        if fresh and left + SETTLED_S < at <= now + CLOCK_AHEAD_S:
            found.append(service)
    return found


def _nobody_subscribes(telemetry: Telemetry, topology: Topology) -> bool:
    """Returns whether every cluster's heartbeat is fresh and lists no Envoy, and none has left.

    Such a mesh only sends telemetry. As soon as one workload subscribes, a declaration no longer
    shows that a service is there.
    """
    clusters = {c.name for c in topology.clusters}
    has_left = any(cluster in clusters for _, cluster in telemetry.left)
    return not has_left and all(telemetry.placement.get(cluster) == frozenset() for cluster in clusters)


def _notes(cluster: str, calls: list[str], idle: list[str]) -> Iterator[str]:
    for services, why in ((calls, "serve calls there"), (idle, "are declared there")):
        if services:
            more = len(services) - _MOST_NAMED
            shown = ", ".join(services[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
            yield f"placement: no Envoy subscribes in {cluster!r} for {shown}, which {why}"
