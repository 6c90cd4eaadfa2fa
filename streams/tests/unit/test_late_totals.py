"""Counters that a worker or broker delayed, and that arrive together."""

import numpy as np
import pytest
from counted_service import PLACE, T0, A, World
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.mark.parametrize("away_s", [3, 12, 40])
@pytest.mark.parametrize("per_second", [5, 200])
def test_reports_that_come_at_once_make_no_load(away_s: int, per_second: int):
    """Rates are those of the seconds when reports were made, and current once all are read."""
    world, back = World(), 20 + away_s
    world.connected = 1
    world.run(0, 20, {"e1": {(A, True): 50}})
    for n, made in enumerate(range(20, back + 40)):
        at = max(made + 0.3, back + n / per_second)
        world.report("e1", at, {(A, True): 50 * (made + 1)}, made + 0.3 - at)
        counted = world.table.counted(*PLACE, T0 + at, 1)
        assert counted.total == pytest.approx(50, rel=0.02) and not counted.missing
        assert counted.at - T0 == pytest.approx(made + 0.3, abs=0.1)


def test_an_envoy_whose_reports_are_late_from_now_on_is_known_up_to_then():
    """A slow export is not silence: the rates are correct, but some seconds old."""
    world = World()
    world.connected = 1
    world.run(0, 20, {"e1": {(A, True): 50}})
    for now in range(20, 60):
        world.report("e1", now + 8.3, {(A, True): 50 * (now + 1)}, -8.0)
        counted = world.table.counted(*PLACE, T0 + now + 8.5, 1)
        assert counted.total == pytest.approx(50, rel=0.05) and not counted.missing
        assert now - 0.5 <= counted.at - T0 <= now + 2


@pytest.mark.parametrize("away_s", [20, 600, 2400])
@pytest.mark.parametrize("first_s", [0.3, 0.9])
def test_a_worker_that_begins_with_delayed_reports_counts_them_when_they_were_made(away_s, first_s):
    """Kafka comes back, and a new worker reads what waited in the collector's queue.

    All of that comes within half a second. Its requests are not those of that half second.
    """
    world = World()
    world.connected = 1
    for n, made in enumerate(range(100, 100 + away_s + 1)):
        at = 100 + away_s + first_s + 0.5 * n / away_s
        world.report("e1", at, {(A, True): 10 * made}, made - at)
    for made in range(100 + away_s + 1, 100 + away_s + 20):
        world.report("e1", made + 0.3, {(A, True): 10 * made}, -0.3)
        counted = world.table.counted(*PLACE, T0 + made + 0.4, 1)
        assert counted.total == pytest.approx(10) and counted.at - T0 == pytest.approx(made + 0.3, abs=0.1)


@given(st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_a_steady_load_is_shown_as_it_is_however_its_reports_come(seed):
    """Reports wait at a broker that is away, come twice, in another order or not at all.

    Workers begin anew at any of them. No rate that is shown differs from the one that there is.
    """
    dice, rate = np.random.default_rng(seed), 40
    made = np.cumsum(dice.uniform(0.7, 1.3, 90)) + 100
    at = made + dice.uniform(0.05, 0.4, len(made))
    for _ in range(int(dice.integers(0, 3))):  # outages, which end within a second
        first, length = dice.uniform(100, 180), dice.uniform(1, 40)
        waits = (at > first) & (at < first + length)
        at = np.where(waits, first + length + dice.uniform(0, 1) * (at - first) / length, at)
    order = np.argsort(at + dice.choice([0.0, 0.3]) * dice.uniform(0, 1, len(at)))
    order = np.concatenate([order, dice.choice(order, 5)])
    order = order[dice.random(len(order)) > dice.choice([0.0, 0.1])]
    world, taken, shown = World(), 0.0, 0
    for report in order.tolist():
        if dice.random() < 0.03:
            world = World()
        taken = max(taken, float(at[report]))
        world.report("e1", taken, {(A, True): int(rate * made[report])}, float(made[report]) - taken)
        counted = world.table.counted(*PLACE, T0 + taken + 0.1, 1)
        if counted and not counted.missing:
            shown += 1
            assert counted.total == pytest.approx(rate, rel=0.15), (taken, counted)
    assert shown or len(order) < 20
