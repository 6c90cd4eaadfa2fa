"""Creates Kafka's topics, checks them and changes their settings to what is declared.

This happens before anything reads or writes them.
"""

import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import InvalidReplicationFactorError, TopicAlreadyExistsError, for_code
from spillway_contracts import names
from spillway_contracts.wires import KafkaWire

from spillway_streams.topics.alter import alter
from spillway_streams.topics.declared import MAX_BYTES, Topic, TopicsError, check_partitions, missing, unfit

# A segment is written for at most segment.ms, and deleted once its newest message is older than
# retention.ms.
_AGE = ("retention.ms", "segment.ms")


@dataclass(frozen=True)
class Layout:
    """What the jobs need to know about the topics.

    `partitions`: number of partitions of the co-partitioned topics. `max_bytes`: largest record
    batch in bytes that each topic takes. `oldest_s`: how old in seconds a message of otlp_spans may
    be; None for any age. `sources`: number of partitions of otlp_spans.
    """

    partitions: int
    max_bytes: dict[str, int]
    oldest_s: int | None = None
    sources: int = 1


@dataclass(frozen=True)
class Report:
    """What `declare` has done.

    `created`: topics created. `changed`: settings changed, by topic and name, as (before, after).
    `refused`: topics whose settings stay as they were, with the reason. `notes`: what is left to
    the operator.
    """

    created: list[str]
    changed: dict[str, dict[str, tuple[Any, str]]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Returns the report as lines of text for people."""
        made = [f"topics created: {', '.join(self.created) or 'none, all existed'}"]
        changed = [
            f"{topic}: " + ", ".join(f"{name} {before} -> {after}" for name, (before, after) in named.items())
            for topic, named in self.changed.items()
        ]
        refused = [f"error: {topic}: {reason}" for topic, reason in self.refused.items()]
        if not changed and not refused:
            changed = ["settings changed: none, all were as declared"]
        return [*made, *changed, *self.notes, *refused]


@dataclass(frozen=True)
class _Existing:
    partitions: int
    replicas: int
    in_sync: int  # of the partition that has the fewest


async def declare(kafka: KafkaWire, wanted: Mapping[str, Topic]) -> Report:
    """Creates missing topics, and changes the settings of existing ones to what is declared.

    Partitions and replicas of existing topics stay as they are. A refused topic does not stop the
    others. Raises TopicsError when the jobs could not work with the resulting topics.
    """
    async with _admin(kafka) as admin:
        made, created = await _create(admin, wanted)
        existing = {t: found for t, found in (await _existing(admin, wanted)).items() if t not in created}
        check_partitions({**made, **{topic: found.partitions for topic, found in existing.items()}})
        configs = await _configs(admin, existing, strict=True)
        changes, refused = {}, {}
        for topic, found in existing.items():
            try:
                changes[topic] = wanted[topic].changes(configs[topic], found.replicas, found.in_sync)
            except TopicsError as error:
                refused[topic] = str(error)
        changes = {topic: named for topic, named in changes.items() if named}
        if changes:
            refused |= await alter(admin, changes)
        changed = {
            topic: {name: (configs[topic].get(name), value) for name, value in named.items()}
            for topic, named in changes.items()
            if topic not in refused
        }
        notes = [
            f"{topic}: has {found.replicas} replicas, {wanted[topic].replicas} are declared: "
            "kafka-reassign-partitions.sh changes that"
            for topic, found in existing.items()
            if found.replicas != wanted[topic].replicas
        ] + [
            f"{topic}: a partition has {found.in_sync} of {found.replicas} replicas in sync: run this again when all are"
            for topic, found in existing.items()
            if found.in_sync < found.replicas
        ]
        return Report(sorted(created), changed, refused, notes)


async def prepare(kafka: KafkaWire, wanted: Mapping[str, Topic]) -> Layout:
    """Creates the topics that are missing, leaves existing ones unchanged, and returns the layout.

    A missing topic gets as many partitions as the existing topics that it must equal. Raises
    TopicsError when the jobs could not work with the topics.
    """
    async with _admin(kafka) as admin:
        present, _ = await _create(admin, wanted)
        check_partitions(present)
        configs = await _configs(admin, present)
        _check(configs)
        return Layout(
            present.get(names.KAFKA_TOPIC_CALLS, 1),
            {topic: int(config[MAX_BYTES]) for topic, config in configs.items() if MAX_BYTES in config},
            _oldest_s(configs.get(names.KAFKA_TOPIC_OTLP_SPANS, {})),
            present.get(names.KAFKA_TOPIC_OTLP_SPANS, 1),
        )


async def partitions(kafka: KafkaWire, topics: Iterable[str]) -> dict[str, int]:
    """Returns how many partitions each of these topics has.

    Topics that do not exist, or that this user may not see, are left out.
    """
    async with _admin(kafka) as admin:
        return {topic: found.partitions for topic, found in (await _existing(admin, topics)).items()}


@contextlib.asynccontextmanager
async def _admin(kafka: KafkaWire) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(
        bootstrap_servers=kafka.kafka.split(","), request_timeout_ms=10_000, **kafka.kafka_client()
    )
    try:
        await admin.start()
        yield admin
    finally:
        await admin.close()


async def _create(admin: AIOKafkaAdminClient, wanted: Mapping[str, Topic]) -> tuple[dict[str, int], set[str]]:
    """Creates the topics that are missing.

    Returns the number of partitions of every topic, and the set of topics created here. A topic
    that somebody else created meanwhile is not in the set.
    """
    existing = {topic: found.partitions for topic, found in (await _existing(admin, wanted)).items()}
    absent = missing(wanted, existing)
    created = set(absent)
    if absent:
        new = [
            NewTopic(topic, n, wanted[topic].replicas, topic_configs=wanted[topic].settings())
            for topic, n in absent.items()
        ]
        for topic, code, *message in (await admin.create_topics(new)).topic_errors:
            if code == TopicAlreadyExistsError.errno:
                created.discard(topic)
            elif code == InvalidReplicationFactorError.errno:
                raise await _too_many(admin, topic, wanted[topic].replicas)
            elif code:
                raise for_code(code)(f"{topic}: cannot be created: {(message or [''])[0] or 'refused'}")
    return {**existing, **absent}, created


async def _too_many(admin: AIOKafkaAdminClient, topic: str, replicas: int) -> TopicsError:
    brokers = len((await admin.describe_cluster())["brokers"])
    return TopicsError(
        f"{topic}: replicas: {replicas} must be from 1 to {brokers}, the brokers that are up: set "
        f"SPILLWAY_STREAMS_TOPIC_REPLICAS (of the chart: kafka.replicas), or {topic}.replicas of the file"
    )


async def _existing(admin: AIOKafkaAdminClient, topics: Iterable[str]) -> dict[str, _Existing]:
    named = set(topics)
    return {
        t["topic"]: _Existing(
            len(t["partitions"]),
            *(min(len(p[those]) for p in t["partitions"]) for those in ("replicas", "isr")),
        )
        for t in await admin.describe_topics(None)
        if t["topic"] in named and t["partitions"]
    }


async def _configs(
    admin: AIOKafkaAdminClient, topics: Iterable[str], strict: bool = False
) -> dict[str, dict[str, Any]]:
    """Returns the settings in force, by topic and name.

    With `strict`, raises KafkaError where they may not be read.
    """
    resources = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in topics]
    found: dict[str, dict[str, Any]] = {}
    for response in await admin.describe_configs(resources):
        for code, message, _, name, entries in response.resources:
            if code and strict:
                raise for_code(code)(f"{name}: settings cannot be read: {message or 'refused'}")
            found[name] = {entry[0]: entry[1] for entry in entries}
    return found


def _check(configs: dict[str, dict[str, Any]]) -> None:
    for topic, key, found, allowed, value in unfit(configs):
        raise TopicsError(
            f"{topic}: {key} is {found}; must be {allowed}: kafka-configs.sh --alter --entity-type topics "
            f"--entity-name {topic} --add-config {key}={value}"
        )


def _oldest_s(config: dict[str, Any]) -> int | None:
    ages = [int(config.get(key, -1)) for key in _AGE]
    return None if min(ages) < 0 else sum(ages) // 1000
