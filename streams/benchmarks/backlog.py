"""Fills otlp_spans of a real broker before anything reads it."""

import asyncio
import itertools
import sys
import time
from pathlib import Path

import spans
from aiokafka import AIOKafkaProducer
from spillway_contracts import names
from spillway_lab.testing.kafka import PARTITIONS

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "component"))

import broker

TOPIC = names.KAFKA_TOPIC_OTLP_SPANS
OUTPUTS = (
    names.KAFKA_TOPIC_CALLS,
    names.KAFKA_TOPIC_EDGES,
    names.KAFKA_TOPIC_ARRIVALS,
    names.KAFKA_TOPIC_NETWORK,
    names.KAFKA_TOPIC_DEAD_LETTERS,
)
# Age of the newest message. It is too old to be news for the load board, so the log is a backlog.
_AGE_S = 60.0


def fill(kafka: str, count: int, rate: float, topic: str = TOPIC) -> spans.Truth:
    """Writes `count` spans, and returns what must come out of them.

    The log's timestamps are those of a steady `rate` (spans/s over all partitions) that ended a
    minute ago. Spans are written as fast as possible. With the time of writing as timestamp, the
    log would have a rate that nobody has, and traces would overlap accordingly.
    """
    broker.create(kafka, {topic: PARTITIONS}, message_timestamp_type="CreateTime")
    truth = asyncio.run(_fill(kafka, count, rate, topic))
    # Messages in the log keep their timestamps. The jobs require topics that the broker stamps.
    broker.alter(kafka, topic, message_timestamp_type="LogAppendTime")
    return truth


async def _fill(kafka: str, count: int, rate: float, topic: str) -> spans.Truth:
    shop = spans.Shop()
    began_us = int((time.time() - _AGE_S - count / rate) * 1e6)
    logs = [spans.Partition(shop, p, began_us, rate / PARTITIONS) for p in range(PARTITIONS)]
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka, compression_type="zstd", max_request_size=4_000_000, linger_ms=0
    )
    await producer.start()
    try:
        for messages in itertools.zip_longest(*(log.messages(count // PARTITIONS) for log in logs)):
            sent = [
                await producer.send(
                    topic, message.value, partition=p, timestamp_ms=(began_us + message.at_us) // 1000
                )
                for p, message in enumerate(messages)
                if message
            ]
            await asyncio.gather(*sent)
    finally:
        await producer.stop()
    return sum((log.truth for log in logs), spans.Truth())


def again(kafka: str, groups: list[str]) -> None:
    """Resets the broker to the state before anybody read the backlog.

    Deletes the topics that were computed, and rewinds the groups to the beginning.
    """
    broker.delete(kafka, OUTPUTS)
    for group in groups:
        broker.rewind(kafka, group, TOPIC)
