"""The jobs curves and graph: killed, replayed, and joined by a second worker.

Every call is counted once, and every board is written by the worker that owns it.
"""

import time
from collections.abc import Callable

import broker
import numpy as np
import pytest
from clickhouse_driver import Client
from feeding import feed, partition_of, sequences
from redis import Redis
from spillway_contracts import names
from spillway_contracts.hot_state import DemandEntry, LoadBoardEntry
from spillway_lab.testing.waiting import STOP_S, eventually
from spillway_streams.batches import columns
from spillway_streams.boards import boards
from spillway_streams.graph import network

TOPICS = (names.KAFKA_TOPIC_CALLS, names.KAFKA_TOPIC_EDGES, names.KAFKA_TOPIC_NETWORK)
WAIT_S = 240


def _rows(cluster: str, service: str, batches: int) -> tuple[columns.Columns, columns.Columns]:
    """Returns calls of three classes and the one call that each of them makes.

    Shapes: 200 rows per batch, `batches` batches. Every tenth call and every twentieth edge failed.
    """
    random, start, n = np.random.default_rng(11), int(time.time()) - 100, 200 * batches
    calls, edges = [], []
    for i, us in enumerate(random.integers(1000, 90_000, n).tolist()):
        at, trace, class_id = start * 1_000_000 + i * 10_000, f"{i:032x}", f"{service} GET /{i % 3}"
        calls.append((
            at, trace, f"{i:016x}", cluster, service, class_id, "", "", us, us // 2, 3, 9.0, 100, 200, 200, i % 10 == 0,
            1.0, 2, 4.0, 2,
        ))  # fmt: skip
        edges.append((
            at, trace, f"{i:016x}", cluster, service, class_id, f"{cluster}-2", "stock", "stock GET /", us // 2, us // 4,
            10, 500, 200, i % 20 == 0, 1.0, 1, 2, 1,
        ))  # fmt: skip
    return columns.from_rows(columns.CALLS, calls), columns.from_rows(columns.EDGES, edges)


class World:
    """Batches of one service, and what must be stored after they have been processed."""

    def __init__(self, kafka: str, clickhouse: Client, cluster: str, source: int, batches: int = 60) -> None:
        self.cluster, self.service, self.batches = cluster, f"shop-{source}", batches
        self._kafka, self._clickhouse, self._source = kafka, clickhouse, source
        self.calls, self.edges = _rows(cluster, self.service, batches)
        pair = f"{cluster}>{cluster}-2"
        of_service = partition_of(clickhouse, self.service)
        self._partitions = dict(
            zip(TOPICS, (of_service, of_service, partition_of(clickhouse, pair)), strict=True)
        )

    def send(self, first: int, end: int) -> None:
        """Sends the batches first <= n < end of each topic.

        Each batch has the same content and sequence whenever it is sent.
        """
        edges = [self._batch(self.edges, n) for n in range(first, end)]
        payloads = {
            names.KAFKA_TOPIC_CALLS: [
                columns.to_ipc(columns.CALLS, self._batch(self.calls, n)) for n in range(first, end)
            ],
            names.KAFKA_TOPIC_EDGES: [columns.to_ipc(columns.EDGES, batch) for batch in edges],
            names.KAFKA_TOPIC_NETWORK: [columns.to_ipc(columns.NETWORK, network.of_edges(b)) for b in edges],
        }
        for topic, found in payloads.items():
            feed(self._kafka, topic, self._partitions[topic], sequences(self._source, found, first + 1))

    def end_now(self) -> None:
        """Sends the first 100 calls again, as arrivals that end now."""
        arrivals = boards.arrivals_of(columns.take(self.calls, np.arange(100)))
        now = time.time()
        arrivals["at"], arrivals["newest_us"] = np.full(100, int(now)), np.full(100, int(now * 1e6))
        payload = columns.to_ipc(columns.ARRIVALS, arrivals)
        feed(
            self._kafka,
            names.KAFKA_TOPIC_ARRIVALS,
            self._partitions[names.KAFKA_TOPIC_CALLS],
            sequences(self._source, [payload], 0),
        )

    @staticmethod
    def _batch(rows: columns.Columns, n: int) -> columns.Columns:
        return columns.take(rows, np.arange(200 * n, 200 * (n + 1)))

    def _sum(self, sql: str) -> tuple:
        return self._clickhouse.execute(sql, {"s": self._source})[0]

    def load(self) -> tuple:
        """The sums that curves has stored, in the order of `true_load`."""
        return self._sum(
            """SELECT sum(arrivals), sum(failed), sum(samples), round(sum(exclusive_ms), 3)
            FROM load_parts FINAL WHERE source = %(s)s"""
        )

    def true_load(self) -> tuple:
        """All calls, failed calls, good calls, and the good calls' sum of exclusive ms."""
        n, good = len(self.calls["failed"]), ~self.calls["failed"]
        exclusive_ms = self.calls["exclusive_us"][good].sum() / 1000
        return n, n - good.sum(), good.sum(), pytest.approx(exclusive_ms)

    def graph(self) -> tuple:
        """The sums that graph has stored, in the order of `true_graph`."""
        edges = "SELECT sum(calls), sum(failed), sum(callers) FROM edge_parts FINAL WHERE source = %(s)s"
        times = "SELECT sum(calls), sum(time_us) FROM network_parts FINAL WHERE source = %(s)s"
        return self._sum(edges) + self._sum(times)

    def true_graph(self) -> tuple:
        """Edges, failed edges, callers, edges with a network time, and their sum of network µs."""
        n = len(self.edges["failed"])
        return n, self.edges["failed"].sum(), n, n, self.edges["network_us"].sum()

    def stored(self, job: str) -> tuple:
        return self.load() if job == "curves" else self.graph()

    def truth(self, job: str) -> tuple:
        return self.true_load() if job == "curves" else self.true_graph()


