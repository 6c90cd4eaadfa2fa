"""Boards: calls that just ended, counted once, by the owner of their partition."""

import numpy as np
import pytest
from spillway_streams.batches import columns
from spillway_streams.boards import boards
from spillway_streams.boards.boards import HotTable, Window
from spillway_streams.clients import hot
from spillway_streams.load.cpu import CpuTable, Point
from spillway_streams.process.counters import Counters

T0 = 1_700_000_000
A, B = "a GET /", "b GET /"


def _calls(rows: list[tuple]) -> columns.Columns:
    """Rows: (end in s since T0, class, source service, failed, adjusted count, duration in ms)"""
    return columns.from_rows(columns.CALLS, [
        (
            T0 * 1_000_000 + int(end * 1e6) - ms * 1000, "t", f"{i}", "c1", c[0], c, "", source, ms * 1000, 1000, 4, 1.0,
            1, 1, 200, bad, w, 0, 0.0, 0,
        )
        for i, (end, c, source, bad, w, ms) in enumerate(rows)
    ])  # fmt: skip


def _hot(
    rows: list[tuple], window: Window, taken: float = T0 + 100.0, counters: Counters | None = None
) -> HotTable:
    table = HotTable(window, 100, counters or Counters())
    table.add(boards.arrivals_of(_calls(rows)), taken)
    return table


def test_a_rate_counts_ends_of_settled_seconds():
    """A call of 30 s counts when it ends.

    The rate covers whole seconds that are at least a second old. Means include the running second.
    Sampling is corrected. Calls made by other services of the mesh are not demand.
    """
    rows = [(s + 0.5, A, "", False, 2.0, 30_000) for s in range(10)]
    rows += [(9.9, A, "", True, 2.0, 1), (9.95, B, "a", False, 2.0, 8)]
    table = _hot(rows, Window(5, 1.0))
    at = table.times.at("c1")
    assert at == pytest.approx(T0 + 9.95)
    demand = boards.demand_board(table, {"c1": at})
    assert list(demand["c1"]) == [A]
    entry = demand["c1"][A]
    assert (entry.at, entry.rps, entry.failed_share) == (at, 2.0, pytest.approx(1 / 7))
    assert entry.duration_ms == pytest.approx(30_000)
    load = boards.load_board(table, {("c1", B): 3.0}, CpuTable(100), {"c1": at})["c1"]
    assert load[B].exclusive_ms == 3.0 and load[B].rps == 0.0 and load[B].duration_ms == 8.0
    assert load[A].exclusive_ms == 30_000 and load[A].in_flight == 4.0 and load[A].cpu is None


def test_a_clock_ahead_does_not_age_the_others():
    """Calls that end after the broker took them count in the running second, and are counted."""
    counters = Counters()
    rows = [(s + 0.5, A, "", False, 1.0, 1) for s in range(10)] + [(500.0, B, "", False, 1.0, 1)]
    table = _hot(rows, Window(5, 0.0), T0 + 10.0, counters)
    at = table.times.at("c1")
    assert at == T0 + 10.0 and counters["arrivals_ahead_of_the_broker"] == 1
    demand = boards.demand_board(table, {"c1": at})["c1"]
    assert demand[A].rps == 1.0 and B in demand


def test_an_end_that_cannot_be_is_counted_and_stops_nothing():
    """Negative seconds spoil neither the board nor the other rows of their message."""
    counters = Counters()
    rows = boards.arrivals_of(_calls([(9.5, A, "", False, 1.0, 1), (9.6, B, "", False, 1.0, 1)]))
    rows["at"][1] = -(2**63)
    table = HotTable(Window(), 100, counters)
    table.add(rows, T0 + 10.0)
    assert counters["absurd_arrivals"] == 1 and list(
        boards.load_board(table, {}, CpuTable(1), {"c1": T0 + 9.6})["c1"]
    ) == [A]


def test_silent_classes_leave_the_board_and_cpu_comes_from_its_window():
    """A class without calls for a whole window has no entry."""
    table = _hot([(0.5, A, "", False, 1.0, 1), (9.5, B, "", False, 1.0, 1)], Window(5, 1.0))
    cpu = CpuTable(100)
    cpu.add([Point(T0 + 8, "c1", "b", "pod", 0.25)])
    board = boards.load_board(table, {}, cpu, {"c1": T0 + 9.5})
    assert list(board["c1"]) == [B] and board["c1"][B].cpu == 0.25


def test_order_and_splitting_of_arrivals_change_no_board():
    """The same calls in any order, one by one or all together."""
    random = np.random.default_rng(4)
    rows = [(float(e), (A, B)[i % 2], "", i % 5 == 0, 1.5, i) for i, e in enumerate(random.uniform(0, 9, 60))]
    together, separate = _hot(rows, Window()), HotTable(Window(), 100, Counters())
    for i in random.permutation(len(rows)):
        separate.add(boards.arrivals_of(_calls([rows[i]])), T0 + 100.0)
    got, expected = (boards.demand_board(table, {"c1": T0 + 9.0})["c1"] for table in (separate, together))
    assert list(got) == list(expected) == [A, B]
    for name, entry in expected.items():
        assert got[name].rps == pytest.approx(entry.rps)
        assert got[name].duration_ms == pytest.approx(entry.duration_ms)


def test_fields_of_the_gone_are_stale():
    """Stale: unreadable, or further behind the newest field than boards live.

    A board that has only old times is not stale.
    """
    fields = {b"a": b'{"at": 100.0}', b"b": b'{"at": 84.9}', b"c": b'{"at": 85.0}', b"d": b"[", b"e": b"[1]"}
    assert set(hot.stale_fields(fields, 15.0)) == {b"b", b"d", b"e"}
    assert hot.stale_fields({b"a": b'{"at": 1.0}'}, 15.0) == {}
    assert hot.stale_fields({}, 15.0) == {}
