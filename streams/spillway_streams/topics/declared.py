"""Topics as infra/kafka/topics.yaml declares them, and what the jobs require of topics.

This file deals in values only; topics.py talks to Kafka.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from spillway_contracts import names

from spillway_streams import StreamsError
from spillway_streams.process.cluster_topics import MERGED

# Topics of all clusters. The keys of cluster_topics.MERGED are templates for topics of one cluster.
KNOWN = {value for key, value in vars(names).items() if key.startswith("KAFKA_TOPIC_")}
# In all of these, a service's messages are in the partition given by the hash of its name. One
# worker therefore has everything about a service.
CO_PARTITIONED = (
    names.KAFKA_TOPIC_OTLP_METRICS,
    names.KAFKA_TOPIC_CALLS,
    names.KAFKA_TOPIC_EDGES,
    names.KAFKA_TOPIC_ARRIVALS,
    names.KAFKA_TOPIC_NETWORK,
)
MAX_BYTES, IN_SYNC = "max.message.bytes", "min.insync.replicas"
# The broker must stamp the messages. Only then is a message never older than the previous one of
# its partition.
_TIMESTAMP, _APPEND = "message.timestamp.type", "LogAppendTime"
# A full slice of calls is 1.5 MB after compression, which is above Kafka's default limit.
_ROOM = 4 << 20
_WIDE = (names.KAFKA_TOPIC_CALLS, names.KAFKA_TOPIC_EDGES, names.KAFKA_TOPIC_NETWORK)
# Settings of every topic that is created here; the file may override them.
_NEEDED = {_TIMESTAMP: _APPEND, MAX_BYTES: str(_ROOM)}
_OPTIONS = ("partitions", "replicas", "config")
_MOST = {"partitions": 100_000, "replicas": 10}


class TopicsError(StreamsError):
    """Topics that are not as the jobs need them, or that the brokers cannot have as declared."""


@dataclass(frozen=True)
class Topic:
    """A topic as declared.

    `partitions` and `replicas` apply when the topic does not exist yet. `config`: Kafka's settings
    by name; the value "" leaves a setting to the broker.
    """

    partitions: int
    replicas: int = 1
    config: Mapping[str, str] = field(default_factory=dict)

    def settings(self, replicas: int | None = None) -> dict[str, str]:
        """Returns every setting that a topic with this number of replicas must have.

        None stands for the declared number of replicas.
        """
        in_sync = str(((replicas or self.replicas) + 1) // 2)
        return {key: value for key, value in {**_NEEDED, IN_SYNC: in_sync, **self.config}.items() if value}

    def changes(self, found: Mapping[str, Any], replicas: int, in_sync: int) -> dict[str, str]:
        """Returns the declared settings that an existing topic does not have.

        `found`: the topic's settings. `replicas`: how many it has. `in_sync`: how many are in sync.
        min.insync.replicas is not raised above the replicas that are in sync: nobody could write
        until the others have caught up. Raises TopicsError when nobody could ever write.
        """
        wanted = self.settings(replicas)
        least = int(wanted.get(IN_SYNC, "1"))
        if least > in_sync and least > int(found.get(IN_SYNC) or 1):
            del wanted[IN_SYNC]
        if least > replicas:
            raise TopicsError(
                f"{IN_SYNC} is {least}; must be at most {replicas}, the replicas that the topic has: "
                "nothing could be written; kafka-reassign-partitions.sh adds replicas"
            )
        return {key: value for key, value in wanted.items() if found.get(key) != value}


def read(
    path: Path, clusters: Iterable[str], default_partitions: int, default_replicas: int = 1
) -> dict[str, Topic]:
    """Returns the topics that a file declares, by name.

    The file has the form `topic: {partitions: n, replicas: n, config: {..}}`. A topic with
    {cluster} in its name is returned once per cluster. Raises StreamsError naming what is wrong.
    """
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise StreamsError(f"{path}: cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise StreamsError(f"{path}: must map topic names to {{{', '.join(_OPTIONS)}}}")
    defaults = {"partitions": default_partitions, "replicas": default_replicas}
    found: dict[str, Topic] = {}
    try:
        for topic, options in document.items():
            if topic not in KNOWN | MERGED.keys():
                known = ", ".join(sorted(KNOWN | MERGED.keys()))
                raise TopicsError(f"{topic}: unknown topic; topics: {known}")
            declared = _topic(topic, {} if options is None else options, defaults)
            found |= dict.fromkeys(of_clusters(topic, clusters), declared)
        check_partitions({topic: declared.partitions for topic, declared in found.items()})
    except TopicsError as error:
        raise StreamsError(f"{path}: {error}") from None
    return found


def _topic(topic: str, options: object, defaults: dict[str, int]) -> Topic:
    if not isinstance(options, dict) or (options.keys() - set(_OPTIONS)):
        given = ", ".join(map(str, options)) if isinstance(options, dict) else repr(options)
        raise TopicsError(f"{topic}: {given}: must have no keys but {', '.join(_OPTIONS)}")
    numbers = {
        key: _whole(f"{topic}.{key}", options.get(key, default), _MOST[key])
        for key, default in defaults.items()
    }
    config = options.get("config") or {}
    if not isinstance(config, dict):
        raise TopicsError(f"{topic}.config: {config!r} must map Kafka's settings to values")
    texts = {str(key): _text(f"{topic}.config.{key}", value) for key, value in config.items()}
    declared = Topic(**numbers, config=texts)
    if in_sync := declared.config.get(IN_SYNC):
        _whole(f"{topic}.config.{IN_SYNC}", int(in_sync) if in_sync.isdigit() else in_sync, declared.replicas)
    for _, key, value, allowed, _ in unfit({topic: declared.settings()}):
        raise TopicsError(f"{topic}.config.{key}: {value} must be {allowed}")
    return declared


def _whole(where: str, value: object, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise TopicsError(f"{where}: {value!r} must be a whole number from 1 to {most}")
    return value


def _text(where: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, int | str):
        raise TopicsError(f"{where}: {value!r} must be text, a whole number, true or false")
    return str(value)


def of_clusters(topic: str, clusters: Iterable[str]) -> list[str]:
    """Returns the topic itself; for a template, the topic of each cluster."""
    return [topic.format(cluster=cluster) for cluster in clusters] if topic in MERGED else [topic]


def merged(topic: str) -> str:
    """Returns the topic of all clusters that a cluster's topic belongs to.

    Any other topic is returned unchanged.
    """
    return next((m for template, m in MERGED.items() if topic.startswith(template.format(cluster=""))), topic)


def check_partitions(partitions: Mapping[str, int]) -> None:
    """Raises TopicsError when topics that need the same number of partitions differ in it.

    This concerns the co-partitioned topics, and each topic of all clusters with the topics of
    single clusters.
    """
    for topic, n in partitions.items():
        of_all = merged(topic)
        if of_all != topic and n != partitions.get(of_all, n):
            raise TopicsError(
                f"partitions differ: {topic} {n}, {of_all} {partitions[of_all]}; they must be equal, messages keep theirs"
            )
    found = {topic: partitions[topic] for topic in CO_PARTITIONED if topic in partitions}
    if len(set(found.values())) > 1:
        counts = ", ".join(f"{topic} {n}" for topic, n in found.items())
        raise TopicsError(f"partitions differ: {counts}; they must be equal, services are spread by hash")


def missing(wanted: Mapping[str, Topic], existing: Mapping[str, int]) -> dict[str, int]:
    """Returns the topics that do not exist, with the number of partitions that they get.

    That is the number of the existing topics that they must equal, otherwise the declared number.
    """
    shared = next((existing[topic] for topic in CO_PARTITIONED if topic in existing), None)
    known = {**(dict.fromkeys(CO_PARTITIONED, shared) if shared else {}), **existing}
    return {
        topic: known.get(merged(topic), declared.partitions)
        for topic, declared in wanted.items()
        if topic not in existing
    }


def unfit(configs: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str, object, str, object]]:
    """Yields every setting with which a job could not work.

    Each is (topic, setting, its value, what is allowed, an allowed value).
    """
    spans = names.KAFKA_TOPIC_OTLP_SPANS
    found = configs.get(spans, {}).get(_TIMESTAMP, _APPEND)
    if found != _APPEND:
        yield spans, _TIMESTAMP, found, _APPEND, _APPEND
    for topic in _WIDE:
        text = str(configs.get(topic, {}).get(MAX_BYTES, _ROOM))
        if not text.isdigit() or int(text) < _ROOM:
            yield topic, MAX_BYTES, text, f"at least {_ROOM}", _ROOM