@pytest.fixture
def world(kafka: str, clickhouse: Client):
    """Provides world(cluster, source), which creates a World."""
    return lambda cluster, source, **more: World(kafka, clickhouse, cluster, source, **more)


def _some(world: World, job: str) -> bool:
    return 0 < world.stored(job)[0]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("job", "source"), [("curves", 11), ("graph", 12)])
def test_a_killed_worker_and_a_replayed_topic_count_nothing_twice(jobs, world, kafka, job, source):
    """The sums stay exactly those of the spans that were sent.

    The worker is killed with SIGKILL while batches arrive. The writer repeats its newest batches,
    and another worker continues. Then every offset is set back to the beginning.
    """
    shop = world(f"killed-{job}", source)
    first = jobs(job, SPILLWAY_STREAMS_STORE_PERIOD_S="0.3")
    shop.send(0, 25)
    eventually(lambda: _some(shop, job), "the first parts", seen=first.tail)
    shop.send(25, 40)
    first.process.kill()
    first.process.wait()
    shop.send(30, shop.batches)
    second = jobs(job, SPILLWAY_STREAMS_STORE_PERIOD_S="0.3")
    eventually(
        lambda: shop.stored(job) == shop.truth(job),
        "every call",
        WAIT_S,
        lambda: (shop.stored(job), second.tail()),
    )

    second.process.terminate()
    second.process.wait(STOP_S)
    for topic in TOPICS:
        broker.rewind(kafka, f"spillway-{job}", topic)
    third = jobs(job, SPILLWAY_STREAMS_STORE_PERIOD_S="0.3")
    eventually(lambda: _repeats(third) >= shop.batches, "the topic read again", WAIT_S, third.counters)
    # Three times the period of inserts: enough time for anything counted twice to be stored.
    time.sleep(1.0)
    assert shop.stored(job) == shop.truth(job)


def _repeats(job) -> int:
    """Returns the number of batches that a worker has recognised as repeats."""
    counters = job.counters()
    repeated = (
        counters.get("repeated_calls", 0) // 200,
        *(v for k, v in counters.items() if k.startswith("repeated_b")),
    )
    return sum(repeated)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("job", "source"), [("curves", 13), ("graph", 14)])
def test_a_second_worker_shares_the_services_and_outlives_the_first(jobs, world, redis_url, job, source):
    """Two workers write one cluster's board, each the fields of its own services.

    All services are on the board. Then the first worker is killed and the second one takes over.
    Every call is stored once, and every board continues.
    """
    shops = [world(f"shared-{job}", source + 10 * n) for n in range(4)]
    first = jobs(job, SPILLWAY_STREAMS_STORE_PERIOD_S="0.3")
    for shop in shops:
        shop.send(0, 20)
    second = jobs(job, SPILLWAY_STREAMS_STORE_PERIOD_S="0.3")

    def second_takes_some() -> bool:
        for shop in shops:
            shop.end_now()
        return (
            second.state()["gauges"].get("partitions", 0) > 0
            and first.state()["gauges"].get("partitions", 0) > 0
        )

    eventually(
        second_takes_some, "partitions at both workers", WAIT_S, lambda: (first.state(), second.state())
    )
    for shop in shops:
        shop.send(20, 40)
    redis = Redis.from_url(redis_url)
    eventually(_on_boards(redis, shops, job), "all services on the boards", WAIT_S)
    first.process.kill()
    first.process.wait()
    for shop in shops:
        shop.send(35, shop.batches)
    for shop in shops:
        eventually(lambda: shop.stored(job) == shop.truth(job), "every call", WAIT_S, second.tail)  # noqa: B023
    redis.flushall()
    eventually(_on_boards(redis, shops, job), "the boards of one worker", WAIT_S)


def _on_boards(redis: Redis, shops: list[World], job: str) -> Callable[[], bool]:
    """Returns a check of whether every service's entry is newer than this call of `_on_boards`.

    Each check sends calls that end now.
    """
    key, kind = (
        (names.REDIS_KEY_LOAD, LoadBoardEntry) if job == "curves" else (names.REDIS_KEY_DEMAND, DemandEntry)
    )
    since = time.time()

    def look() -> bool:
        for shop in shops:
            shop.end_now()
        texts = [redis.hget(key.format(cluster=shop.cluster), f"{shop.service} GET /1") for shop in shops]
        return all(text and kind.from_json(text).at >= since for text in texts)

    return look
