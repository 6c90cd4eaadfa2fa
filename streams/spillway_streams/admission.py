"""Which cluster a message speaks for. Pure.

Collectors write to a topic of their cluster, and the broker lets them write to no other. The job `admit` writes each
message on to the topic of all clusters, with the cluster that it takes from the topic's name in a header. Readers take
the cluster from that header; what payloads claim is overridden and counted.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from spillway_contracts import names

from spillway_streams import StreamsError
from spillway_streams.counters import Counters

# Template of a cluster's topic -> topic of all clusters.
MERGED = {
    names.KAFKA_CLUSTER_TOPIC_OTLP_SPANS: names.KAFKA_TOPIC_OTLP_SPANS,
    names.KAFKA_CLUSTER_TOPIC_OTLP_METRICS: names.KAFKA_TOPIC_OTLP_METRICS,
}
_CLUSTER = re.compile(
    r"[A-Za-z][A-Za-z0-9_-]{0,199}"
)  # as collectors take it; topics have at most 249 characters


class ClustersError(StreamsError):
    """A list of clusters that topics cannot be named after."""


class UnadmittedError(StreamsError):
    """A message that `admit` has not written."""


class Source(NamedTuple):
    """A cluster's topic: its cluster, and the topic of all clusters that its messages go to."""

    cluster: str
    merged: str


def clusters(text: str) -> list[str]:
    """Names separated by commas. ClustersError names what is wrong."""
    found = [name.strip() for name in text.split(",") if name.strip()]
    wrong = [name for name in found if not _CLUSTER.fullmatch(name)]
    if wrong:
        raise ClustersError(f"{', '.join(wrong)}: must be a letter, then letters, digits, '-' and '_'")
    if len(set(found)) < len(found):
        raise ClustersError(f"{text}: a cluster is named twice")
    return found


def sources(of: Iterable[str]) -> dict[str, Source]:
    """The topics of these clusters."""
    of = list(of)
    return {
        template.format(cluster=cluster): Source(cluster, merged)
        for template, merged in MERGED.items()
        for cluster in of
    }


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
