"""What callers saw of each destination, from batches of edges."""

import numpy as np
import pytest
from spillway_contracts.hot_state import RouteEntry
from spillway_streams.batches import columns
from spillway_streams.graph import outcomes
from spillway_streams.graph.outcomes import Outcomes
from spillway_streams.process.counters import Counters

ROUTE = ("b GET /", "a", "c2")


def edges(rows: list[tuple], source: str = "a") -> columns.Columns:
    """Calls from a in c1 to b in c2: (second of the start, duration ms, failed, adjusted count)."""
    return columns.from_rows(columns.EDGES, [
        (int(s * 1_000_000), "t", f"{i}", "c1", source, "a GET /", "c2", "b", "b GET /", int(ms * 1000), -1, 10, 20,
         500 if bad else 200, bad, w, 0, 0, 1)
        for i, (s, ms, bad, w) in enumerate(rows)
    ])  # fmt: skip


def board(*batches: columns.Columns, end: int = 20) -> outcomes.Board:
    found = Outcomes(60, 1000, Counters())
    for batch in batches:
        found.add(outcomes.parts(batch))
    return found.board(end)


def test_a_window_counts_calls_by_their_end_and_adjusts_for_sampling():
    """Of four calls, one ends before the window and one after it. The two others stand for five."""
    rows = [(9.0, 500, False, 9.0), (9.0, 2000, False, 2.0), (15.0, 100, True, 3.0), (19.5, 900, False, 9.0)]
    entry = board(edges(rows))["c1"][ROUTE]
    assert entry.at == 20.0
    assert entry.rps == pytest.approx(5.0 / 10)
    assert entry.success_rate == pytest.approx(2 / 5)
    assert entry.in_flight == pytest.approx((2 * 2.0 + 3 * 0.1) / 10)  # Little's law
    assert entry.p50_ms == pytest.approx(2000, rel=0.02)


def test_quantiles_are_of_calls_that_did_not_fail():
    """One in a hundred is slow. Failed calls, however fast or slow, are not among them."""
    rows = [(12.0, 10, False, 1.0)] * 98 + [(12.0, 1000, False, 1.0)] * 2 + [(12.0, 1, True, 1.0)] * 50
    entry = board(edges(rows))["c1"][ROUTE]
    assert entry.p50_ms == pytest.approx(10, rel=0.02)
    assert entry.p99_ms == pytest.approx(1000, rel=0.02)


def test_where_every_call_failed_latency_is_unknown():
    entry = board(edges([(12.0, 10, True, 1.0)]))["c1"][ROUTE]
    assert (entry.success_rate, entry.p50_ms, entry.p99_ms) == (0.0, None, None)


def test_a_route_without_calls_in_the_window_has_no_entry():
    assert board(edges([(2.0, 10, False, 1.0)])) == {}
    assert board(edges([])) == {}


def test_a_call_of_an_unknown_caller_is_not_counted():
    assert board(edges([(12.0, 10, False, 1.0)], source="")) == {}


def test_batches_add_up_in_any_order():
    one, two = edges([(12.0, 10, False, 1.0)] * 3), edges([(14.0, 30, False, 2.0), (11.0, 5, True, 1.0)])
    assert board(one, two) == board(two, one)


def test_fields_of_a_route_come_back():
    """Class ids have spaces, so parts are joined by tabs, with the callee first."""
    field = RouteEntry.field(*ROUTE)
    assert RouteEntry.route(field) == ROUTE and field.partition(" ")[0] == "b"
    entry = RouteEntry(1.0, 2.0, 1.0, None, None, np.float64(0.5).item())
    assert RouteEntry.from_json(entry.to_json()) == entry
