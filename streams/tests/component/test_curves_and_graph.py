"""curves and graph against real Kafka, ClickHouse and Redis."""

import time

import numpy as np
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from redis import Redis
from spillway_contracts import names
from spillway_contracts.hot_state import DemandEntry, LoadBoardEntry, NetworkEntry
from spillway_streams import columns

SERVICE, SECONDS, CAPACITY, A, B = "shop", 60, 200.0, 2.0, 5.0
CLASS = f"{SERVICE} GET /carts/{{id}}"


def _calls(cluster: str, start: int) -> columns.Columns:
    """Entry calls whose rate climbs over SECONDS, with exclusive times on the curve A / (1 - u) + B."""
    random = np.random.default_rng(7)
    rows = []
    for second in range(SECONDS):
        rate = 10 + 3 * second
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
        point = metric.gauge.data_points.add(as_double=(10 + 3 * second) / CAPACITY)
        point.time_unix_nano = (start + second) * 1_000_000_000
    return request.SerializeToString()


def _messages(schema: columns.Schema, batch: columns.Columns, size: int = 500) -> list[bytes]:
    n = columns.length(batch)
    return [
        columns.to_ipc(schema, columns.take(batch, np.arange(i, min(i + size, n)))) for i in range(0, n, size)
    ]


def _newest(redis: Redis, key: str, kind: type, at: float):
    """The board's entry once it has come to this event time."""
    text = redis.hget(key, CLASS)
    entry = kind.from_json(text) if text else None
    return entry if entry and entry.at >= at else None


def test_a_known_curve_and_capacity_come_out_and_survive_a_restart(
    jobs, send, eventually, clickhouse, redis_url
):
    """Calls on a known curve and CPU in proportion to load: a, b and capacity within 10 %, load and
    CPU rows complete, the load board true; killed and started again, the job fits the same from
    what ClickHouse holds."""
    cluster, start = "curves-a", int(time.time()) - 3 * SECONDS
    calls = _calls(cluster, start)
    send(names.KAFKA_TOPIC_OTLP_METRICS, [_cpu(cluster, start), b"\xff"])
    send(names.KAFKA_TOPIC_CALLS, [*_messages(columns.CALLS, calls), b"no Arrow"])
    job = jobs("curves", SPILLWAY_FIT_PERIOD="1")
    redis = Redis.from_url(redis_url)
    key = names.REDIS_KEY_LOAD.format(cluster=cluster)
    entry = eventually(lambda: _newest(redis, key, LoadBoardEntry, start + SECONDS - 4), what="load board")
    assert entry.rps == pytest.approx(10 + 3 * (entry.at - 3 - start), rel=0.01)
    assert entry.failed_share == 0 and entry.cpu == pytest.approx(entry.rps / CAPACITY, rel=0.1)

    total = "SELECT sum(arrivals), count() FROM load_1s FINAL WHERE cluster = %(c)s"
    eventually(
        lambda: clickhouse.execute(total, {"c": cluster}) == [(len(calls["class"]), SECONDS)], what="load_1s"
    )
    [(points,)] = clickhouse.execute("SELECT count() FROM cpu_1s FINAL WHERE cluster = %(c)s", {"c": cluster})
    assert points == SECONDS

    newest = """SELECT a_ms, b_ms, phase FROM curves WHERE class = %(class)s AND phase != 'prior'
        ORDER BY fitted_at DESC LIMIT 1"""
    [(a, b, phase)] = eventually(lambda: clickhouse.execute(newest, {"class": CLASS}), what="a curve")
    assert phase in ("retrain", "shift")
    for u in (0.1, 0.5, 0.8):
        assert a / (1 - u) + b == pytest.approx(A / (1 - u) + B, rel=0.1)
    sql = (
        "SELECT capacity_rps, source FROM capacities WHERE cluster = %(c)s ORDER BY measured_at DESC LIMIT 1"
    )
    [(capacity, source)] = clickhouse.execute(sql, {"c": cluster})
    assert source == "cpu" and capacity == pytest.approx(CAPACITY, rel=0.05)
    assert clickhouse.execute(
        "SELECT sum(samples) > 3000 FROM buckets FINAL WHERE cluster = %(c)s", {"c": cluster}
    )
    assert job.counters()["dead_letters: undecodable"] == 2

    job.process.kill()
    job.process.wait()
    [(before,)] = clickhouse.execute("SELECT max(fitted_at) FROM curves")
    again = jobs("curves", SPILLWAY_FIT_PERIOD="1")
    eventually(lambda: again.counters().get("restored_seconds", 0) >= SECONDS, what="restored seconds")
    later = newest.replace("AND phase", "AND fitted_at > %(before)s AND phase")
    [(a2, b2, _)] = eventually(
        lambda: clickhouse.execute(later, {"class": CLASS, "before": before}), what="refit"
    )
    assert (a2, b2) == (pytest.approx(a, rel=0.05), pytest.approx(b, rel=0.05))


def test_the_call_graph_and_the_demand_are_true(jobs, send, eventually, clickhouse, redis_url):
    """Calls per request, bytes, network time and demand at the entry equal what was sent."""
    cluster, there, start = "graph-a", "graph-b", int(time.time()) - 2 * SECONDS
    calls = _calls(cluster, start)
    send(names.KAFKA_TOPIC_EDGES, _messages(columns.EDGES, _edges(calls, cluster, there)))
    send(names.KAFKA_TOPIC_CALLS, _messages(columns.CALLS, calls))
    job = jobs("graph", SPILLWAY_GRAPH_PERIOD="1")
    redis = Redis.from_url(redis_url)
    key = names.REDIS_KEY_DEMAND.format(cluster=cluster)
    entry = eventually(lambda: _newest(redis, key, DemandEntry, start + SECONDS - 4), what="demand")
    assert entry.rps == pytest.approx(10 + 3 * (entry.at - 3 - start), rel=0.01)
    network = eventually(lambda: redis.hget(names.REDIS_KEY_NETWORK, f"{cluster}>{there}"), what="network")
    assert NetworkEntry.from_json(network).mean_ms == pytest.approx(30)
    sql = """SELECT calls_per_request, request_bytes, response_bytes FROM call_ratios
        WHERE source_class = %(class)s ORDER BY window_end DESC LIMIT 1"""
    [(ratio, sent, got)] = eventually(lambda: clickhouse.execute(sql, {"class": CLASS}), what="call ratios")
    assert ratio == pytest.approx(2 / 3, rel=0.02) and (sent, got) == (10, 500)
    assert "edges_without_requests" not in job.counters()
