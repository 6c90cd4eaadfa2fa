"""Which of a request's calls its caller waits for, from the times of its calls."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spillway_streams.batches import columns
from spillway_streams.graph import callgraph, waits
from spillway_streams.graph.callgraph import CallGraph
from spillway_streams.process.counters import Counters

MS = 1000


def _edges(*rows: tuple[str, int, str, str, int, int]) -> columns.Columns:
    """Calls: (trace, number of the source's call in it, source class, class, start, end in ms)."""
    return columns.from_rows(columns.EDGES, [
        (start * MS, trace, f"{i}", "c1", source[0], source, "c2", target[0], target, (end - start) * MS, -1, 10, 20,
         200, False, 1.0, 0, 0, call)
        for i, (trace, call, source, target, start, end) in enumerate(rows)
    ])  # fmt: skip


def _found(edges: columns.Columns) -> tuple[list[float], list[float]]:
    waited, known = waits.waited(edges, callgraph._numbered(edges))
    return waited.tolist(), known.tolist()


def _of_one_request(*times: tuple[int, int]) -> list[float]:
    rows = [("t", 1, "a GET /", f"{'bcdefg'[i]} GET /", *time) for i, time in enumerate(times)]
    return _found(_edges(*rows))[0]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([(0, 10)], [1]),
        ([(0, 10), (10, 20), (25, 30)], [1, 1, 1]),  # one after the other
        ([(0, 10), (0, 30), (0, 20)], [0, 1, 0]),  # all at once
        ([(0, 10), (0, 30), (10, 40)], [1, 0, 1]),  # the third began when the first had ended
        ([(0, 10), (0, 20), (20, 30), (20, 25)], [0, 1, 1, 0]),  # two stages
        ([(0, 10), (9, 20)], [1, 1]),  # they touch
        ([(0, 10), (5, 20)], [0, 1]),
    ],
)
def test_the_path_is_walked_backwards(times, expected):
    assert _of_one_request(*times) == expected


def test_requests_of_other_traces_and_calls_are_apart():
    """Calls at the same time, each of another request: all are waited for."""
    two = _edges(("t", 1, "a GET /", "b GET /", 0, 10), ("u", 1, "a GET /", "b GET /", 0, 20))
    assert _found(two)[0] == [1, 1]
    classes = _edges(("t", 1, "a GET /", "b GET /", 0, 10), ("t", 3, "x GET /", "c GET /", 0, 20))
    assert _found(classes)[0] == [1, 1]


def test_requests_of_one_class_in_a_trace_are_apart_without_the_calls_to_them():
    """The calls to b are in another partition, if a runs elsewhere.

    Both requests of b wait for their call, although these calls overlap, and both make it.
    """
    edges = _edges(("t", 2, "b GET /", "c GET /", 5, 10), ("t", 4, "b GET /", "c GET /", 6, 12))
    assert _found(edges) == ([1, 1], [1, 1])
    assert callgraph._firsts(edges, callgraph._numbered(edges)).tolist() == [1, 1]


def test_nothing_is_known_of_calls_of_unknown_requests():
    """Among them the calls of a version that does not write which call made them."""
    waited, known = _found(_edges(
        ("t", 0, "b GET /", "c GET /", 5, 10), ("t", 0, "b GET /", "c GET /", 6, 12),
        ("t", 3, "b GET /", "c GET /", 5, 10), ("u", 1, "b GET /", "c GET /", 5, 10),
    ))  # fmt: skip
    assert known == [0, 0, 1, 1] and waited == [0, 0, 1, 1]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=1, max_size=6))
def test_what_is_waited_for_fills_the_time_that_calls_take_and_no_more(times):
    """Calls on the path hardly overlap, and the last to end is one of them."""
    spans = [(start, start + took) for start, took in times]
    path = sorted(span for span, w in zip(spans, _of_one_request(*spans), strict=True) if w)
    assert max(end for _, end in path) == max(end for _, end in spans)
    for (a, b), (c, d) in zip(path, path[1:], strict=False):
        assert b - c <= 0.1 * min(b - a, d - c) + 1e-9


def test_the_share_is_the_slope_of_the_mean_time_of_requests():
    """Two calls at once with exponential times of 10 and 20 ms: the first ends last in a third."""
    r = np.random.default_rng(1)
    rows = []
    for n in range(4000):
        first, second = r.exponential(10), r.exponential(20)
        rows += [(f"{n}", 1, "a GET /", "b GET /", 0, first), (f"{n}", 1, "a GET /", "c GET /", 0, second)]
    graph = CallGraph(100, 10, Counters())
    edges = _edges(*((*names, start, end) for *names, start, end in rows))
    calls = columns.from_rows(columns.CALLS, [_call(f"{n}") for n in range(4000)])
    graph.requests.add(callgraph.request_parts(calls))
    graph.edges.add(callgraph.edge_parts(edges))
    found = {row[4]: row[12] for row in graph.call_ratios(0, 10, 10_000)}
    assert found["b GET /"] == pytest.approx(1 / 3, abs=0.03)
    assert found["c GET /"] == pytest.approx(2 / 3, abs=0.03)


def _call(trace: str) -> tuple:
    return (0, trace, "s", "c1", "a", "a GET /", "", "", 9, 9, 0, 0.0, 1, 1, 200, False, 1.0, 0, 0.0, 1)


def test_no_calls_have_no_path():
    assert _found(columns.from_rows(columns.EDGES, [])) == ([], [])
