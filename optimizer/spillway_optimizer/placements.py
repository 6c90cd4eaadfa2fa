"""What can serve where: heartbeats, and what stands for them while a relay is silent."""

from dataclasses import dataclass

from spillway.v1.topology_pb2 import Topology

from spillway_optimizer.telemetry import Telemetry


@dataclass(frozen=True)
class Placements:
    placed: frozenset[tuple[str, str]]  # (service, cluster)
    notes: tuple[str, ...]
    refusals: tuple[str, ...]


def placements(
    telemetry: Telemetry, topology: Topology, entries: set[tuple[str, str]], now: float, max_age_s: float
) -> Placements:
    """Heartbeats say what runs where. For a cluster whose relay is silent while its telemetry is fresh, the
    topology's declaration does: a dead relay stops no Envoy. Telemetry without any placement (a model
    read from a file) means what is declared. `entries` (service, cluster) serve users now, whatever
    heartbeats say."""
    placed, notes = set(), []
    told = telemetry.placement
    refusals = ["placement: no heartbeat from any cluster"] if told and set(told.values()) == {None} else []
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
    return Placements(frozenset(placed | entries), tuple(notes), tuple(refusals))


def _declared(topology: Topology, cluster: str) -> frozenset[str]:
    return frozenset(s.name for s in topology.services for p in s.placements if p.cluster == cluster)


def _alive(telemetry: Telemetry, cluster: str, now: float, max_age_s: float) -> bool:
    board = telemetry.load.get(cluster, {})
    return any(now - entry.at <= max_age_s and entry.rps > 0 for entry in board.values())
