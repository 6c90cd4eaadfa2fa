"""The job `admit` with a real Kafka.

Messages of each cluster's topics reach the topics of all clusters once, unchanged, in order, and
under the cluster of their topic. A problem with one cluster's topics delays that cluster only.
"""

import asyncio
import itertools
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import broker
import pytest
from aiokafka import AIOKafkaProducer
from spillway_contracts import names
from spillway_lab.testing import servers
from spillway_lab.testing.kafka import kafka_server_of
from spillway_lab.testing.waiting import WAIT_S, eventually

SPANS, METRICS = names.KAFKA_TOPIC_OTLP_SPANS, names.KAFKA_TOPIC_OTLP_METRICS
PARTITIONS = 4
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that does not create topics automatically, as in production."""
    server = kafka_server_of(tmp_path_factory.mktemp("kafka"))
    with Path(server.environment["KAFKA_CONFIG"]).open("a") as settings:
        settings.write("auto.create.topics.enable=false\n")
    with servers.running(server):
        yield server.url


@pytest.fixture(scope="module", autouse=True)
def topics(kafka: str) -> None:
    """Creates the topics of west, east and stranger. South and north have no topics yet."""
    of = [f"{topic}.{cluster}" for topic in (SPANS, METRICS) for cluster in ("west", "east", "stranger")]
    broker.create(kafka, dict.fromkeys([SPANS, METRICS, *of], PARTITIONS))


@pytest.fixture
def admit(kafka: str, tmp_path: Path, run_job: Callable) -> Callable:
    """Starts a worker: `with admit() as job`."""
    numbers = itertools.count()

    @contextmanager
    def start() -> Iterator:
        environment = {"SPILLWAY_KAFKA": kafka, "SPILLWAY_CLUSTERS": "west,east,south,north"}
        with run_job("admit", tmp_path / str(next(numbers)), **environment) as job:
            eventually(lambda: job.state()["ready"], "admit ready", seen=job.tail)
            yield job

    return start


def admitted(kafka: str, topic: str = SPANS) -> dict[tuple[str, int], list[tuple[bytes, int]]]:
    """Returns the admitted values, each with the offset that its header names.

    Keys are the header's cluster and the partition. The values are in the order of the log.
    """
    found = defaultdict(list)
    for record in broker.read(kafka, topic):
        headers = dict(record.headers)
        cluster, offset = (
            headers[names.KAFKA_HEADER_CLUSTER].decode(),
            int(headers[names.KAFKA_HEADER_ADMITTED]),
        )
        found[cluster, record.partition].append((record.value, offset))
    return found


def values(kafka: str, cluster: str, partition: int, topic: str = SPANS) -> list[bytes]:
    return [value for value, _ in admitted(kafka, topic)[cluster, partition]]


def arrives(kafka: str, job, cluster: str, partition: int, value: bytes, topic: str = SPANS) -> None:
    """Waits until the value is in the topic of all clusters, under this cluster and partition."""
    eventually(
        lambda: value in values(kafka, cluster, partition, topic), f"{value!r} of {cluster}", seen=job.tail
    )


class Load:
    """Sends numbered messages to every partition of the clusters' topics until the block ends."""

    def __init__(self, kafka: str, clusters: tuple[str, ...]) -> None:
        self._kafka, self._clusters = kafka, clusters
        self.sent: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        self._over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(WAIT_S)

    async def _run(self) -> None:
        async with AIOKafkaProducer(bootstrap_servers=self._kafka, enable_idempotence=True) as producer:
            for number in itertools.count():
                if self._over.is_set():
                    return
                for cluster, partition in itertools.product(self._clusters, range(PARTITIONS)):
                    value = b"%s %d %d" % (cluster.encode(), partition, number)
                    await producer.send_and_wait(f"{SPANS}.{cluster}", value, partition=partition)
                    self.sent[cluster, partition].append(value)


