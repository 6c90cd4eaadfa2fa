"""Rates follow a change of the load at once, and a steady load is known as precisely as before."""

import numpy as np
import pytest
from counted_service import PLACE, T0, A, B, World
from spillway_streams.boards import changes
from spillway_streams.boards.totals import Counted

WINDOW_S = 5.0
AGES = changes.ages_s(WINDOW_S)[:-1]
TICK_S = 0.1  # what a proxy looks at its counters by


def _looks(counts: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Returns the time that a rate covers, at each look, without knowing of looks before.

    `counts`: requests by tick; `at`: the ticks of the looks.
    """
    whole = np.concatenate([[0], np.cumsum(counts)])
    ticks = np.round(AGES / TICK_S).astype(int)
    counted = np.stack([whole[at] - whole[at - n] for n in ticks]).astype(float)
    return changes.unchanged_s(counted, AGES, np.full(len(at), np.nan))


@pytest.mark.parametrize("rps", [0.5, 5.0, 60.0, 500.0, 10_000.0])
def test_a_steady_load_is_taken_for_changed_about_once_an_hour(rps: float):
    """Forty hours of Poisson arrivals, looked at once a second. Alarms in a row count once."""
    hours = 40
    counts = np.random.default_rng(7).poisson(rps * TICK_S, hours * 36_000)
    at = np.arange(100, len(counts), 10)
    alarms = np.flatnonzero(_looks(counts, at) < WINDOW_S)
    separate = np.count_nonzero(np.diff(alarms) > 5) + min(len(alarms), 1)
    assert separate <= 1.5 * hours


@pytest.mark.parametrize(("before", "after"), [(60, 130), (130, 60), (400, 600), (600, 400)])
def test_a_step_is_seen_within_a_second(before: int, after: int):
    """By a proxy that reports at each tick, half of the steps within 0.6 s and 95 % in 1.1 s."""
    dice, seen = np.random.default_rng(1), []
    for _ in range(200):
        counts = dice.poisson(np.repeat([before * TICK_S, after * TICK_S], [100, 50]))
        shorter = np.flatnonzero(_looks(counts, np.arange(101, 150)) < WINDOW_S)
        seen.append((shorter[0] + 1) * TICK_S if len(shorter) else np.inf)
    assert np.quantile(seen, 0.5) <= 0.6 and np.quantile(seen, 0.95) <= 1.1


@pytest.mark.parametrize(("before", "after"), [(60, 130), (130, 60)])
def test_a_step_that_was_seen_is_not_lost_again(before: int, after: int):
    """In the four seconds that follow. Every sixth was, by the chance of a tenth of a second."""
    dice, lost = np.random.default_rng(2), 0
    ticks = np.round(AGES / TICK_S).astype(int)
    for _ in range(200):
        counts = dice.poisson(np.repeat([before * TICK_S, after * TICK_S], [100, 40]))
        whole, known, seen = np.concatenate([[0], np.cumsum(counts)]), np.nan, False
        for at in range(101, 141):
            counted = np.array([[whole[at] - whole[at - n]] for n in ticks], float)
            [span] = changes.unchanged_s(counted, AGES, np.array([known + TICK_S]))
            known = span if span < WINDOW_S else np.nan
            if seen and span == WINDOW_S:
                lost += 1
                break
            seen |= bool(span < WINDOW_S)
    assert lost <= 8


def test_a_small_change_of_many_requests_is_left_to_the_window():
    """It is significant, but a mean over five seconds is near enough."""
    counts = np.repeat([10_000, 10_500], [100, 20])
    assert _looks(counts, np.array([110])) == WINDOW_S
    assert _looks(np.repeat([10_000, 12_000], [100, 20]), np.array([110])) == 1.0


def test_each_class_has_its_own_window():
    """One class doubles, and the other stays. No requests are no change."""
    counts = np.array([[30.0, 6.0, 0.0], [300.0, 60.0, 0.0]])
    counts[0] *= [2, 1, 1]
    ages = np.array([0.5, 5.0])
    assert changes.unchanged_s(counts, ages, np.full(3, np.nan)).tolist() == [0.5, 5.0, 5.0]
    assert changes.unchanged_s(np.zeros((2, 0)), ages, np.zeros(0)).shape == (0,)


def _counted(world: World, now: float) -> Counted:
    counted = world.table.counted(*PLACE, T0 + now, None)
    assert counted is not None and not counted.missing
    return counted


def _step(world: World, envoy: str, at: float, before: int, after: int) -> None:
    """Reports a load that changes at 20.3 s: where it changed, and again a little later."""
    for until, requests in ((20.3, before), (at, round(after * (at - 20.3)))):
        world.counts[envoy][A, True] += requests
        world.report(envoy, until, dict(world.counts[envoy]))


def test_a_load_that_rises_is_shown_as_it_is_now():
    """Half a second after the step, the rate is the new one, and not a tenth of the way there."""
    world = World()
    world.run(0, 20, {"e1": {(A, True): 60}})
    _step(world, "e1", 20.8, 60, 240)
    counted = _counted(world, 20.9)
    assert counted.rates[A, True] == pytest.approx(240, rel=0.15) and counted.has_changed
    assert counted.whole < 100 and counted.before == pytest.approx(60)


def test_a_change_shows_although_other_envoys_have_not_reported_since():
    """Each Envoy's newest seconds count, so the one without a newer report does not hide it."""
    world = World()
    world.run(0, 20, {"e1": {(A, True): 60}, "e2": {(A, True): 60}})
    _step(world, "e1", 20.8, 60, 360)
    assert _counted(world, 20.9).total == pytest.approx(420, rel=0.15)


def test_reports_that_are_late_are_no_fall_of_load():
    """Until the Envoy is silent for too long, its last rates stand."""
    world = World()
    world.run(0, 20, {"e1": {(A, True): 60}})
    for now in (20.5, 22.0, 24.0):
        counted = _counted(world, now)
        assert counted.total == pytest.approx(60) and not counted.has_changed
    assert world.table.counted(*PLACE, T0 + 30.0, 1).missing


def test_a_load_that_falls_is_not_taken_for_envoys_without_counters():
    """Spans are of an earlier time, with more requests than the counters show by now."""
    world = World()
    world.run(0, 20, {"e1": {(A, True): 200}})
    world.show(19.5, {A: 200})
    _step(world, "e1", 21.3, 200, 20)
    assert world.rps(21.4, {A: 200}) == {A: pytest.approx(20, rel=0.1)}
    assert world.board.changed == {"west"} and world.counters["totals_of_some_envoys_only"] == 0
    world.run(22, 40, {"e1": {(A, True): 20}})
    assert world.rps(39.5, {A: 20}) == {A: pytest.approx(20)} and world.board.changed == set()


def test_only_a_report_before_its_time_is_early():
    """Reports of every second, repeats and the first report are not."""
    world = World()
    world.run(0, 20, {"e1": {(A, True): 60, (B, True): 5}})
    assert not world.report("e1", 20.3, dict(world.counts["e1"]))
    assert world.report("e1", 20.6, dict(world.counts["e1"]))
    assert not world.report("e1", 20.6, dict(world.counts["e1"]))
    assert not world.report("e2", 20.8, {(A, True): 1})
