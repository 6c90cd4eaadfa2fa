"""What can serve where: heartbeats, and what stands for them while a relay is silent."""

from spillway.v1.topology_pb2 import Topology

from spillway_optimizer.found import MESH, Found, Refusal
from spillway_optimizer.telemetry import Telemetry

Placed = frozenset[tuple[str, str]]  # (service, cluster)


def placements(
    telemetry: Telemetry, topology: Topology, entries: set[tuple[str, str]], now: float, max_age_s: float
) -> Found[Placed]:
    """Heartbeats say what runs where. For a cluster whose relay is silent while its telemetry is fresh, the
    topology's declaration does: a dead relay stops no Envoy. Telemetry without any placement (a model
    read from a file) means what is declared. `entries` (service, cluster) serve users now, whatever
    heartbeats say."""
    placed, notes = set(), []
    told = telemetry.placement
    silent = bool(told) and set(told.values()) == {None}
    refusals = [Refusal(MESH, "placement: no heartbeat from any cluster")] if silent else []
    for cluster in (c.name for c in topology.clusters):
        services = told.get(cluster)
        if services is None:
            if told and not _alive(telemetry, cluster, now, max_age_s):
                notes.append(f"placement: neither heartbeat nor fresh load from {cluster!r}, left out")
                continue
            if told:
                notes.append(f"placement: no heartbeat from {cluster!r}, its declared services are assumed")
            services = _declared(topology, cluster)
        placed |= {(service, cluster) for service in services}
    for service, cluster in sorted(entries - placed):
        # Users are being served there: the board is evidence enough for the entry itself.
        notes.append(f"placement: {service!r} serves users in {cluster!r} without a heartbeat")
    return Found(frozenset(placed | entries), tuple(notes), tuple(refusals))


def _declared(topology: Topology, cluster: str) -> frozenset[str]:
    return frozenset(s.name for s in topology.services for p in s.placements if p.cluster == cluster)


def _alive(telemetry: Telemetry, cluster: str, now: float, max_age_s: float) -> bool:
    board = telemetry.load.get(cluster, {})
    return any(now - entry.at <= max_age_s and entry.rps > 0 for entry in board.values())
