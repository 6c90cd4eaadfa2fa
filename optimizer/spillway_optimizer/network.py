"""Round trips between clusters: measured where fresh, else remembered, else as the topology declares. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from spillway.v1.topology_pb2 import Topology

from spillway_optimizer import network_times
from spillway_optimizer.network_times import LEAST_SAMPLES, Estimate, Remembered
from spillway_optimizer.telemetry import Telemetry
from spillway_optimizer.unknown import CLOCK_AHEAD_S

Pairs = Mapping[tuple[str, str], float]


@dataclass(frozen=True)
class Network:
    rtt_ms: Pairs  # a pair that is not declared cannot be routed
    egress_usd_per_gb: Pairs
    notes: tuple[str, ...] = ()


def network(telemetry: Telemetry, topology: Topology, now: float, max_age_s: float) -> Network:
    fresh, memory = _fresh(telemetry, now, max_age_s), _memory(telemetry, now)
    locals_ = [(cluster.name, cluster.name) for cluster in topology.clusters]
    seen = [
        fresh[pair].ms if pair in fresh else memory[pair].mean_ms
        for pair in locals_
        if pair in fresh or pair in memory
    ]
    # Nobody declares what a call within a cluster takes: it is as in the other clusters. A call to another cluster takes as
    # much besides its round trip: without that, a link that nobody uses would look shorter than it is measured to be.
    within = sum(seen) / len(seen) if seen else 0.0
    declared = dict.fromkeys(locals_, within)
    declared |= {
        (link.source_cluster, link.destination_cluster): link.rtt_ms + within for link in topology.links
    }
    found = {
        pair: fresh.get(pair) or network_times.blended(ms, memory.get(pair), now)
        for pair, ms in declared.items()
    }
    price = {
        (link.source_cluster, link.destination_cluster): link.egress_usd_per_gb for link in topology.links
    }
    return Network({pair: estimate.ms for pair, estimate in found.items()}, price, network_times.note(found))


def _fresh(telemetry: Telemetry, now: float, max_age_s: float) -> dict[tuple[str, str], Estimate]:
    return {
        pair: network_times.measured(max(entry.mean_ms, 0.0), entry.samples)
        for pair, entry in telemetry.network.items()
        if -CLOCK_AHEAD_S <= now - entry.at <= max_age_s and entry.samples >= LEAST_SAMPLES
    }


def _memory(telemetry: Telemetry, now: float) -> dict[tuple[str, str], Remembered]:
    """From history; a board that is not fresh any more may be newer."""
    found = {
        pair: one
        for pair, one in network_times.remembered(telemetry.network_rows).items()
        if one.at <= now + CLOCK_AHEAD_S
    }
    for pair, entry in telemetry.network.items():
        is_newer = pair not in found or entry.at > found[pair].at
        if (
            entry.samples >= LEAST_SAMPLES
            and entry.mean_ms >= 0
            and is_newer
            and entry.at <= now + CLOCK_AHEAD_S
        ):
            found[pair] = Remembered(entry.at, entry.mean_ms)
    return found
