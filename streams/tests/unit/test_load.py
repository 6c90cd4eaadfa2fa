"""The table of load per second, its bounds, and the sums of the call graph."""

import numpy as np
import pytest
from spillway_streams.batches import columns
from spillway_streams.batches.strings import Strings
from spillway_streams.graph import callgraph, network
from spillway_streams.graph.callgraph import CallGraph
from spillway_streams.load import load
from spillway_streams.load.load import Key, LoadTable, Sum
from spillway_streams.process.counters import Counters
from traffic_log import T0, calls


def _call(second: int, service: str = "s", **more: object) -> columns.Columns:
    values = {
        "started_at": (T0 + second) * 1_000_000, "trace_id": "t", "span_id": "x", "cluster": "c", "service": service,
        "class": f"{service} GET /", "source_cluster": "", "source_service": "", "duration_us": 9000,
        "exclusive_us": 4000, "in_flight": 3, "arrival_rate": 7.0, "request_bytes": 1, "response_bytes": 2,
        "status": 200, "failed": False, "adjusted_count": 2.0, "class_in_flight": 2, "class_arrival_rate": 5.0,
        "trace_spans": 1,
    }  # fmt: skip
    return columns.from_rows(columns.CALLS, [tuple((values | more)[name] for name in columns.CALLS)])


def test_sums_are_what_their_names_say():
    """Four calls: one good, one failed, one without stamps, one with a stamp of zero arrivals.

    All sums except the number of samples are adjusted for sampling.
    """
    table = LoadTable(100, Counters())
    table.add(_call(0))
    table.add(_call(0, failed=True, adjusted_count=3.0))
    nothing = {"arrival_rate": 0.0, "class_arrival_rate": 0.0, "adjusted_count": 1.0}
    table.add(_call(0, **nothing, in_flight=0, class_in_flight=0))
    table.add(_call(0, **nothing, in_flight=1, class_in_flight=1))
    [(key, series)] = table.series.items()
    assert key == Key("s", "s GET /", "c")
    sums = series.between(T0, T0 + 1)
    expected = {
        Sum.ARRIVALS: 7, Sum.FAILED: 3, Sum.SAMPLES: 3, Sum.OK: 4, Sum.EXCLUSIVE: 16,
        Sum.EXCLUSIVE_SQUARED: 64, Sum.STAMPED: 6, Sum.RATE: 35, Sum.CLASS_STAMPED: 6, Sum.CLASS_RATE: 25,
    }  # fmt: skip
    assert {what: float(sums[what]) for what in Sum} == pytest.approx(expected)
    assert table.take_dirty() == {key: {T0}} and table.take_dirty() == {}
    assert table.exclusive_ms(T0, T0 + 1) == {("c", "s GET /"): pytest.approx(4.0)}
    assert table.exclusive_ms(T0 + 1, T0 + 2) == {}


def test_parts_come_back_from_their_columns():
    """Columns stored in the order of LOAD_PARTS give the sums again."""
    parts = load.parts_of(calls(np.random.default_rng(1), 50))
    again = load.restored(parts.columns())
    direct, restored = LoadTable(100, Counters()), LoadTable(100, Counters())
    direct.add_parts(parts)
    restored.add_parts(again)
    assert len(load.LOAD_PARTS) == len(parts.columns())
    for key, series in direct.series.items():
        assert np.array_equal(series.all()[0], restored.series[key].all()[0])
        assert series.all()[1] == pytest.approx(restored.series[key].all()[1])


def test_memory_is_bounded_and_what_is_older_is_counted():
    """Only the newest seconds are kept. Calls from before them are counted as too old."""
    counters = Counters()
    table = LoadTable(50, counters)
    for second in range(80):
        table.add(_call(second))
    [series] = table.series.values()
    assert len(series.all()[0]) <= 55
    table.add(_call(0))
    assert counters["calls_older_than_memory"] == 2


def test_many_keys_share_the_seconds_and_the_silent_ones_make_room():
    """Beyond the number of keys, keys that are silent for longer than the memory are dropped.

    If there are none, new keys are counted and left out. Beyond the number of seconds, each key
    keeps fewer seconds, but at least a minute.
    """
    counters = Counters()
    table = LoadTable(100, counters, max_keys=2, max_seconds=140)
    table.add(_call(0, "a"))
    table.add(_call(90, "b"))
    table.add(_call(91, "c"))
    assert {key.service for key in table.series} == {"a", "b"} and counters["beyond_memory: load: keys"] == 2
    table.add(_call(120, "b"))
    table.add(_call(120, "c"))
    assert {key.service for key in table.series} == {"b", "c"}
    for second in range(200):
        table.add(_call(121 + second, "b"))
    assert max(len(series) for series in table.series.values()) <= 77
    assert counters["beyond_memory: load: seconds"] > 0


def _edges(rows: list[tuple]) -> columns.Columns:
    """Calls from a to b between clusters: (second, trace, network us, failed, adjusted count)."""
    return columns.from_rows(columns.EDGES, [
        (s * 1_000_000, t, f"{i}", "c1", "a", "a GET /", "c2", "b", "b GET /", 9, n, 10, 20, 200, bad, w, 0, 0, 1)
        for i, (s, t, n, bad, w) in enumerate(rows)
    ])  # fmt: skip


def test_the_call_graph_is_corrected_for_sampling():
    """Calls per request, bytes, share of requests that call, success, network time, in the window.

    A retry is another call of the same request. A call of an unknown caller is not an edge.
    """
    counters = Counters()
    graph = CallGraph(100, 10, counters)
    for second, weight in ((5, 2.0), (6, 2.0), (6, 2.0), (90, 9.0)):
        graph.requests.add(callgraph.request_parts(_call(second - T0, "a", adjusted_count=weight)))
    edges = _edges([(5, "t", 30_000, True, 2.0), (5, "t", 10_000, False, 2.0), (6, "u", -1, False, 2.0)])
    graph.edges.add(callgraph.edge_parts(edges))
    graph.network.add(callgraph.network_parts(network.of_edges(edges)))
    [row] = graph.call_ratios(0, 10, 10_000)
    assert row[1] == "0-10000" and row[6:10] == (pytest.approx(1.0), 10, 20, 3)
    assert row[10:12] == (pytest.approx(4 / 6), pytest.approx(2 / 3))
    [pair] = graph.network_times(0, 10, 10_000)
    assert pair[1:4] == ("c1", "c2", pytest.approx(20.0)) and pair[6] == 4
    for stranger in ("", "x GET /"):
        graph.edges.add(
            callgraph.edge_parts(_edges([(5, "t", 1, False, 1.0)]) | {"source_class": Strings.of([stranger])})
        )
    assert len(graph.call_ratios(0, 10, 0)) == 1 and counters["edges_without_requests"] == 1
