"""otlp_spans of a real broker, filled before anything reads it."""

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
# The newest message is so old that it is no news for the load board: a backlog.
_AGE_S = 60.0


def fill(kafka: str, count: int, rate: float, topic: str = TOPIC) -> spans.Truth:
    """Writes so many spans. The log's timestamps are those of a steady `rate` (spans/s, all partitions) that ended a
    minute ago: written as fast as it goes, the log would be of a rate that nobody has, and traces would overlap so.
    """
    broker.create(kafka, {topic: PARTITIONS}, message_timestamp_type="CreateTime")
    truth = asyncio.run(_fill(kafka, count, rate, topic))
    # What is in the log keeps its timestamps; the jobs ask for topics with the broker's clock.
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
                    topic, one.value, partition=p, timestamp_ms=(began_us + one.at_us) // 1000
                )
                for p, one in enumerate(messages)
                if one
            ]
            await asyncio.gather(*sent)
    finally:
        await producer.stop()
    return sum((log.truth for log in logs), spans.Truth())


def again(kafka: str, groups: list[str]) -> None:
    """As if nobody had read it: what was computed is gone, and the groups begin at the beginning."""
    broker.delete(kafka, OUTPUTS)
    for group in groups:
        broker.rewind(kafka, group, TOPIC)
