"""Round trips between clusters: measured now, remembered, or declared by the topology. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from spillway.v1.topology_pb2 import Topology

from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.inputs.unknown import CLOCK_AHEAD_S
from spillway_optimizer.model import network_times
from spillway_optimizer.model.network_times import Mean, Measured

_SAME_WINDOW_S = 10.0  # seconds; several workers may write rows of one window
Pairs = Mapping[tuple[str, str], float]


@dataclass(frozen=True)
class Network:
    """Round trips and prices between clusters, by (from, to)."""

    rtt_ms: Pairs  # a pair that is not declared cannot be routed
    egress_usd_per_gb: Pairs
    noise_ms: Pairs  # standard error of rtt_ms that is due to chance
    notes: tuple[str, ...] = ()


def network(telemetry: Telemetry, topology: Topology, now: float, max_age_s: float) -> Network:
    """Estimates the time within each cluster and over each link that the topology declares.

    Measurements older than `max_age_s` count as remembered.
    """
    fresh = _fresh(telemetry, now, max_age_s)
    memory = _memory(telemetry, fresh, now)
    spans = _spans_per_call(telemetry, fresh)
    fresh, memory = ({p: m.worth(spans) for p, m in some.items()} for some in (fresh, memory))
    locals_ = [(cluster.name, cluster.name) for cluster in topology.clusters]
    # No time is declared for a call within a cluster. The mean of all clusters stands for it. A
    # call to another cluster takes as much, in addition to its round trip. Without that, a link
    # that nobody uses would look shorter than it is once it is measured.
    within, noise_ms = _mean([network_times.measured(fresh.get(p), memory.get(p), 0.0, now) for p in locals_])
    declared = dict.fromkeys(locals_, within)
    declared |= {
        (link.source_cluster, link.destination_cluster): link.rtt_ms + within for link in topology.links
    }
    found = {
        pair: network_times.estimate(ms, fresh.get(pair), memory.get(pair), now, noise_ms)
        for pair, ms in declared.items()
    }
    price = {
        (link.source_cluster, link.destination_cluster): link.egress_usd_per_gb for link in topology.links
    }
    return Network(
        {pair: estimate.ms for pair, estimate in found.items()},
        price,
        {pair: estimate.noise_ms for pair, estimate in found.items()},
        network_times.note(found),
    )


def _mean(found: list[Mean]) -> tuple[float, float]:
    """Returns the mean weighted by precision and its standard error by chance; 0 without any."""
    precision = sum(mean.precision for mean in found)
    if precision <= 0:
        return 0.0, 0.0
    noise = sum(mean.precision**2 * mean.noise for mean in found)
    return sum(mean.ms * mean.precision for mean in found) / precision, math.sqrt(noise) / precision


def _fresh(telemetry: Telemetry, now: float, max_age_s: float) -> dict[tuple[str, str], Measured]:
    """Returns the measurements on the boards that are new enough."""
    return {
        pair: Measured(entry.at, entry.mean_ms, entry.samples)
        for pair, entry in telemetry.network.items()
        if -CLOCK_AHEAD_S <= now - entry.at <= max_age_s and entry.samples > 0 and entry.mean_ms >= 0
    }


def _spans_per_call(telemetry: Telemetry, fresh: Mapping[tuple[str, str], Measured]) -> float:
    """Returns spans per call: below 1 where traces are sampled, and 1 while either is unknown.

    Measurements count the calls that a span stands for. The newest window of the call graph counts
    spans. Both windows have the same length.
    """
    newest = max((row.window_end for row in telemetry.call_ratios), default=0.0)
    spans = sum(row.samples for row in telemetry.call_ratios if row.window_end > newest - _SAME_WINDOW_S)
    calls = sum(m.samples for m in fresh.values())
    return min(spans / calls, 1.0) if spans > 0 and calls > 0 else 1.0


def _memory(
    telemetry: Telemetry, fresh: Mapping[tuple[str, str], Measured], now: float
) -> dict[tuple[str, str], Measured]:
    """Returns the remembered measurements.

    They come from history, or from a board that is no longer fresh if it is newer.
    """
    found = {
        pair: measured
        for pair, measured in network_times.remembered(telemetry.network_rows, fresh).items()
        if measured.at <= now + CLOCK_AHEAD_S
    }
    for pair, entry in telemetry.network.items():
        is_newer = pair not in found or entry.at > found[pair].at
        is_usable = entry.samples > 0 and entry.mean_ms >= 0 and entry.at <= now + CLOCK_AHEAD_S
        if pair not in fresh and is_newer and is_usable:
            found[pair] = Measured(entry.at, entry.mean_ms, entry.samples)
    return found
