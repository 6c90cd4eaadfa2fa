"""Which cluster a message speaks for. Pure.

Collectors write to a topic of their cluster, and the broker lets them write to no other. The job `admit` writes each
message on to the topic of all clusters, with the cluster that it takes from the topic's name in a header. Readers take
the cluster from that header; what payloads claim is overridden and counted.
"""

from collections.abc import Iterable, Mapping

from spillway_contracts import names

from spillway_streams import StreamsError
from spillway_streams.process.counters import Counters


class UnadmittedError(StreamsError):
    """A message that `admit` has not written."""


def headers(cluster: str, offset: int) -> tuple[tuple[str, bytes], ...]:
    """Of a message that was at this offset of its partition of the cluster's topic."""
    return (
        (names.KAFKA_HEADER_CLUSTER, cluster.encode()),
        (names.KAFKA_HEADER_ADMITTED, b"%d" % offset),
    )


def origin(found: Iterable | Mapping | None) -> tuple[str, int] | None:
    """Cluster and offset that a message's headers tell; None when `admit` has not written it."""
    told = dict(found or {})
    try:
        cluster = bytes(told[names.KAFKA_HEADER_CLUSTER]).decode()
        return (cluster, int(told[names.KAFKA_HEADER_ADMITTED])) if cluster else None
    except (KeyError, ValueError, TypeError):
        return None


class Gate:
    """What readers of the topics of all clusters ask."""

    def __init__(self, accept_unadmitted: bool, counters: Counters) -> None:
        self._accept, self._counters = accept_unadmitted, counters

    def cluster(self, found: Iterable | Mapping | None) -> str | None:
        """The cluster of a message with these headers. None: what its payload names, because collectors of the
        previous version still write here (`accept_unadmitted`). UnadmittedError: nobody may have written it."""
        if told := origin(found):
            return told[0]
        if not self._accept:
            raise UnadmittedError(
                f"no header {names.KAFKA_HEADER_CLUSTER} of the job admit, and SPILLWAY_ACCEPT_UNADMITTED is off"
            )
        self._counters.add("unadmitted_messages")
        return None

    def overridden(self, cluster: str | None, claims: int) -> None:
        """So many spans or readings of the cluster claimed to be of another."""
        if cluster:
            self._counters.add(f"claims_overridden: {cluster}", claims)
