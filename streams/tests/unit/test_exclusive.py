"""Exclusive times, pairing and edges."""

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from spillway_streams.classify import Templates
from spillway_streams.counters import Counters
from spillway_streams.exclusive import calls_and_edges, covered_us
from spillway_streams.spans import Kind

SERVER, CLIENT, INTERNAL = Kind.SERVER, Kind.CLIENT, Kind.INTERNAL


def compute(*traces):
    counters = Counters()
    calls, edges = calls_and_edges([list(trace) for trace in traces], Templates(counters), counters)
    return calls, edges, counters


def exclusive(calls) -> dict[str, int]:
    return dict(zip(calls["span_id"], calls["exclusive_us"].tolist(), strict=True))


def test_overlapping_children_count_once_and_are_clipped_to_the_parent(span):
    """Exclusive time is the duration minus the union of child calls; one that outlives its parent
    (fire and forget) takes only the parent's time; one that ended before it takes none."""
    calls, _, _ = compute(
        [
            span("s", "", SERVER, 0, 100),
            span("1", "s", CLIENT, 10, 40),
            span("2", "s", CLIENT, 30, 60),
            span("3", "s", CLIENT, 90, 500),
            span("4", "s", CLIENT, -50, -10),
        ]
    )
    assert exclusive(calls) == {"s": 100 - 50 - 10}


def test_internal_spans_are_folded_into_their_server_span(span):
    """A client span below two internal spans still belongs to the server span above them, and the
    internal spans' own time is the server's."""
    calls, edges, _ = compute(
        [
            span("s", "", SERVER, 0, 100),
            span("i", "s", INTERNAL, 5, 95),
            span("j", "i", INTERNAL, 10, 90),
            span("c", "j", CLIENT, 20, 50),
            span("t", "c", SERVER, 25, 45, "b"),
        ]
    )
    assert exclusive(calls) == {"s": 70, "t": 20}
    assert edges["source_class"].tolist() == ["a GET /a"] and edges["class"].tolist() == ["b GET /b"]


def test_a_request_that_proxy_and_application_both_traced_is_one_call(span):
    """Nested server spans of one service are one call (the outer one), nested client spans one edge
    (the inner one)."""
    calls, edges, _ = compute(
        [
            span("p", "", SERVER, 0, 100),
            span("s", "p", SERVER, 1, 99),
            span("c", "s", CLIENT, 10, 60),
            span("q", "c", CLIENT, 12, 58),
            span("t", "q", SERVER, 20, 50, "b"),
        ]
    )
    assert exclusive(calls) == {"p": 54, "t": 30}
    assert edges["span_id"].tolist() == ["q"] and edges["network_us"].tolist() == [46 - 30]


def test_source_comes_from_attributes_then_from_the_caller_and_an_entry_has_none(span):
    """The stamped source wins over the parent's identity; no parent at all is an entry call; a
    parent that nobody sent is an entry call too, counted."""
    trace = [
        span("s", "", SERVER, 0, 100),
        span("c", "s", CLIENT, 10, 60),
        span("t", "c", SERVER, 20, 50, "b", cluster="c2"),
        span("d", "s", CLIENT, 61, 90),
        span("u", "d", SERVER, 62, 80, "b", source_cluster="c9", source_service="z"),
        span("v", "missing", SERVER, 62, 80, "b"),
    ]
    calls, _, counters = compute(trace)
    source = {
        s: (c, n)
        for s, c, n in zip(calls["span_id"], calls["source_cluster"], calls["source_service"], strict=True)
    }
    assert source == {"s": ("", ""), "t": ("c1", "a"), "u": ("c9", "z"), "v": ("", "")}
    assert counters["entry_with_unknown_parent"] == 1


def test_network_time_is_the_attribute_else_the_difference_else_absent(span):
    """The proxy's measurement wins; without it client minus server duration, never below zero; a
    client span whose server span is missing has none, and its destination cluster is the caller's."""
    _, edges, _ = compute(
        [
            span("s", "", SERVER, 0, 100),
            span("1", "s", CLIENT, 0, 10, network_us=7, destination_service="b"),
            span("2", "s", CLIENT, 20, 40),
            span("t", "2", SERVER, 22, 35, "b", cluster="c2"),
            span("3", "s", CLIENT, 50, 60, destination_service="b"),
        ]
    )
    found = dict(zip(edges["span_id"], edges["network_us"].tolist(), strict=True))
    assert found == {"1": 7, "2": 7, "3": -1}
    assert edges["destination_cluster"].tolist() == ["c1", "c2", "c1"]