def test_messages_keep_bytes_partition_and_order_under_their_topics_cluster(kafka: str, admit: Callable):
    """The content of a message does not matter.

    It may be invalid OTLP, empty, or name another cluster. A topic is not read if its cluster is
    not in SPILLWAY_CLUSTERS.
    """
    odd = [b"", b"\xff\xfe no OTLP", b"spillway.cluster=east", b"x" * 2_000_000]
    with admit() as job:
        for cluster, partition in (("stranger", 1), ("west", 1), ("east", 3)):
            headers = {names.KAFKA_HEADER_CLUSTER: b"east", names.KAFKA_HEADER_ADMITTED: b"999999"}
            broker.send(kafka, f"{SPANS}.{cluster}", [*odd, b"last"], partition, headers)
        broker.send(kafka, f"{METRICS}.west", [b"cpu"], 2)
        arrives(kafka, job, "west", 1, b"last")
        arrives(kafka, job, "east", 3, b"last")
        arrives(kafka, job, "west", 2, b"cpu", METRICS)
        found = admitted(kafka)
        assert found["west", 1] == found["east", 3] == [(value, n) for n, value in enumerate([*odd, b"last"])]
        assert not [place for place in found if place[0] == "stranger"]
        metrics = job.metrics()
        assert metrics["admitted_messages_total", "west"] == 6
        assert metrics["admitted_bytes_total", "east"] == sum(map(len, odd)) + 4
        assert metrics["state", "topics_not_admitted"] == 4, "south's and north's"
        assert ("consumer_lag_seconds", "2", f"{SPANS}.east") in metrics


def test_nothing_is_lost_or_twice_when_workers_are_killed_under_load(kafka: str, admit: Callable):
    """Workers are killed with SIGKILL at any moment, and another worker runs beside one of them.

    A last worker starts long after the last commit. It finds in the topic of all clusters what was
    admitted after that commit, and does not write it again.
    """
    with Load(kafka, ("west", "east")) as load:
        with admit() as first:
            time.sleep(1.0)
            first.process.send_signal(signal.SIGKILL)
            first.process.wait()
        with admit() as second:
            eventually(lambda: values(kafka, "west", 0), "the second one admits", seen=second.tail)
            with admit():
                time.sleep(1.0)
                second.process.send_signal(signal.SIGKILL)
                second.process.wait()
                time.sleep(1.0)
    with admit() as last:
        for place, sent in load.sent.items():
            eventually(lambda p=place, s=sent: s[-1] in values(kafka, *p), f"{place} settled", seen=last.tail)
    found = admitted(kafka)
    for place, sent in load.sent.items():
        assert [value for value, _ in found[place] if value in set(sent)] == sent, place


def test_what_is_wrong_with_a_clusters_topics_holds_up_that_cluster_alone(kafka: str, admit: Callable):
    """West's messages arrive all the time, and the process never restarts.

    Meanwhile east has a partition that the topic of all clusters lacks, south's topics are created,
    north's topic has another number of partitions, and east's metrics topic is deleted. Messages
    that had to wait arrive as soon as they can.
    """
    with admit() as job:
        broker.create(kafka, {f"{SPANS}.south": PARTITIONS, f"{SPANS}.north": 2})
        broker.send(kafka, f"{SPANS}.south", [b"from the south"], 3)
        broker.send(kafka, f"{SPANS}.north", [b"from the north"], 1)
        broker.expand(kafka, f"{SPANS}.east", PARTITIONS + 1)
        broker.send(kafka, f"{SPANS}.east", [b"beyond"] * 500, PARTITIONS)
        arrives(kafka, job, "south", 3, b"from the south")
        broker.send(kafka, f"{SPANS}.west", [b"during"], 0)
        arrives(kafka, job, "west", 0, b"during")
        broker.delete(kafka, [f"{METRICS}.east"])
        broker.send(kafka, f"{SPANS}.east", [b"also during"], 0)
        arrives(kafka, job, "east", 0, b"also during")
        assert not values(kafka, "north", 1) and "2 partitions" in job.log.read_text()
        broker.expand(kafka, SPANS, PARTITIONS + 1)
        eventually(lambda: len(values(kafka, "east", PARTITIONS)) == 500, "what waited", seen=job.tail)
        assert "starting afresh" not in job.log.read_text()
        assert job.process.poll() is None
