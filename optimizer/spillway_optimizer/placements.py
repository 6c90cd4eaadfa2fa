"""What can serve where: heartbeats, and what stands for them while a relay is silent."""

from spillway.v1.topology_pb2 import Topology

from spillway_optimizer.found import Found
from spillway_optimizer.telemetry import Telemetry

Placed = frozenset[tuple[str, str]]  # (service, cluster)


def placements(telemetry: Telemetry, topology: Topology, entries: set[tuple[str, str]]) -> Found[Placed]:
    """Only a heartbeat says that a service is gone. For a cluster whose relays are silent the last heartbeat goes on,
    else the topology's declaration: a dead relay stops no Envoy. Telemetry without any placement (a model read from a
    file) means what is declared. `entries` (service, cluster) serve users now, whatever heartbeats say."""
    placed, notes = set(), []
    for cluster in (c.name for c in topology.clusters):
        services = telemetry.placement.get(cluster)
        if services is None and cluster in telemetry.placed_last:
            services = telemetry.placed_last[cluster]
            notes.append(f"placement: no heartbeat from {cluster!r}, its last one is assumed")
        elif services is None:
            services = frozenset(
                s.name for s in topology.services for p in s.placements if p.cluster == cluster
            )
            if telemetry.placement:
                notes.append(f"placement: no heartbeat from {cluster!r}, its declared services are assumed")
        placed |= {(service, cluster) for service in services}
    for service, cluster in sorted(entries - placed):
        # Users are being served there: the board is evidence enough for the entry itself.
        notes.append(f"placement: {service!r} serves users in {cluster!r} without a heartbeat")
    return Found(frozenset(placed | entries), tuple(notes))
