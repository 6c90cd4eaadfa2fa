"""Topics as infra/kafka/topics.yaml declares them, and what the jobs need of topics. Values only: topics.py asks Kafka."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from spillway_contracts import names

from spillway_streams import StreamsError
from spillway_streams.process.cluster_topics import MERGED

# Topics of all clusters. Those of one cluster are named by the templates of cluster_topics.MERGED.
KNOWN = {value for key, value in vars(names).items() if key.startswith("KAFKA_TOPIC_")}
# A service is in the partition of its hash in all of these, so that one worker has everything about it.
CO_PARTITIONED = (
    names.KAFKA_TOPIC_OTLP_METRICS,
    names.KAFKA_TOPIC_CALLS,
    names.KAFKA_TOPIC_EDGES,
    names.KAFKA_TOPIC_ARRIVALS,
    names.KAFKA_TOPIC_NETWORK,
)
MAX_BYTES, IN_SYNC = "max.message.bytes", "min.insync.replicas"
# The clock of a partition is that of the broker: only then is a message never older than one before it.
_TIMESTAMP, _APPEND = "message.timestamp.type", "LogAppendTime"
# A whole slice of calls is 1.5 MB after compression, above Kafka's own default.
_ROOM = 4 << 20
_WIDE = (names.KAFKA_TOPIC_CALLS, names.KAFKA_TOPIC_EDGES, names.KAFKA_TOPIC_NETWORK)
# Of every topic that is made here; a file may set others.
_NEEDED = {_TIMESTAMP: _APPEND, MAX_BYTES: str(_ROOM)}
_OPTIONS = ("partitions", "replicas", "config")
_MOST = {"partitions": 100_000, "replicas": 10}


class TopicsError(StreamsError):
    """Topics that exist otherwise than the jobs need them, or that the brokers cannot have as declared."""


@dataclass(frozen=True)
class Topic:
    """`partitions`, `replicas`: of a topic that does not exist yet. `config`: Kafka's settings by their names; "" leaves one
    to the broker."""

    partitions: int
    replicas: int = 1
    config: Mapping[str, str] = field(default_factory=dict)

    def settings(self, replicas: int | None = None) -> dict[str, str]:
        """Every setting that a topic with so many replicas must have; None: with as many as declared."""
        in_sync = str(((replicas or self.replicas) + 1) // 2)
        return {key: value for key, value in {**_NEEDED, IN_SYNC: in_sync, **self.config}.items() if value}

    def changes(self, found: Mapping[str, Any], replicas: int, in_sync: int) -> dict[str, str]:
        """Settings that an existing topic does not have as declared, with the declared values. The least number of replicas
        that must be in sync is not raised above those that are: nobody could write until others have caught up.
        TopicsError when nobody could write for ever."""
        wanted = self.settings(replicas)
        least = int(wanted.get(IN_SYNC, "1"))
        if least > in_sync and least > int(found.get(IN_SYNC) or 1):
            del wanted[IN_SYNC]
        if least > replicas:
            raise TopicsError(
                f"{IN_SYNC} is {least}, must be at most {replicas}, the replicas that the topic has: "
                "nothing could be written; kafka-reassign-partitions.sh adds replicas"
            )
        return {key: value for key, value in wanted.items() if found.get(key) != value}


def read(
    path: Path, clusters: Iterable[str], default_partitions: int, default_replicas: int = 1
) -> dict[str, Topic]:
    """Topics by name from a file `topic: {partitions: n, replicas: n, config: {..}}`, topics with {cluster} once per
    cluster; StreamsError names what is wrong."""
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
    """The topic; of a template the topic of each cluster."""
    return [topic.format(cluster=cluster) for cluster in clusters] if topic in MERGED else [topic]


def merged(topic: str) -> str:
    """The topic of all clusters, of a cluster's topic; else the topic itself."""
    return next((m for template, m in MERGED.items() if topic.startswith(template.format(cluster=""))), topic)


def check_partitions(partitions: Mapping[str, int]) -> None:
    """TopicsError when topics that must be equal differ in their number of partitions: the co-partitioned ones, and a
    topic of all clusters and those of single clusters."""
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
    """Topics that are not there, with the partitions that they get: as many as existing ones that they must equal."""
    shared = next((existing[topic] for topic in CO_PARTITIONED if topic in existing), None)
    known = {**(dict.fromkeys(CO_PARTITIONED, shared) if shared else {}), **existing}
    return {
        topic: known.get(merged(topic), declared.partitions)
        for topic, declared in wanted.items()
        if topic not in existing
    }


def unfit(configs: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str, object, str, object]]:
    """(topic, setting, its value, what is allowed, a value that is) where a job could not work with it."""
    spans = names.KAFKA_TOPIC_OTLP_SPANS
    found = configs.get(spans, {}).get(_TIMESTAMP, _APPEND)
    if found != _APPEND:
        yield spans, _TIMESTAMP, found, _APPEND, _APPEND
    for topic in _WIDE:
        text = str(configs.get(topic, {}).get(MAX_BYTES, _ROOM))
        if not text.isdigit() or int(text) < _ROOM:
            yield topic, MAX_BYTES, text, f"at least {_ROOM}", _ROOM
