"""The jobs curves and graph with real Kafka, ClickHouse and Redis."""

import time

import numpy as np
import pytest
from clickhouse_driver import Client
from feeding import feed, partition_of, sequences
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from redis import Redis
from spillway_contracts import names
from spillway_contracts.hot_state import DemandEntry, LoadBoardEntry, NetworkEntry
from spillway_lab.testing.waiting import WAIT_S, eventually
from spillway_streams.batches import columns
from spillway_streams.boards import boards
from spillway_streams.graph import network

SOURCE = 21  # not a partition of otlp_spans, so that no other test has sent batches of this source
SERVICE, SECONDS, CAPACITY, A, B = "shop", 60, 200.0, 2.0, 5.0
BOARD_S = 5  # the default of SPILLWAY_STREAMS_BOARD_WINDOW_S
CLASS = f"{SERVICE} GET /carts/{{id}}"


def _rate(second: int) -> int:
    """Requests in this second of the data."""
    return 10 + 3 * second


def _calls(cluster: str, start: int) -> columns.Columns:
    """Returns entry calls whose rate rises over SECONDS.

    Their mean exclusive time is A / (1 - u) + B ms, where u is the rate divided by CAPACITY.
    """
    random = np.random.default_rng(7)
    rows = []
    for second in range(SECONDS):
        rate = _rate(second)
        for i in range(rate):
            exclusive_us = int(1000 * (random.exponential(A / (1 - rate / CAPACITY)) + B))
            at = (start + second) * 1_000_000 + i * 1_000_000 // rate
            span = f"{second:08x}{i:08x}"
            rows.append((
                at, f"{second:016x}{i:016x}", span, cluster, SERVICE, CLASS, "", "", exclusive_us + 1000,
                exclusive_us, 2, float(rate), 100, 2000, 200, False, 1.0, 1, float(rate), 2,
            ))  # fmt: skip
    return columns.from_rows(columns.CALLS, rows)


def _edges(calls: columns.Columns, cluster: str, there: str) -> columns.Columns:
    """Returns the edges of the calls.

    Every third request makes two calls to the cluster `there`, which is 30 ms away.
    """
    picked = np.arange(0, columns.length(calls), 3)
    rows = [
        (
            int(calls["started_at"][i]), calls["trace_id"][i], f"{calls['span_id'][i][:15]}{k}", cluster, SERVICE, CLASS,
            there, "stock", "stock GET /levels", 1000, 30_000, 10, 500, 200, False, 1.0, 1, 2, 1,
        )
        for i in picked
        for k in "ab"
    ]  # fmt: skip
    return columns.from_rows(columns.EDGES, rows)


def _cpu(cluster: str, start: int) -> bytes:
    """Returns an OTLP export with the CPU use of one pod per second, in proportion to the rate."""
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    for key, value in (("service.name", SERVICE), ("spillway.cluster", cluster), ("k8s.pod.name", "shop-0")):
        resource.resource.attributes.add(key=key).value.string_value = value
    metric = resource.scope_metrics.add().metrics.add(name=names.OTEL_METRIC_CPU_LIMIT_UTILIZATION)
    for second in range(SECONDS):
        point = metric.gauge.data_points.add(as_double=_rate(second) / CAPACITY)
        point.time_unix_nano = (start + second) * 1_000_000_000
    return request.SerializeToString()


def _messages(schema: columns.Schema, batch: columns.Columns, size: int = 500) -> list[bytes]:
    n = columns.length(batch)
    return [
        columns.to_ipc(schema, columns.take(batch, np.arange(i, min(i + size, n)))) for i in range(0, n, size)
    ]


@pytest.fixture
def give(kafka: str, clickhouse: Client):
    """Provides give(topic, source, payloads, name), which sends batches of one service.

    `source` is the partition of otlp_spans that they come from. They go to the partition of the
    service or pair `name`.
    """

    def _give(topic: str, source: int, payloads: list[bytes], name: str = SERVICE) -> None:
        feed(kafka, topic, partition_of(clickhouse, name), sequences(source, payloads))

    return _give


