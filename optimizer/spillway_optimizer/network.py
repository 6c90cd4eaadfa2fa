"""Round trips between clusters: measured where fresh, else as the topology declares. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from spillway.v1.topology_pb2 import Topology

from spillway_optimizer.telemetry import Telemetry
from spillway_optimizer.unknown import CLOCK_AHEAD_S

_LEAST_SAMPLES = 5
Pairs = Mapping[tuple[str, str], float]


@dataclass(frozen=True)
class Network:
    rtt_ms: Pairs  # a pair that is not declared cannot be routed
    egress_usd_per_gb: Pairs


def network(telemetry: Telemetry, topology: Topology, now: float, max_age_s: float) -> Network:
    rtt, price = {}, {}
    for cluster in (c.name for c in topology.clusters):
        rtt[cluster, cluster] = _measured(telemetry, (cluster, cluster), now, max_age_s) or 0.0
    for link in topology.links:
        pair = (link.source_cluster, link.destination_cluster)
        measured = _measured(telemetry, pair, now, max_age_s)
        rtt[pair] = link.rtt_ms if measured is None else measured
        price[pair] = link.egress_usd_per_gb
    return Network(rtt, price)


def _measured(telemetry: Telemetry, pair: tuple[str, str], now: float, max_age_s: float) -> float | None:
    entry = telemetry.network.get(pair)
    if entry is None or not -CLOCK_AHEAD_S <= now - entry.at <= max_age_s:
        return None
    return max(entry.mean_ms, 0.0) if entry.samples >= _LEAST_SAMPLES else None
