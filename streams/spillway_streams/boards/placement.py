"""Number of Envoys of each service that are connected to a cluster's relays. Pure.

These are the Envoys that are expected to send counters, once they have been connected for
SETTLED_S. Only the placement can show that an Envoy has left.
"""

from collections.abc import Mapping
from typing import NamedTuple

from google.protobuf import json_format
from spillway.v1.heartbeat_pb2 import Heartbeat

from spillway_streams.process.counters import Counters

SETTLED_S = 10.0


class _Count(NamedTuple):
    settled: int
    risen_at: float | None = None  # time since which more than `settled` are connected


class Placement:
    """The connected Envoys by the newest heartbeat of each cluster."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._counts: dict[str, dict[str, _Count]] = {}  # cluster -> service

    def take(self, texts: Mapping[str, bytes | None], now: float) -> None:
        """Takes the newest heartbeats. Clusters that are not among them are forgotten.

        `texts`: cluster -> JSON of Heartbeat, None where there is none; `now`: Unix seconds.
        """
        found, absent = {}, _Count(0)
        for cluster, text in texts.items():
            counts, before = self._parsed(cluster, text), self._counts.get(cluster)
            if counts is not None:
                found[cluster] = {
                    service: _Count(n) if before is None else _settled(before.get(service, absent), n, now)
                    for service, n in counts.items()
                }
        self._counts = found

    def _parsed(self, cluster: str, text: bytes | None) -> dict[str, int] | None:
        if text is None:
            return None
        try:
            heartbeat = json_format.Parse(text, Heartbeat(), ignore_unknown_fields=True)
        except (json_format.ParseError, UnicodeDecodeError):
            heartbeat = Heartbeat()
        if heartbeat.cluster != cluster:  # true also for JSON that is not a heartbeat
            self._counters.add("placement_unreadable")
            return None
        return {
            service.service: service.connected_envoys
            for service in heartbeat.services
            if service.connected_envoys
        }

    def connected(self, cluster: str, service: str) -> int | None:
        """Returns how many Envoys should send counters; None if no relay of the cluster reports."""
        counts = self._counts.get(cluster)
        return None if counts is None else counts.get(service, _Count(0)).settled

    def has(self, cluster: str, service: str) -> bool:
        """Whether a heartbeat names the service."""
        return service in self._counts.get(cluster, ())

    def has_heartbeat(self, cluster: str) -> bool:
        """Whether there is a heartbeat of the cluster."""
        return cluster in self._counts

    def services(self) -> list[tuple[str, str]]:
        """Returns each (cluster, service) that heartbeats name."""
        return [(cluster, service) for cluster, counts in self._counts.items() for service in counts]

    def names(self, cluster: str) -> bool:
        """Whether a heartbeat names any service of the cluster."""
        return bool(self._counts.get(cluster))


def _settled(known: _Count, count: int, now: float) -> _Count:
    if count <= known.settled:
        return _Count(count)
    if known.risen_at is None:
        return known._replace(risen_at=now)
    return _Count(count) if now - known.risen_at >= SETTLED_S else known