def _board(redis: Redis, key: str, kind: type, calls: columns.Columns):
    """Returns the board's entry for CLASS if it is current and has the true rate, else None.

    Current means as of the newest end of a call. The true rate counts calls by the second of their
    end, over BOARD_S seconds that end one second before the entry's time.
    """
    text = redis.hget(key, CLASS)
    entry = kind.from_json(text) if text else None
    ends = (calls["started_at"] + calls["duration_us"]) / 1e6
    if not entry or entry.at != pytest.approx(ends.max(), abs=1e-6):
        return None
    last = int(entry.at - 1)
    expected = np.count_nonzero((ends >= last - BOARD_S) & (ends < last)) / BOARD_S
    return entry if entry.rps == pytest.approx(expected) else None


def _latency(a: float, b: float) -> list[float]:
    """The curve's time in ms at a utilisation of 0.1, 0.5 and 0.8."""
    return [a / (1 - u) + b for u in (0.1, 0.5, 0.8)]


CURVE = """SELECT a_ms, b_ms, fitted_at FROM curves WHERE class = %(class)s AND phase IN ('retrain', 'shift')
    ORDER BY fitted_at DESC LIMIT 1"""
CPU_ROWS = "SELECT count() FROM cpu_1s FINAL WHERE cluster = %(c)s"
LOAD_ROWS = "SELECT sum(arrivals), uniqExact(at) FROM load_parts FINAL WHERE cluster = %(c)s"
BUCKETS = "SELECT sum(samples) > 3000 FROM buckets FINAL WHERE cluster = %(c)s"
CAPACITIES = """SELECT capacity_rps FROM capacities WHERE cluster = %(c)s AND source = 'cpu'
    ORDER BY measured_at DESC LIMIT 1"""


def test_a_known_curve_and_capacity_come_out_and_survive_a_restart(jobs, give, clickhouse, redis_url):
    """Calls lie on a known curve, and CPU is in proportion to load.

    The curve is found within 10 % and the capacity within 5 %. Load and CPU rows are complete, and
    the load board is correct. After a kill and a restart, the job fits the same curve from what
    ClickHouse holds. Calls that arrive a second time are not counted.
    """
    cluster, start = "curves-a", int(time.time()) - 3 * SECONDS
    calls = _calls(cluster, start)
    payloads = _messages(columns.CALLS, calls)
    give(names.KAFKA_TOPIC_OTLP_METRICS, SOURCE, [_cpu(cluster, start), b"\xff"])
    give(names.KAFKA_TOPIC_CALLS, SOURCE, [*payloads, b"no Arrow"])
    give(names.KAFKA_TOPIC_CALLS, SOURCE, payloads)
    give(names.KAFKA_TOPIC_ARRIVALS, SOURCE, _messages(columns.ARRIVALS, boards.arrivals_of(calls)))
    job = jobs("curves", SPILLWAY_STREAMS_FIT_PERIOD_S="1")
    redis = Redis.from_url(redis_url)
    key = names.REDIS_KEY_LOAD.format(cluster=cluster)
    entry = eventually(
        lambda: _board(redis, key, LoadBoardEntry, calls),
        "load board",
        seen=lambda: (job.state(), job.tail()),
    )
    assert entry.failed_share == 0 and entry.cpu == pytest.approx(_rate(SECONDS - 3) / CAPACITY, rel=0.1)

    def stored(sql: str) -> list[tuple]:
        return clickhouse.execute(sql, {"c": cluster})

    def curve() -> tuple | None:
        return next(iter(clickhouse.execute(CURVE, {"class": CLASS})), None)

    def curve_is_true() -> bool:
        return bool(found := curve()) and _latency(*found[:2]) == pytest.approx(_latency(A, B), rel=0.1)

    whole = [(len(calls["class"]), SECONDS)]
    eventually(
        lambda: stored(LOAD_ROWS) == whole,
        "load_parts",
        WAIT_S,
        lambda: (stored(LOAD_ROWS), job.state(), job.tail()),
    )
    eventually(lambda: stored(CPU_ROWS) == [(SECONDS,)], "cpu_1s")
    eventually(curve_is_true, "the curve", seen=curve)
    capacity = [(pytest.approx(CAPACITY, rel=0.05),)]
    eventually(lambda: stored(CAPACITIES) == capacity, "the capacity", seen=lambda: stored(CAPACITIES))
    eventually(lambda: stored(BUCKETS) == [(1,)], "buckets", seen=lambda: stored(BUCKETS))
    assert job.counters()["dead_letters: undecodable"] == 2

    job.process.kill()
    job.process.wait()
    a, b, before = curve()
    again = jobs("curves", SPILLWAY_STREAMS_FIT_PERIOD_S="1")
    eventually(lambda: again.counters().get("restored_seconds", 0) >= SECONDS, "restored seconds")
    eventually(lambda: curve()[2] > before, "a refit")
    assert _latency(*curve()[:2]) == pytest.approx(_latency(a, b), rel=0.05)


