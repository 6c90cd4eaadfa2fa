"""Counters that a worker or broker delayed, and that arrive together."""

import pytest
from counted_service import PLACE, T0, A, World


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
