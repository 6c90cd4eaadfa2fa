"""Takes the place of `exclusive`: sends batches to the topics behind it, with their headers."""

import asyncio

from aiokafka import AIOKafkaProducer
from clickhouse_driver import Client
from spillway_contracts import names

PARTITIONS = 4  # the default of SPILLWAY_STREAMS_TOPIC_PARTITIONS
TICK_BITS = 10


def partition_of(clickhouse: Client, name: str) -> int:
    """Returns the partition that holds everything of a service, or of a pair "from>to"."""
    return clickhouse.execute("SELECT xxHash64(%(name)s) %% %(n)s", {"name": name, "n": PARTITIONS})[0][0]


def headers(source: int, sequence: int) -> list[tuple[str, bytes]]:
    """Returns the headers that identify a batch: its source partition and its sequence."""
    pairs = ((names.KAFKA_HEADER_SOURCE, source), (names.KAFKA_HEADER_SEQUENCE, sequence))
    return [(name, str(value).encode()) for name, value in pairs]


def sequences(source: int, payloads: list[bytes], first: int = 1) -> list[tuple[list, bytes]]:
    """Returns the payloads with headers, each as a batch of a tick of its own.

    `first` is the first payload's tick.
    """
    return [(headers(source, first + n << TICK_BITS), payload) for n, payload in enumerate(payloads)]


def feed(broker: str, topic: str, partition: int, messages: list[tuple[list, bytes]]) -> None:
    """Sends (headers, payload) in this order, and waits for the acknowledgement of each."""

    async def produce() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker) as producer:
            for names_, payload in messages:
                await producer.send_and_wait(topic, payload, partition=partition, headers=names_)

    asyncio.run(produce())