RATIOS = """SELECT calls_per_request, request_bytes, response_bytes, probability, success_rate FROM call_ratios
    WHERE source_class = %(class)s ORDER BY window_end DESC LIMIT 1"""
NETWORK = """SELECT p50_ms FROM network_times WHERE source_cluster = %(c)s ORDER BY window_end DESC LIMIT 1"""


def test_the_call_graph_and_the_demand_are_true(jobs, give, clickhouse, redis_url):
    """All values equal what was sent.

    They are calls per request, the probability of a call, bytes, network time, and demand at the
    entry.
    """
    cluster, there, start = "graph-a", "graph-b", int(time.time()) - 2 * SECONDS
    calls = _calls(cluster, start)
    edges = _edges(calls, cluster, there)
    give(names.KAFKA_TOPIC_EDGES, SOURCE + 1, _messages(columns.EDGES, edges))
    give(names.KAFKA_TOPIC_CALLS, SOURCE + 1, _messages(columns.CALLS, calls))
    pair = f"{cluster}>{there}"
    give(names.KAFKA_TOPIC_NETWORK, SOURCE + 1, _messages(columns.NETWORK, network.of_edges(edges)), pair)
    give(names.KAFKA_TOPIC_ARRIVALS, SOURCE + 1, _messages(columns.ARRIVALS, boards.arrivals_of(calls)))
    job = jobs("graph", SPILLWAY_STREAMS_GRAPH_PERIOD_S="1")
    redis = Redis.from_url(redis_url)
    key = names.REDIS_KEY_DEMAND.format(cluster=cluster)
    eventually(lambda: _board(redis, key, DemandEntry, calls), "demand", seen=job.counters)

    def network_ms() -> float | None:
        text = redis.hget(names.REDIS_KEY_NETWORK, pair)
        return NetworkEntry.from_json(text).mean_ms if text else None

    def ratio() -> list[tuple]:
        return clickhouse.execute(RATIOS, {"class": CLASS})

    def p50() -> list[tuple]:
        return clickhouse.execute(NETWORK, {"c": cluster})

    def stored() -> list[tuple]:
        edges_sql = "SELECT sum(calls) FROM edge_parts FINAL WHERE source_cluster = %(c)s"
        return clickhouse.execute(edges_sql, {"c": cluster})

    eventually(lambda: network_ms() == pytest.approx(30), "the network's time", seen=network_ms)
    sent = (pytest.approx(2 / 3, rel=0.02), 10, 500, pytest.approx(1 / 3, rel=0.02), 1)
    eventually(lambda: ratio() == [sent], "call ratios", seen=ratio)
    eventually(lambda: p50() == [(pytest.approx(30, rel=0.02),)], "the median", seen=p50)
    # The ratios may have been computed before all edges were read. Here all of them are stored.
    eventually(lambda: stored() == [(len(edges["class"]),)], "all edges", seen=stored)
    assert "edges_without_requests" not in job.counters()