def test_a_retried_call_has_no_network_time_but_what_was_measured(span):
    """Client minus server duration is no network after a retry, whether the client counted its tries or
    several servers got the call; what the proxy measured is taken as it is."""
    _, edges, _ = compute(
        [
            span("s", "", SERVER, 0, 100),
            span("1", "s", CLIENT, 0, 30, resends=1),
            span("t", "1", SERVER, 20, 28, "b"),
            span("2", "s", CLIENT, 40, 70),
            span("u", "2", SERVER, 41, 45, "b"),
            span("v", "2", SERVER, 60, 68, "b"),
            span("3", "s", CLIENT, 80, 90, network_us=5, resends=1),
            span("w", "3", SERVER, 82, 88, "b"),
            span("4", "s", CLIENT, 91, 99),
            span("x", "4", SERVER, 92, 98, "b"),
        ]
    )
    found = dict(zip(edges["span_id"], edges["network_us"].tolist(), strict=True))
    assert found == {"1": -1, "2": -1, "3": 5, "4": 2}


def test_duplicate_spans_and_cycles_of_parents_are_harmless(span):
    """A span delivered twice counts once; parents in a circle end the search instead of the job."""
    s = span("s", "", SERVER, 0, 100)
    calls, _, counters = compute([s, s, span("x", "y", INTERNAL, 0, 1), span("y", "x", INTERNAL, 0, 1)])
    assert len(calls["span_id"]) == 1 and counters["duplicate_span"] == 1
    compute([span("x", "y", INTERNAL, 0, 1), span("y", "x", INTERNAL, 0, 1), span("c", "x", CLIENT, 0, 1)])


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1000), st.integers(0, 1000)), max_size=40),
)
def test_covered_time_is_the_union(intervals):
    """The vectorised union equals counting every microsecond."""
    rows = [(p, min(a, b), max(a, b)) for p, a, b in intervals]
    p, a, b = (np.array([row[i] for row in rows], dtype=np.int64) for i in range(3))
    expected = [len({t for q, x, y in rows if q == k for t in range(x, y)}) for k in range(4)]
    assert covered_us(p, a, b, 4).tolist() == expected


@st.composite
def sequential_trees(draw):
    """(id, parent, depth, start, end) of server spans that call one after the other, own time between."""
    budget = draw(st.integers(1, 12))
    random_ = random.Random(draw(st.integers(0, 2**32)))
    rows: list[tuple[str, str, int, int, int]] = []

    def grow(parent: str, depth: int, start: int) -> int:
        nonlocal budget
        name, at, place = f"{len(rows)}", start + random_.randint(0, 50), len(rows)
        rows.append(())
        while budget > 0 and depth < 5 and random_.random() < 0.6:
            budget -= 1
            at = grow(name, depth + 1, at) + random_.randint(0, 50)
        rows[place] = (name, parent, depth, start, at)
        return at

    grow("", 0, 0)
    return rows


def _as_spans(span, rows):
    spans = []
    for name, parent, depth, start, end in rows:
        client = f"c{name}"
        if parent:
            spans.append(span(client, parent, CLIENT, start, end, f"s{depth - 1}"))
        spans.append(span(name, client if parent else "", SERVER, start, end, f"s{depth}"))
    return spans


@given(rows=sequential_trees(), seed=st.integers(0, 2**32))
@settings(max_examples=60)
def test_exclusive_times_of_a_sequential_tree_sum_to_the_root(span, rows, seed):
    """With no network time and no concurrency nothing is lost or counted twice; all are >= 0, and
    the order in which spans come changes nothing."""
    spans = _as_spans(span, rows)
    calls, edges, _ = compute(spans)
    assert (calls["exclusive_us"] >= 0).all()
    assert calls["exclusive_us"].sum() == rows[0][4] - rows[0][3]
    shuffled = list(spans)
    random.Random(seed).shuffle(shuffled)
    calls_again, edges_again, _ = compute(shuffled)
    assert all((calls[name] == calls_again[name]).all() for name in calls)
    assert all((edges[name] == edges_again[name]).all() for name in edges)
