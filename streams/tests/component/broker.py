"""Kafka operations of tests and benchmarks: topics, messages, and offsets of consumer groups."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    CommitFailedError,
    GroupCoordinatorNotAvailableError,
    NotCoordinatorForGroupError,
)
from spillway_lab.testing.waiting import WAIT_S


def create(kafka: str, topics: dict[str, int], **settings: str) -> None:
    """Creates topics, given as their names and numbers of partitions.

    `settings` apply to all of them. Their names have "_" in place of ".".
    """

    async def work(admin: AIOKafkaAdminClient) -> None:
        config = {name.replace("_", "."): value for name, value in settings.items()}
        await admin.create_topics(
            [NewTopic(topic, n, 1, topic_configs=config) for topic, n in topics.items()]
        )

    _with_admin(kafka, work)


def alter(kafka: str, topic: str, **settings: str) -> None:
    """Changes settings of a topic. The settings' names are written as in `create`."""

    async def work(admin: AIOKafkaAdminClient) -> None:
        config = {name.replace("_", "."): value for name, value in settings.items()}
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, config)])

    _with_admin(kafka, work)


def expand(kafka: str, topic: str, partitions: int) -> None:
    """Raises a topic's number of partitions to `partitions`."""
    _with_admin(kafka, lambda admin: admin.create_partitions({topic: NewPartitions(partitions)}))


def delete(kafka: str, topics: Iterable[str]) -> None:
    """Deletes those of the topics that exist, and the offsets that groups have committed for them.

    Returns when the broker no longer lists these topics.
    """

    async def work(admin: AIOKafkaAdminClient) -> None:
        existing = set(await admin.list_topics())
        if gone := sorted(existing & set(topics)):
            await admin.delete_topics(gone)
        while existing & set(topics):
            await asyncio.sleep(0.1)
            existing = set(await admin.list_topics())

    _with_admin(kafka, work)


def send(
    kafka: str,
    topic: str,
    payloads: list[bytes],
    partition: int | None = None,
    headers: dict[str, bytes] | None = None,
) -> list[int]:
    """Sends each payload as a message of its own and returns the messages' offsets.

    Without `partition`, the producer chooses a partition for each message.
    """

    async def run() -> list[int]:
        async with AIOKafkaProducer(bootstrap_servers=kafka, max_request_size=8_000_000) as producer:
            sent = [
                await producer.send_and_wait(
                    topic, payload, partition=partition, headers=list((headers or {}).items())
                )
                for payload in payloads
            ]
            return [metadata.offset for metadata in sent]

    return asyncio.run(run())


def read(kafka: str, topic: str) -> list:
    """Returns every record that a topic holds at the time of the call."""

    async def work(consumer: AIOKafkaConsumer, partitions: list[TopicPartition]) -> list:
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        end = await consumer.end_offsets(partitions)
        records: list = []
        while any([await consumer.position(tp) < end[tp] for tp in partitions]):
            for batch in (await consumer.getmany(timeout_ms=1000)).values():
                records += batch
        return records

    return _with_consumer(kafka, None, topic, work) or []


def committed(kafka: str, group: str, topic: str) -> dict[int, int]:
    """Returns the offsets that a group has committed for a topic, by partition."""

    async def work(admin: AIOKafkaAdminClient) -> dict[int, int]:
        while True:
            try:
                offsets = await admin.list_consumer_group_offsets(group)
                break
            except (GroupCoordinatorNotAvailableError, NotCoordinatorForGroupError):
                await asyncio.sleep(0.2)  # the broker has just started
        return {tp.partition: found.offset for tp, found in offsets.items() if tp.topic == topic}

    return _with_admin(kafka, work)


def ends(kafka: str, topic: str) -> dict[int, int]:
    """Returns the end offset of every partition of a topic, or {} if the topic does not exist."""

    async def work(consumer: AIOKafkaConsumer, partitions: list[TopicPartition]) -> dict[int, int]:
        return {tp.partition: end for tp, end in (await consumer.end_offsets(partitions)).items()}

    return _with_consumer(kafka, None, topic, work)


def lag(kafka: str, group: str, topic: str) -> int | None:
    """Returns the number of messages of a topic that a group has not acknowledged.

    Returns None before the group has acknowledged any message.
    """
    done = committed(kafka, group, topic)
    if not done:
        return None
    return sum(end - done.get(partition, 0) for partition, end in ends(kafka, topic).items())


def rewind(kafka: str, group: str, topic: str) -> None:
    """Makes a group read a topic again from its beginning.

    The group must have no members. Raises CommitFailedError if it still has one after WAIT_S.
    """

    async def work(consumer: AIOKafkaConsumer, partitions: list[TopicPartition]) -> None:
        consumer.assign(partitions)
        beginnings, deadline = await consumer.beginning_offsets(partitions), time.monotonic() + WAIT_S
        while True:
            try:
                return await consumer.commit(beginnings)
            except CommitFailedError:
                # A worker that ended without leaving the group is a member until its session ends.
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(0.2)

    _with_consumer(kafka, group, topic, work)


def _with_admin(kafka: str, work: Callable[[AIOKafkaAdminClient], Awaitable]):
    async def run():
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
        await admin.start()
        try:
            return await work(admin)
        finally:
            await admin.close()

    return asyncio.run(run())


def _with_consumer(
    kafka: str,
    group: str | None,
    topic: str,
    work: Callable[[AIOKafkaConsumer, list[TopicPartition]], Awaitable],
):
    async def partitions(admin: AIOKafkaAdminClient) -> list[TopicPartition]:
        [found] = await admin.describe_topics([topic])
        return sorted(TopicPartition(topic, partition["partition"]) for partition in found["partitions"])

    known = _with_admin(kafka, partitions)

    async def run():
        consumer = AIOKafkaConsumer(bootstrap_servers=kafka, group_id=group, enable_auto_commit=False)
        await consumer.start()
        try:
            return await work(consumer, known)
        finally:
            await consumer.stop()

    return asyncio.run(run()) if known else {}
