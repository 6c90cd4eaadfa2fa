"""Names of clusters, and the Kafka topics that belong to one cluster. Pure."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from spillway_contracts import names

from spillway_streams import StreamsError

# Name template of a cluster's topic -> topic of all clusters.
MERGED = {
    names.KAFKA_CLUSTER_TOPIC_OTLP_SPANS: names.KAFKA_TOPIC_OTLP_SPANS,
    names.KAFKA_CLUSTER_TOPIC_OTLP_METRICS: names.KAFKA_TOPIC_OTLP_METRICS,
}
_CLUSTER = re.compile(
    r"[A-Za-z][A-Za-z0-9_-]{0,199}"
)  # the names that collectors accept; a topic name has at most 249 characters


class ClustersError(StreamsError):
    """A list of clusters that topics cannot be named after."""


class Source(NamedTuple):
    """A cluster's topic.

    `cluster`: the cluster that it belongs to. `merged`: the topic of all clusters that its messages
    are copied to.
    """

    cluster: str
    merged: str


def clusters(text: str) -> list[str]:
    """Returns the names in a comma-separated list. Raises ClustersError naming what is wrong."""
    found = [name.strip() for name in text.split(",") if name.strip()]
    wrong = [name for name in found if not _CLUSTER.fullmatch(name)]
    if wrong:
        raise ClustersError(f"{', '.join(wrong)}: must be a letter, then letters, digits, '-' and '_'")
    if len(set(found)) < len(found):
        raise ClustersError(f"{text}: a cluster is named twice")
    return found


def sources(of: Iterable[str]) -> dict[str, Source]:
    """Maps the names of these clusters' topics to their sources."""
    of = list(of)
    return {
        template.format(cluster=cluster): Source(cluster, merged)
        for template, merged in MERGED.items()
        for cluster in of
    }
