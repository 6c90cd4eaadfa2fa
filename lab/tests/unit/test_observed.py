"""What the simulated boards show, against numbers made by hand."""

from pathlib import Path

import numpy as np
import pytest
from spillway_lab.scenario import scenario as scenarios
from spillway_lab.simulator import observed
from spillway_lab.simulator.engine import Counts, Ended
from spillway_lab.simulator.indices import Indices
from spillway_lab.simulator.observed import Boards, Period
from spillway_lab.simulator.world import World

INDEX = Indices(scenarios.load(Path(__file__).parents[2] / "scenarios/two-clusters.yaml"))
GATEWAY, BACKEND = "gateway GET /items/{id}", "backend GET /items/{id}"
WEST, EAST = 0, 1


def _period(
    seconds: float = 1.0,
    users: float = 0.0,
    east: float = 0.0,
    own_ms: float = 0.0,
    failed: float = 0.0,
    latencies: tuple[float, ...] = (),
    delay_ms: float = 0.0,
    rtt_ms: float = 25.0,
) -> Period:
    """`users` enter in west, and `east` calls of west's frontend go to the backend in east.

    Each of these takes `own_ms` without the delay. A latency below 0 is a failed request.
    """
    world = World(INDEX)
    world.delay_ms["backend", "east"] = delay_ms
    world.rtt_ms[WEST, EAST] = rtt_ms
    places = len(INDEX.classes), 2
    arrived, served, refused, own_s = (np.zeros(places) for _ in range(4))
    arrived[INDEX.classes.index(GATEWAY), WEST] = users
    backend = INDEX.classes.index(BACKEND), EAST
    arrived[backend], served[backend], refused[backend] = east, east - failed, failed
    own_s[backend] = (east - failed) * own_ms / 1000
    calls = np.zeros((len(INDEX.routes), 2, 2))
    calls[INDEX.routes.index(("frontend", BACKEND)), WEST, EAST] = east
    found = np.array(latencies)
    zeros = np.zeros(len(found), np.uint8)
    return observed.period(
        world,
        Counts(seconds, arrived, served, refused, own_s, np.zeros(places), calls, np.zeros((2, 2))),
        Ended(np.zeros(len(found)), abs(found), found >= 0, zeros + WEST, zeros),
    )


def test_a_board_has_rates_and_times_of_one_period():
    """40 of 50 calls are served in 30 ms and answered 150 ms later. 2 of 3 users are served."""
    seen = _period(2.0, users=6, east=50, own_ms=30, failed=10, latencies=(100, 200, -9000), delay_ms=150)
    found = Boards(INDEX).add(seen, 1000.0)
    load = found["load"]["east"][BACKEND]
    assert load == {
        "at": 1000.0, "rps": 25.0, "failed_share": pytest.approx(0.2), "duration_ms": pytest.approx(180),
        "exclusive_ms": pytest.approx(180), "in_flight": 0.0, "cpu": None,
    }  # fmt: skip
    demand = {"at": 1000.0, "rps": 3.0, "failed_share": pytest.approx(1 / 3), "duration_ms": 150.0}
    assert found["demand"] == {"west": {GATEWAY: demand}, "east": {}}
    assert found["network"] == {"west>east": {"at": 1000.0, "mean_ms": 25.0, "samples": 50}}
    assert BACKEND not in found["load"]["west"]


def test_a_board_covers_the_last_five_seconds_and_weighs_by_calls():
    """10 calls a second of 20 ms, then one second with 50 calls of 120 ms: 5 s have 90 calls."""
    boards = Boards(INDEX)
    for second in range(10):
        boards.add(_period(east=10, own_ms=20), second)
    entry = boards.add(_period(east=50, own_ms=120), 10.0)["load"]["east"][BACKEND]
    assert entry["rps"] == pytest.approx(18)
    assert entry["exclusive_ms"] == pytest.approx((40 * 20 + 50 * 120) / 90)


def test_a_longer_period_is_a_board_of_its_own():
    """Baselines look every 10 s. What was before does not count."""
    boards = Boards(INDEX)
    boards.add(_period(10.0, users=1000), 10.0)
    assert boards.add(_period(10.0, users=50), 20.0)["demand"]["west"][GATEWAY]["rps"] == 5.0


def test_network_times_cover_half_a_minute_and_are_remembered():
    """10 of 30 s have a delay of 150 ms more. Without calls, the pair keeps its last time."""
    boards = Boards(INDEX)
    for second in range(40):
        found = boards.add(_period(east=4, rtt_ms=175 if second >= 30 else 25), second)
    assert found["network"]["west>east"] == {"at": 39, "mean_ms": pytest.approx(75), "samples": 120}
    for second in range(40, 80):
        found = boards.add(_period(), second)
    assert found["network"] == {"west>east": {"at": 68, "mean_ms": 175.0, "samples": 4}}
    assert found["load"] == {"west": {}, "east": {}}
