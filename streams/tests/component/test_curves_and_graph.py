"""curves and graph against real Kafka, ClickHouse and Redis."""

import time

import numpy as np
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from redis import Redis
from spillway_contracts import names
from spillway_contracts.hot_state import DemandEntry, LoadBoardEntry, NetworkEntry
from spillway_lab.testing.waiting import eventually
from spillway_streams import columns

SERVICE, SECONDS, CAPACITY, A, B = "shop", 60, 200.0, 2.0, 5.0
BOARD_S = 5  # SPILLWAY_BOARD_WINDOW unless set
CLASS = f"{SERVICE} GET /carts/{{id}}"


def _rate(second: int) -> int:
    """Requests in this second of the data."""
    return 10 + 3 * second


def _calls(cluster: str, start: int) -> columns.Columns:
    """Entry calls whose rate climbs over SECONDS, with exclusive times on the curve A / (1 - u) + B."""
    random = np.random.default_rng(7)
    rows = []
    for second in range(SECONDS):
        rate = _rate(second)
        for i in range(rate):
            own_us = int(1000 * (random.exponential(A / (1 - rate / CAPACITY)) + B))
            at = (start + second) * 1_000_000 + i * 1_000_000 // rate
            span = f"{second:08x}{i:08x}"
            rows.append((
                at, "7" * 32, span, cluster, SERVICE, CLASS, "", "", own_us + 1000, own_us, 2, float(rate),
                100, 2000, 200, False, 1.0,
            ))  # fmt: skip
    return columns.from_rows(columns.CALLS, rows)


def _edges(calls: columns.Columns, cluster: str, there: str) -> columns.Columns:
    """Two calls of every third request go to another cluster, 30 ms away."""
    picked = np.arange(0, columns.length(calls), 3)
    rows = [
        (
            int(calls["started_at"][i]), "7" * 32, f"{calls['span_id'][i][:15]}{k}", cluster, SERVICE, CLASS,
            there, "stock", "stock GET /levels", 1000, 30_000, 10, 500, 200, False, 1.0, 1,
        )
        for i in picked
        for k in "ab"
    ]  # fmt: skip
    return columns.from_rows(columns.EDGES, rows)


def _cpu(cluster: str, start: int) -> bytes:
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


def _board(redis: Redis, key: str, kind: type, start: int):
    """The board's entry of the data's last seconds, once it is what was sent; a board goes on as the clock does,
    so how many of its seconds lie in the data depends on when it is read."""
    text = redis.hget(key, CLASS)
    entry = kind.from_json(text) if text else None
    if not entry or entry.at < start + SECONDS - 4:
        return None
    sent = _sent_before(entry.at - start)
    return entry if sent and entry.rps == pytest.approx(sum(sent) / BOARD_S, rel=0.01) else None


def _sent_before(second: float) -> list[int]:
    return [_rate(s) for s in range(SECONDS) if second - BOARD_S <= s < second]


def _latency(a: float, b: float) -> list[float]:
    return [a / (1 - u) + b for u in (0.1, 0.5, 0.8)]


CURVE = """SELECT a_ms, b_ms, fitted_at FROM curves WHERE class = %(class)s AND phase IN ('retrain', 'shift')
    ORDER BY fitted_at DESC LIMIT 1"""
CPU_ROWS = "SELECT count() FROM cpu_1s FINAL WHERE cluster = %(c)s"
LOAD_ROWS = "SELECT sum(arrivals), count() FROM load_1s FINAL WHERE cluster = %(c)s"
BUCKETS = "SELECT sum(samples) > 3000 FROM buckets FINAL WHERE cluster = %(c)s"
CAPACITIES = """SELECT capacity_rps FROM capacities WHERE cluster = %(c)s AND source = 'cpu'
    ORDER BY measured_at DESC LIMIT 1"""


