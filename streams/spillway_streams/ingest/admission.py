"""Which cluster a message belongs to. Pure.

Collectors write to a topic of their cluster, and the broker lets them write to no other. The job
`admit` copies each message to the topic of all clusters, and puts the cluster of the topic's name
into a header. Readers take the cluster from that header. Other clusters that payloads claim are
overridden and counted.
"""

from collections.abc import Iterable, Mapping

from spillway_contracts import names

from spillway_streams import StreamsError
from spillway_streams.process.counters import Counters


class UnadmittedError(StreamsError):
    """A message that `admit` did not write."""


def headers(cluster: str, offset: int) -> tuple[tuple[str, bytes], ...]:
    """Returns the headers that `admit` adds to a message.

    `offset`: the message's offset in its partition of the cluster's topic.
    """
    return (
        (names.KAFKA_HEADER_CLUSTER, cluster.encode()),
        (names.KAFKA_HEADER_ADMITTED, b"%d" % offset),
    )


def origin(found: Iterable | Mapping | None) -> tuple[str, int] | None:
    """Returns the cluster and the offset that a message's headers name.

    Returns None when `admit` did not write the message.
    """
    values = dict(found or {})
    try:
        cluster = bytes(values[names.KAFKA_HEADER_CLUSTER]).decode()
        return (cluster, int(values[names.KAFKA_HEADER_ADMITTED])) if cluster else None
    except (KeyError, ValueError, TypeError):
        return None


class Gate:
    """Decides for readers of the topics of all clusters which cluster a message belongs to."""

    def __init__(self, accept_unadmitted: bool, counters: Counters) -> None:
        self._accept, self._counters = accept_unadmitted, counters

    def cluster(self, found: Iterable | Mapping | None) -> str | None:
        """Returns the cluster of a message with these headers.

        Returns None for an unadmitted message that is accepted (`accept_unadmitted`), because
        collectors of the previous version still write to this topic: the cluster is then the one
        that the payload names. Raises UnadmittedError when unadmitted messages are not accepted.
        """
        if admitted := origin(found):
            return admitted[0]
        if not self._accept:
            raise UnadmittedError(
                f"no header {names.KAFKA_HEADER_CLUSTER} of the job admit, and SPILLWAY_STREAMS_ACCEPT_UNADMITTED is off"
            )
        self._counters.add("unadmitted_messages")
        return None

    def overridden(self, cluster: str | None, claims: int) -> None:
        """Counts spans or readings of this cluster that claimed another one."""
        if cluster:
            self._counters.add(f"claims_overridden: {cluster}", claims)
