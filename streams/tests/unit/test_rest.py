"""Columns, CPU points, settings."""

import numpy as np
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from spillway_runtime.settings import load
from spillway_streams.batches import columns
from spillway_streams.load import cpu
from spillway_streams.load.attributes import PayloadError
from spillway_streams.process import config
from spillway_streams.process.counters import Counters


def _edges(rows: list[tuple]) -> columns.Columns:
    """Calls from a to b between two clusters: (second, network us, adjusted count)."""
    built = [
        (s * 1_000_000, "t", f"{i}", "c1", "a", "a GET /", "c2", "b", "b GET /", 9, n, 10, 20, 200, False, w, 0, 0, 1)
        for i, (s, n, w) in enumerate(rows)
    ]  # fmt: skip
    return columns.from_rows(columns.EDGES, built)


def _calls(rows: list[tuple]) -> columns.Columns:
    """Rows: (second, class, source service, failed, adjusted count)"""
    built = [
        (s * 1_000_000, "t", f"{i}", "c1", c.split()[0], c, "", source, 8000, 8000, 1, 1.0, 1, 1, 200, bad, w, 0, 0.0, 0)
        for i, (s, c, source, bad, w) in enumerate(rows)
    ]  # fmt: skip
    return columns.from_rows(columns.CALLS, built)


def test_batches_survive_arrow_and_strangers_are_refused():
    """Batches are read as written, with absent values. Another schema or no Arrow is an error."""
    edges = _edges([(1, 5, 1.0), (2, -1, 2.5)])
    again = columns.from_ipc(columns.EDGES, columns.to_ipc(columns.EDGES, edges))
    assert all(again[name].tolist() == edges[name].tolist() for name in columns.EDGES)
    assert columns.to_clickhouse(columns.EDGES, edges)[list(columns.EDGES).index("network_us")] == [5, None]
    with pytest.raises(columns.ColumnsError, match="column cluster: there 0 times"):
        columns.from_ipc(columns.CALLS, columns.to_ipc(columns.EDGES, edges))
    with pytest.raises(columns.ColumnsError, match="not an Arrow IPC stream"):
        columns.from_ipc(columns.CALLS, b"\xff\xff\xff\xff")
    empty = columns.from_rows(columns.CALLS, [])
    assert columns.length(columns.from_ipc(columns.CALLS, columns.to_ipc(columns.CALLS, empty))) == 0


def test_cpu_points_are_checked():
    """A share of the limit per pod and second. Other metrics are skipped, absurd values counted."""
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    for key, value in (("service.name", "s"), ("spillway.cluster", "c1"), ("k8s.pod.name", "p")):
        resource.resource.attributes.add(key=key).value.string_value = value
    scope = resource.scope_metrics.add()
    scope.metrics.add(name="other").gauge.data_points.add(as_double=1, time_unix_nano=10**18)
    gauge = scope.metrics.add(name="k8s.container.cpu_limit_utilization").gauge
    for value, at in (
        (0.5, 1_700_000_000),
        (1.7, 1_700_000_001),
        (-1.0, 1_700_000_002),
        (0.5, 3),
        (0.5, 2**32),
    ):
        gauge.data_points.add(as_double=value, time_unix_nano=at * 10**9)
    counters = Counters()
    payload = request.SerializeToString()
    points = cpu.decode(payload, counters)
    assert {p.cluster for p in points} == {"c1"}
    of_west = Counters()
    assert {p.cluster for p in cpu.decode(payload, of_west, "west")} == {"west"}
    assert of_west["claims_overridden: west"] == 5
    assert [(p.at, p.utilisation) for p in points] == [(1_700_000_000, 0.5), (1_700_000_001, 1.0)]
    assert sum(counters.snapshot().values()) == 3
    with pytest.raises(PayloadError):
        cpu.decode(b"\xff", counters)
    table = cpu.CpuTable(100)
    table.add(points)
    table.add([points[0]._replace(pod="q", utilisation=0.7)])
    assert table.recent("s", "c1", 1_700_000_000, 1_700_000_001) == pytest.approx(0.6)
    assert table.recent("s", "c2", 1_700_000_000, 1_700_000_009) is None


def test_services_that_are_gone_make_room_in_the_memory_of_cpu():
    """The service whose last point is the oldest is dropped, so names do not fill the memory."""
    table, at = cpu.CpuTable(100, max_keys=2), 1_700_000_000
    for service in ("a", "b", "a", "c"):
        table.add([cpu.Point(at, "c1", service, "p", 0.5)])
    assert [table.recent(service, "c1", at, at + 1) for service in "abc"] == [0.5, None, 0.5]


def test_wrong_settings_end_with_64_and_name_every_key(monkeypatch, capsys):
    """Identity has no default. Each wrong variable gets a line."""
    for name in ("KAFKA", "CLICKHOUSE_URL", "REDIS_URL", "STATE_DIR", "HEALTH_LISTEN"):
        monkeypatch.delenv(f"SPILLWAY_{name}", raising=False)
    monkeypatch.setenv("SPILLWAY_KAFKA", "nowhere")
    monkeypatch.setenv("SPILLWAY_STREAMS_FIT_PERIOD_S", "-1")
    with pytest.raises(SystemExit) as exit_:
        load(config.CurvesSettings)
    assert exit_.value.code == 64
    lines = capsys.readouterr().err
    for name in (
        "SPILLWAY_KAFKA",
        "SPILLWAY_CLICKHOUSE_URL",
        "SPILLWAY_REDIS_URL",
        "SPILLWAY_STREAMS_FIT_PERIOD_S",
    ):
        assert f"{name}: " in lines


def test_unsorted_columns_are_sorted_by_the_first_name_first():
    """Rows with equal times are sorted by the next column."""
    batch = _calls(
        [(2, "a GET /", "", False, 1.0), (1, "b GET /", "", False, 1.0), (1, "a GET /", "", False, 1.0)]
    )
    found = columns.sort(batch, "started_at", "class")
    assert found["class"].tolist() == ["a GET /", "b GET /", "a GET /"]
    assert np.all(np.diff(found["started_at"]) >= 0)