def test_a_known_curve_and_capacity_come_out_and_survive_a_restart(jobs, send, clickhouse, redis_url):
    """Calls on a known curve and CPU in proportion to load: the curve within 10 %, the capacity within 5 %, load
    and CPU rows complete, the load board true; killed and started again, the job fits the same from what
    ClickHouse holds."""
    cluster, start = "curves-a", int(time.time()) - 3 * SECONDS
    calls = _calls(cluster, start)
    send(names.KAFKA_TOPIC_OTLP_METRICS, [_cpu(cluster, start), b"\xff"])
    send(names.KAFKA_TOPIC_CALLS, [*_messages(columns.CALLS, calls), b"no Arrow"])
    job = jobs("curves", SPILLWAY_FIT_PERIOD="1")
    redis = Redis.from_url(redis_url)
    key = names.REDIS_KEY_LOAD.format(cluster=cluster)
    entry = eventually(lambda: _board(redis, key, LoadBoardEntry, start), "load board", seen=job.counters)
    sent = _sent_before(entry.at - start)
    assert entry.failed_share == 0 and entry.cpu == pytest.approx(np.mean(sent) / CAPACITY, rel=0.1)

    def stored(sql: str) -> list[tuple]:
        return clickhouse.execute(sql, {"c": cluster})

    def curve() -> tuple | None:
        return next(iter(clickhouse.execute(CURVE, {"class": CLASS})), None)

    def curve_is_true() -> bool:
        return bool(found := curve()) and _latency(*found[:2]) == pytest.approx(_latency(A, B), rel=0.1)

    eventually(lambda: stored(LOAD_ROWS) == [(len(calls["class"]), SECONDS)], "load_1s")
    eventually(lambda: stored(CPU_ROWS) == [(SECONDS,)], "cpu_1s")
    eventually(curve_is_true, "the curve", seen=curve)
    capacity = [(pytest.approx(CAPACITY, rel=0.05),)]
    eventually(lambda: stored(CAPACITIES) == capacity, "the capacity", seen=lambda: stored(CAPACITIES))
    eventually(lambda: stored(BUCKETS) == [(1,)], "buckets", seen=lambda: stored(BUCKETS))
    assert job.counters()["dead_letters: undecodable"] == 2

    job.process.kill()
    job.process.wait()
    a, b, before = curve()
    again = jobs("curves", SPILLWAY_FIT_PERIOD="1")
    eventually(lambda: again.counters().get("restored_seconds", 0) >= SECONDS, "restored seconds")
    eventually(lambda: curve()[2] > before, "a refit")
    assert _latency(*curve()[:2]) == pytest.approx(_latency(a, b), rel=0.05)


RATIOS = """SELECT calls_per_request, request_bytes, response_bytes FROM call_ratios
    WHERE source_class = %(class)s ORDER BY window_end DESC LIMIT 1"""


def test_the_call_graph_and_the_demand_are_true(jobs, send, clickhouse, redis_url):
    """Calls per request, bytes, network time and demand at the entry equal what was sent."""
    cluster, there, start = "graph-a", "graph-b", int(time.time()) - 2 * SECONDS
    calls = _calls(cluster, start)
    send(names.KAFKA_TOPIC_EDGES, _messages(columns.EDGES, _edges(calls, cluster, there)))
    send(names.KAFKA_TOPIC_CALLS, _messages(columns.CALLS, calls))
    job = jobs("graph", SPILLWAY_GRAPH_PERIOD="1")
    redis = Redis.from_url(redis_url)
    key = names.REDIS_KEY_DEMAND.format(cluster=cluster)
    eventually(lambda: _board(redis, key, DemandEntry, start), "demand", seen=job.counters)

    def network() -> float | None:
        text = redis.hget(names.REDIS_KEY_NETWORK, f"{cluster}>{there}")
        return NetworkEntry.from_json(text).mean_ms if text else None

    def ratio() -> list[tuple]:
        return clickhouse.execute(RATIOS, {"class": CLASS})

    eventually(lambda: network() == pytest.approx(30), "the network's time", seen=network)
    eventually(lambda: ratio() == [(pytest.approx(2 / 3, rel=0.02), 10, 500)], "call ratios", seen=ratio)
    assert "edges_without_requests" not in job.counters()
