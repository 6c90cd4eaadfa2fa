"""Boards while clusters or sources are late, silent or missing: last known values, with times."""

import time
from collections.abc import Collection

import pytest
from spillway_contracts import names
from spillway_streams.batches import columns
from spillway_streams.batches.marks import Coverage, Mark, MarkError, from_headers
from spillway_streams.boards import boards, held
from spillway_streams.boards.boards import HotTable, Window
from spillway_streams.boards.held import Held
from spillway_streams.process.counters import Counters

T0 = 1_700_000_000
A = "a GET /"
RPS, SOURCES = 10, 2


def arrivals(ends: dict[str, int], n: int) -> columns.Columns:
    """n calls of each cluster that end within its second since T0."""
    rows = [(cluster, int((T0 + second + i / n) * 1e6)) for cluster, second in ends.items() for i in range(n)]
    return boards.arrivals_of(columns.from_rows(columns.CALLS, [
        (end - 1000, "t", str(i), cluster, "a", A, "", "", 1000, 1000, 4, 1.0, 1, 1, 200, False, 1.0, 0, 0.0, 0)
        for i, (cluster, end) in enumerate(rows)
    ]))  # fmt: skip


class World:
    """Two sources, each with half of every cluster's calls.

    Each sends a message per second, which is read a second later.
    """

    def __init__(self) -> None:
        self.counters = Counters()
        self.hot = HotTable(Window(5, 1.0), 100, self.counters)
        self.board: Held = Held()
        self.coverage = [Coverage() for _ in range(SOURCES)]

    def second(
        self, now: int, ends: dict[str, int], sources: tuple[int, ...] = (0, 1), lost: bool = False
    ) -> None:
        """At `now`, these sources are read; their messages have the calls of the seconds `ends`."""
        for source in sources:
            self.read(source, now, ends, lost)
        self.show(now)

    def read(self, source: int, now: int, ends: dict[str, int], lost: bool = False) -> None:
        coverage = self.coverage[source]
        coverage.took(now, T0 + now, True)
        batch = arrivals(ends, RPS // 2)
        coverage.saw(boards.newest_ends(batch))
        mark = coverage.mark(source, SOURCES, 0)
        if not lost:
            self.hot.add(batch, T0 + now, source, mark)

    def show(self, now: float, placed: Collection[str] = ()) -> None:
        self.board.update(
            self.hot,
            lambda times: boards.demand_board(self.hot, times),
            T0 + now,
            3600.0,
            lambda cluster: cluster in placed,
        )

    def of(self, cluster: str) -> tuple[float, float]:
        entry = self.board.entries[cluster][A]
        return entry.at - T0, entry.rps

    def unknown(self, now: float) -> held.Unknown:
        return held.unknown(self.board, self.hot, T0 + now, 10.0)


@pytest.fixture
def world() -> World:
    """Twenty quiet seconds of two clusters."""
    made = World()
    for now in range(1, 21):
        made.second(now, {"west": now - 1, "east": now - 1})
    assert made.of("west")[1] == made.of("east")[1] == RPS and made.unknown(20) == {}
    return made


def test_a_cluster_whose_spans_stop_keeps_its_last_values_and_becomes_unknown(world):
    """The collector of east is unavailable.

    The entries of east keep their values and times, and west continues. After ten seconds all of
    east is unknown. When spans arrive again, late ones first, the time of east advances again.
    """
    before = world.of("east")
    for now in range(21, 81):
        world.second(now, {"west": now - 1})
        assert world.of("east") == before and world.of("west") == (pytest.approx(now - 0.2), RPS)
    assert list(world.unknown(80)) == ["east"]
    [(field, entry)] = world.unknown(80)["east"].items()
    assert field == names.VALUE_WHOLE_CLUSTER and entry.at == T0 + before[0]
    assert entry.reason == "no spans of the cluster for 60 s"
    for now in range(81, 95):
        world.second(now, {"east": now - 61 + (now - 81) * 5, "west": now - 1})
    for now in range(95, 103):
        world.second(now, {"east": now - 1, "west": now - 1})
    assert world.of("east") == (pytest.approx(101.8), RPS) and world.unknown(102) == {}


def test_a_cluster_that_is_late_loses_nothing_and_says_of_when_it_is(world):
    """The collector's queue is 15 s long: the rate is correct, 15 s old, and unknown for now."""
    for now in range(21, 60):
        world.second(now, {"west": now - 1, "east": now - 1} if now < 22 else {"west": now - 1})
    slow = World()
    for now in range(1, 60):
        slow.second(now, {"west": now - 1, "east": max(now - 15, 0)})
        if now > 30:
            assert slow.of("east") == (pytest.approx(now - 14.2), RPS)
    assert (
        slow.unknown(59)["east"][names.VALUE_WHOLE_CLUSTER].reason == "spans of the cluster arrive 14 s late"
    )


def test_a_source_whose_worker_is_away_makes_no_dip(world):
    """One of two workers restarts. No demand is halved: all values keep their times.

    The worker that takes over repeats some arrivals and counts those in between. Boards continue
    where everything is known again.
    """
    for now in range(21, 41):
        world.second(now, {"west": now - 1, "east": now - 1}, sources=(0,))
        assert world.of("west") == (pytest.approx(20.8), RPS)  # one second of slack
    found = world.unknown(40)
    assert list(found["west"]) == ["a"] and "otlp_spans 1: not read for 20 s" in found["west"]["a"].reason
    world.coverage[1] = Coverage()
    for now in range(15, 42):
        world.read(1, now, {"west": now - 1, "east": now - 1})
        world.show(41)
        assert world.of("west")[1] == pytest.approx(RPS)
    world.second(41, {"west": 40, "east": 40}, sources=(0,))
    assert world.of("west") == (pytest.approx(40.8), RPS) and world.unknown(41) == {}
    assert world.counters["arrivals_repeated_of_a_source"] == 6


def test_messages_that_were_never_counted_are_waited_out(world):
    """If messages of a source were never counted, boards wait until the window is beyond them."""
    before = world.of("west")
    world.second(21, {"west": 20, "east": 20}, lost=True)
    for now in range(22, 30):
        world.second(now, {"west": now - 1, "east": now - 1})
        assert world.of("west")[1] == RPS
        assert world.of("west") == before or now - 0.2 - 6 > 21
    assert world.of("west") == (pytest.approx(28.8), RPS)
    assert world.counters["arrivals_missing_of_a_source"] == SOURCES


def test_a_source_with_nothing_to_say_is_no_source_that_is_away(world):
    """The worker of an idle partition reports it, and boards continue.

    A class that falls silent beside others has a rate of zero.
    """
    world.coverage[1].idle(21, T0 + 21.0)
    for now in range(21, 40):
        world.read(0, now, {"west": now - 1})
        world.coverage[1].idle(21, T0 + now)
        world.hot.add(arrivals({}, 1), T0 + now, 1, world.coverage[1].mark(1, SOURCES, 0))
        world.show(now)
    assert world.of("west") == (pytest.approx(38.8), RPS / 2) and "west" not in world.unknown(39)


def test_of_a_source_that_was_never_heard_of_nothing_is_known():
    """If a partition never had a worker, no board is made from the others."""
    world = World()
    for now in range(1, 30):
        world.second(now, {"west": now - 1}, sources=(0,))
    assert world.board.entries == {} and world.hot.times.behind()[1] == [1]


def test_batches_of_the_previous_version_have_no_marks_and_still_count():
    """Version 0.1.0 sends no marks: what arrived is known, and a silent source is left out."""
    hot, board = HotTable(Window(5, 1.0), 100, Counters()), Held()
    for now in range(1, 40):
        hot.add(arrivals({"west": now - 1}, RPS), T0 + now, 0)
        if now < 10:
            hot.add(arrivals({"east": now - 1}, RPS), T0 + now, 1)
        board.update(hot, lambda times: boards.demand_board(hot, times), T0 + now, 3600.0)
    assert board.entries["west"][A].rps == RPS and board.entries["west"][A].at == pytest.approx(T0 + 38.9)
    assert board.entries["east"][A].rps == RPS


def test_what_is_unknown_for_an_hour_is_forgotten(world):
    """A cluster that was shut down does not stay on the boards for ever."""
    world.show(20 + 3500)
    assert "east" in world.board.entries
    world.show(20 + 3700)
    assert world.board.entries == {} and world.unknown(3721) == {}


def test_what_is_unknown_and_still_has_envoys_is_not_forgotten(world):
    """For days, the heartbeat of east names its services, and west has none.

    East keeps its last values, and is unknown all the time.
    """
    before = world.of("east")
    for hours in (2, 100):
        world.show(20 + hours * 3600, {"east"})
        assert world.of("east") == before and list(world.board.entries) == ["east"]
        [entry] = world.unknown(20 + hours * 3600)["east"].values()
        assert entry.at == T0 + before[0]


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{}", b"[1,1,0,0,0,{}]", b"[0,1,5,4,0,{}]", b"[0,1,0,0,1e99,{}]", b'[0,1,0,0,0,{"a":"x"}]'],
)
def test_a_header_that_is_no_mark_is_an_error(text):
    with pytest.raises(MarkError, match="spillway-mark"):
        from_headers([(names.KAFKA_HEADER_MARK, text)])


def test_marks_survive_the_wire():
    mark = Mark(1, 4, 10, 12, time.time(), {"west": 1.5})
    assert from_headers([(names.KAFKA_HEADER_MARK, mark.to_bytes())]) == mark
    assert from_headers([]) is None and from_headers(None) is None
