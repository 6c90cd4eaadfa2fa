"""Servers and workers of streams that are killed and started again while spans are sent."""

import asyncio
import json
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import broker
from aiokafka import AIOKafkaProducer
from spillway_contracts import names
from spillway_lab.testing.kafka import kafka_process
from spillway_lab.testing.servers import Server, clickhouse_process, free_port, healthy, redis_process
from spillway_lab.testing.waiting import WAIT_S
from truth import World

PARTITIONS = 4
# Much shorter than in production, so that workers forget traces and commit offsets during a test.
HORIZON = {
    "SPILLWAY_STREAMS_WINDOW_S": "4",
    "SPILLWAY_STREAMS_HOLD_S": "6",
    "SPILLWAY_STREAMS_LIFE_S": "10",
    "SPILLWAY_STREAMS_REMEMBER_S": "10",
}
# The topics that each job reads.
_INPUTS = {
    "exclusive": [names.KAFKA_TOPIC_OTLP_SPANS],
    "classify": [names.KAFKA_TOPIC_CALLS, names.KAFKA_TOPIC_EDGES],
    "curves": [names.KAFKA_TOPIC_CALLS],
    "graph": [names.KAFKA_TOPIC_CALLS, names.KAFKA_TOPIC_EDGES, names.KAFKA_TOPIC_NETWORK],
}
JOBS = tuple(_INPUTS)


@dataclass
class Mesh:
    """Kafka, ClickHouse and Redis of its own, and any number of workers of each job."""

    folder: Path
    workers: dict[str, list[Server]] = field(default_factory=lambda: {job: [] for job in JOBS})

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        self.kafka = self._stack.enter_context(kafka_process(self.folder))
        self.clickhouse = self._stack.enter_context(clickhouse_process(self.folder))
        self.redis = self._stack.enter_context(redis_process(self.folder))
        return self

    def __exit__(self, *_: object) -> None:
        for workers in self.workers.values():
            for worker in workers:
                worker.kill()
        for server in (self.kafka, self.clickhouse, self.redis):
            server.kill()  # nobody reads its data again
        self._stack.close()

    def start_all(self) -> None:
        """Starts one worker of each job, all at the same time."""
        with ThreadPoolExecutor(len(JOBS)) as pool:
            list(pool.map(self.start, JOBS))

    def start(self, job: str, **environment: str) -> Server:
        """Starts one more worker of a job and returns it when it is ready.

        `job` may also be `all`, with the `environment` that a process with all jobs needs.
        """
        port, number = free_port(), len(list(self.folder.glob(f"{job}-*.log")))
        worker = Server(
            url=f"http://127.0.0.1:{port}/readyz",
            command=[sys.executable, "-m", "spillway_streams", job],
            log=self.folder / f"{job}-{number}.log",
            ready=lambda: healthy(port),
            environment={
                "SPILLWAY_KAFKA": self.kafka.url,
                "SPILLWAY_CLICKHOUSE_URL": self.clickhouse.url,
                "SPILLWAY_REDIS_URL": self.redis.url,
                "SPILLWAY_STREAMS_ACCEPT_UNADMITTED": "true",  # tests write to otlp_spans directly
                "SPILLWAY_STATE_DIR": str(self.folder / f"{job}-{number}"),
                "SPILLWAY_HEALTH_LISTEN": f"127.0.0.1:{port}",
                "SPILLWAY_STREAMS_TOPIC_PARTITIONS": str(PARTITIONS),
            }
            | HORIZON
            | environment,
        )
        self.workers.setdefault(job, []).append(worker)
        worker.start()
        return worker

    def drop(self, job: str, worker: Server) -> None:
        """Kills a worker with SIGKILL and does not start it again."""
        worker.kill()
        self.workers[job].remove(worker)

    def counters(self, job: str) -> dict[str, int]:
        """Returns the sums of the counters of a job's workers, each since its start."""
        total: Counter[str] = Counter()
        for worker in self.workers[job]:
            try:
                answer = urllib.request.urlopen(worker.url, timeout=WAIT_S)
            except urllib.error.HTTPError as unready:
                answer = unready  # a worker that is not ready has counters too
            with answer:
                total.update(json.load(answer)["counters"])
        return total

    def replay(self, topics: list[str], jobs: tuple[str, ...]) -> None:
        """Makes the jobs read these topics again from the beginning.

        Stops the jobs' workers, rewinds their groups and starts the workers again.
        """
        for job in jobs:
            for worker in self.workers[job]:
                worker.stop()
            for topic in set(topics) & set(_INPUTS[job]):
                broker.rewind(self.kafka.url, f"spillway-{job}", topic)
            for worker in self.workers[job]:
                worker.start()

    def tails(self) -> str:
        """Returns the end of every worker's log."""
        return "\n".join(
            f"--- {log.name}\n{log.read_text()[-1500:]}" for log in sorted(self.folder.glob("*-*.log"))
        )


class Sender:
    """Sends traces of a world from a thread until the block ends.

    It sends one chunk of traces at a time, each chunk to one partition. Read the world's `truth`
    only after the block, because only then are all its traces acknowledged.
    """

    _TRACES, _PIECES, _PAUSE_S = 12, 3, 0.1

    def __init__(self, kafka: str, world: World) -> None:
        self._kafka, self._world = kafka, world
        self.chunks = 0
        self._between = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stops once every partition has received the same number of chunks.

        Raises the thread's failure, if there is one.
        """
        self._over.set()
        self._thread.join()
        if self._failure:
            raise self._failure

    def between_chunks(self) -> threading.Lock:
        """Returns a lock that is free between chunks.

        While a test holds it, no trace is half sent. A broker that went away in the middle of a
        trace would delay a part of its spans.
        """
        return self._between

    async def _run(self) -> None:
        try:
            async with AIOKafkaProducer(
                bootstrap_servers=self._kafka, enable_idempotence=True, linger_ms=10
            ) as producer:
                while not self._over.is_set() or self.chunks % PARTITIONS:
                    await self._chunk(producer, self.chunks % PARTITIONS)
                    self.chunks += 1
                    await asyncio.sleep(self._PAUSE_S)
        except BaseException as error:
            self._failure = error

    async def _chunk(self, producer: AIOKafkaProducer, partition: int) -> None:
        with self._between:
            traces = [self._world.trace(int(time.time() * 1e6)) for _ in range(self._TRACES)]
            # All messages are sent at once. If one of them waited for a busy broker, its traces
            # would be closed without its spans.
            sent = [
                await producer.send(
                    names.KAFKA_TOPIC_OTLP_SPANS, request.SerializeToString(), partition=partition
                )
                for request in self._world.messages(traces, self._PIECES)
            ]
            await asyncio.gather(*sent)
