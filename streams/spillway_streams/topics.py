"""Kafka topics: declared, and checked, before anything reads or writes them."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import TopicAlreadyExistsError, for_code
from spillway_contracts import names
from spillway_contracts.wires import KafkaWire

from spillway_streams import StreamsError
from spillway_streams.admission import MERGED

# Topics of all clusters. Those of one cluster are named by the templates of admission.MERGED.
KNOWN = {value for key, value in vars(names).items() if key.startswith("KAFKA_TOPIC_")}
# A service is in the partition of its hash in all of these, so that one worker has everything about it.
CO_PARTITIONED = (
    names.KAFKA_TOPIC_OTLP_METRICS,
    names.KAFKA_TOPIC_CALLS,
    names.KAFKA_TOPIC_EDGES,
    names.KAFKA_TOPIC_ARRIVALS,
    names.KAFKA_TOPIC_NETWORK,
)
# The clock of a partition is that of the broker: only then is a message never older than one before it.
_TIMESTAMP, _APPEND = "message.timestamp.type", "LogAppendTime"
# A whole slice of calls is 1.5 MB after compression, above Kafka's own default.
_MAX_BYTES, _ROOM = "max.message.bytes", 4 << 20
_WIDE = (names.KAFKA_TOPIC_CALLS, names.KAFKA_TOPIC_EDGES, names.KAFKA_TOPIC_NETWORK)
_CONFIG = {_TIMESTAMP: _APPEND, _MAX_BYTES: str(_ROOM)}
# A segment is deleted once its newest message is older than the first, and is written for the second at most.
_AGE = ("retention.ms", "segment.ms")


class TopicsError(StreamsError):
    """Topics that exist otherwise than the jobs need them."""


@dataclass(frozen=True)
class Layout:
    """What the jobs need to know of the topics: how many partitions the co-partitioned ones have, and the largest
    record batch in bytes that each topic takes; how old in seconds a message of otlp_spans may be, None: any;
    `sources`: how many partitions otlp_spans has."""

    partitions: int
    max_bytes: dict[str, int]
    oldest_s: int | None = None
    sources: int = 1


def read(path: Path, clusters: Iterable[str], default_partitions: int) -> dict[str, int]:
    """Partitions per topic from a file `topic: {partitions: n}`, topics with {cluster} once per cluster; StreamsError
    names what is wrong."""
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise StreamsError(f"{path}: cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise StreamsError(f"{path}: must map topic names to {{partitions: n}}")
    found = {}
    for topic, options in document.items():
        partitions = (options or {}).get("partitions", default_partitions)
        if topic not in KNOWN | MERGED.keys():
            known = ", ".join(sorted(KNOWN | MERGED.keys()))
            raise StreamsError(f"{path}: {topic}: unknown topic; topics: {known}")
        if not isinstance(partitions, int) or partitions < 1:
            raise StreamsError(f"{path}: {topic}.partitions: {partitions!r} must be a whole number above 0")
        found |= dict.fromkeys(of_clusters(topic, clusters), partitions)
    try:
        check_partitions(found)
    except TopicsError as error:
        raise StreamsError(f"{path}: {error}") from None
    return found


def of_clusters(topic: str, clusters: Iterable[str]) -> list[str]:
    """The topic; of a template the topic of each cluster."""
    return [topic.format(cluster=cluster) for cluster in clusters] if topic in MERGED else [topic]


def check_partitions(partitions: dict[str, int]) -> None:
    """TopicsError when topics that must be equal differ in their number of partitions: the co-partitioned ones, and a
    topic of all clusters and those of single clusters."""
    for topic, n in partitions.items():
        merged = _merged(topic)
        if merged != topic and n != partitions.get(merged, n):
            raise TopicsError(
                f"partitions differ: {topic} {n}, {merged} {partitions[merged]}; they must be equal, messages keep theirs"
            )
    found = {topic: partitions[topic] for topic in CO_PARTITIONED if topic in partitions}
    if len(set(found.values())) > 1:
        counts = ", ".join(f"{topic} {n}" for topic, n in found.items())
        raise TopicsError(f"partitions differ: {counts}; they must be equal, services are spread by hash")


async def create(kafka: KafkaWire, partitions: dict[str, int], replicas: int) -> list[str]:
    """Creates the topics that are missing and returns their names; existing ones stay as they are. TopicsError when
    the jobs could not work with what is then there."""
    return (await prepare(kafka, partitions, replicas))[0]


async def prepare(kafka: KafkaWire, partitions: dict[str, int], replicas: int) -> tuple[list[str], Layout]:
    """As create; also says what is there. A missing topic gets as many partitions as existing ones that it must equal."""
    admin = AIOKafkaAdminClient(
        bootstrap_servers=kafka.kafka.split(","), request_timeout_ms=10_000, **kafka.kafka_client()
    )
    try:
        await admin.start()
        existing = await _partitions(admin, partitions)
        missing = _missing(partitions, existing)
        if missing:
            wanted = [NewTopic(t, n, replicas, topic_configs=_CONFIG) for t, n in missing.items()]
            for topic, code, *_ in (await admin.create_topics(wanted)).topic_errors:
                if code not in (0, TopicAlreadyExistsError.errno):
                    raise for_code(code)(f"{topic}: cannot be created")
        present = {**existing, **missing}
        check_partitions(present)
        configs = await _configs(admin, present)
        _check(configs)
        layout = Layout(
            present.get(names.KAFKA_TOPIC_CALLS, 1),
            {topic: int(config[_MAX_BYTES]) for topic, config in configs.items() if _MAX_BYTES in config},
            _oldest_s(configs.get(names.KAFKA_TOPIC_OTLP_SPANS, {})),
            present.get(names.KAFKA_TOPIC_OTLP_SPANS, 1),
        )
        return sorted(missing), layout
    finally:
        await admin.close()


def _missing(wanted: dict[str, int], existing: dict[str, int]) -> dict[str, int]:
    """Topics that are not there, with the partitions that they get."""
    shared = next((existing[topic] for topic in CO_PARTITIONED if topic in existing), None)
    like = dict.fromkeys(CO_PARTITIONED, shared) if shared else {}
    known = like | existing
    return {topic: known.get(_merged(topic), n) for topic, n in wanted.items() if topic not in existing}


def _merged(topic: str) -> str:
    """The topic of all clusters, of a cluster's topic; else the topic itself."""
    return next((m for template, m in MERGED.items() if topic.startswith(template.format(cluster=""))), topic)


