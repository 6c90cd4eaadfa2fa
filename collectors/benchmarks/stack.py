"""The servers of the benchmark: one Kafka broker, and one collector pinned to a core."""

import asyncio
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from spillway_contracts import names
from spillway_lab.testing.kafka import PARTITIONS

TOPIC = names.KAFKA_CLUSTER_TOPIC_OTLP_SPANS.format(cluster="cluster-under-test")  # collector_process.CLUSTER
BOX = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BOX / "tests" / "component"))

import collector_process  # noqa: E402

CORE, OTHERS = "0", f"1-{os.cpu_count() - 1}" if (os.cpu_count() or 1) > 1 else "0"


@dataclass
class Setup:
    """The collector to measure.

    `box` is the folder of its launcher and configuration, `binaries` the folder of its binary, and
    `overrides` are settings over config.yaml.
    """

    box: Path
    binaries: Path
    overrides: list[str]


def collector(folder: Path, kafka: str, setup: Setup) -> collector_process.Collector:
    """Returns a collector on one core (GOMAXPROCS=1) that is not started yet.

    Its own metrics are off, because they cost CPU.
    """
    return collector_process.collector(
        folder,
        kafka,
        {"PATH": f"{setup.binaries}{os.pathsep}{os.environ['PATH']}", "GOMAXPROCS": "1"},
        *setup.overrides,
        box=setup.box,
        pinned=("taskset", "-c", CORE),
        SPILLWAY_METRICS_LISTEN="",
    )


def sender(address: str, batches: int, spans_per_s: float) -> subprocess.Popen:
    """Starts the load on the other cores.

    It waits for a line on standard input before it begins.
    """
    program = [sys.executable, str(Path(__file__).with_name("sender.py"))]
    return subprocess.Popen(
        [
            *("taskset", "-c", OTHERS, *program, "--address", address),
            *("--batches", str(batches), "--spans-per-s", str(spans_per_s)),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


class Topic:
    """The topic of the collector's cluster at one broker: its end offsets and its content."""

    def __init__(self, kafka: str) -> None:
        self._kafka = kafka
        asyncio.run(self._create())

    async def _create(self) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._kafka)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
        finally:
            await admin.close()

    def ends(self) -> dict[TopicPartition, int]:
        """Returns the end offset of every partition."""
        return asyncio.run(self._with_consumer(self._ends))

    def settled(self, quiet_s: float = 1.5, timeout_s: float = 120.0) -> float:
        """Waits until no message has arrived for `quiet_s` seconds, or for `timeout_s` in all.

        Returns the time of the last arrival (time.perf_counter).
        """
        last, changed, deadline = self.ends(), time.perf_counter(), time.perf_counter() + timeout_s
        while time.perf_counter() - changed < quiet_s and time.perf_counter() < deadline:
            time.sleep(0.1)
            if (ends := self.ends()) != last:
                last, changed = ends, time.perf_counter()
        return changed

    def content(self, begin: dict[TopicPartition, int]) -> tuple[int, int, int]:
        """Returns (messages, spans, bytes of values) from the offsets in `begin` on."""
        return asyncio.run(self._with_consumer(self._content, begin))

    async def _with_consumer(self, work, *arguments):
        consumer = AIOKafkaConsumer(bootstrap_servers=self._kafka, enable_auto_commit=False)
        await consumer.start()
        try:
            return await work(consumer, *arguments)
        finally:
            await consumer.stop()

    async def _ends(self, consumer: AIOKafkaConsumer) -> dict[TopicPartition, int]:
        return await consumer.end_offsets([TopicPartition(TOPIC, p) for p in range(PARTITIONS)])

    async def _content(self, consumer: AIOKafkaConsumer, begin: dict) -> tuple[int, int, int]:
        ends = await self._ends(consumer)
        consumer.assign(list(ends))
        for partition in ends:
            consumer.seek(partition, begin.get(partition, 0))
        messages = spans = size = 0
        position = {partition: begin.get(partition, 0) for partition in ends}
        while any(position[partition] < end for partition, end in ends.items()):
            for partition, records in (await consumer.getmany(timeout_ms=500)).items():
                position[partition] = records[-1].offset + 1
                messages += len(records)
                size += sum(len(record.value) for record in records)
                spans += sum(_spans(record.value) for record in records)
        return messages, spans, size


def _spans(value: bytes) -> int:
    request = ExportTraceServiceRequest.FromString(value)
    return sum(len(scope.spans) for resource in request.resource_spans for scope in resource.scope_spans)