async def partitions(kafka: KafkaWire, topics: Iterable[str]) -> dict[str, int]:
    """How many each of these topics has; those that are not there, or that we may not see, are left out."""
    admin = AIOKafkaAdminClient(
        bootstrap_servers=kafka.kafka.split(","), request_timeout_ms=10_000, **kafka.kafka_client()
    )
    try:
        await admin.start()
        return await _partitions(admin, topics)
    finally:
        await admin.close()


async def _partitions(admin: AIOKafkaAdminClient, topics: Iterable[str]) -> dict[str, int]:
    described = await admin.describe_topics(None)
    return {t["topic"]: len(t["partitions"]) for t in described if t["topic"] in set(topics)}


async def _configs(admin: AIOKafkaAdminClient, topics: Iterable[str]) -> dict[str, dict[str, Any]]:
    resources = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in topics]
    found: dict[str, dict[str, Any]] = {}
    for response in await admin.describe_configs(resources):
        for _, _, _, name, entries in response.resources:
            found[name] = {entry[0]: entry[1] for entry in entries}
    return found


def _check(configs: dict[str, dict[str, Any]]) -> None:
    topic = names.KAFKA_TOPIC_OTLP_SPANS
    found = configs.get(topic, {}).get(_TIMESTAMP, _APPEND)
    if found != _APPEND:
        raise _wrong(topic, _TIMESTAMP, found, _APPEND, _APPEND)
    for topic in _WIDE:
        room = int(configs.get(topic, {}).get(_MAX_BYTES, _ROOM))
        if room < _ROOM:
            raise _wrong(topic, _MAX_BYTES, room, f"at least {_ROOM}", _ROOM)


def _wrong(topic: str, key: str, found: object, allowed: str, value: object) -> TopicsError:
    return TopicsError(
        f"{topic}: {key} is {found}, must be {allowed}: kafka-configs.sh --alter --entity-type topics "
        f"--entity-name {topic} --add-config {key}={value}"
    )


def _oldest_s(config: dict[str, Any]) -> int | None:
    ages = [int(config.get(key, -1)) for key in _AGE]
    return None if min(ages) < 0 else sum(ages) // 1000
