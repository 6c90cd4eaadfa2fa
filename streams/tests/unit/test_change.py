"""Slower and faster pods are noticed in time, and noise is not: on queues with known truth."""

import numpy as np
import pytest
from accuracy import queues, simulated
from accuracy.simulated import Cut, Pod
from spillway_streams.capacity import change, restart
from spillway_streams.model.modelling import CAPACITIES, Modeller, Options

CUT_S = 640
SWINGS = 0.65 + 0.35 * np.sin(np.arange(CUT_S + 120) / 60)


def _row(cut: Cut, now: int, cpu_per_busy: float | None) -> dict:
    """Returns the capacity at second `now`, from calls that had ended by then.

    `cpu_per_busy`: CPU use of a busy pod; None: no CPU use is reported.
    """
    model_tables = simulated.tables(cut.seen(0, now, cpu_per_busy or 0.0), with_cpu=cpu_per_busy is not None)
    _, [row] = Modeller(Options()).fit(*model_tables, 0)
    return dict(zip(CAPACITIES, row, strict=True))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("highest", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("cpu_per_busy", [1.0, 0.19, None])
def test_a_capacity_that_is_cut_to_a_third_is_noticed_within_60_seconds(cpu_per_busy, workers, highest, seed):
    """From 100 to 33 req/s, at a load that varies up to 30, 60 or 90 %.

    CPU use shows the capacity, shows five times as much, or is not reported. Formerly, the cut was
    seen only after the window of 600 s had passed.
    """
    cut = Cut(Pod(workers, [10.0 * workers]), highest * SWINGS, CUT_S, 3.0, np.random.default_rng(10 * seed))
    before, after = _row(cut, CUT_S, cpu_per_busy), _row(cut, CUT_S + 60, cpu_per_busy)
    assert after["capacity_rps"] < 0.6 * before["capacity_rps"]
    assert abs(after["changed_at"] - cut.start - CUT_S) <= 60 and before["changed_at"] == 0
    if cpu_per_busy == 0.19 and workers == 4 and highest < 0.9:
        # Hardly any request waited before the cut, so nothing contradicted CPU use.
        assert after["capacity_rps"] < 0.45 * 100 / 0.19
        return
    # At loads of at most 30 %, latency determines the earlier capacity only within a factor of two.
    assert 15 < after["capacity_rps"] < (45 if cpu_per_busy == 1 else 60)


@pytest.mark.parametrize("cpu_per_busy", [1.0, None])
def test_a_capacity_that_comes_back_is_known_three_minutes_later(cpu_per_busy):
    """Cut for 300 s, at loads never seen before: low to the end, then within 25 % after 180 s."""
    load = 0.6 * (0.65 + 0.35 * np.sin(np.arange(1500) / 60)) * np.where(np.arange(1500) // 300 == 2, 0.5, 1)
    cut = Cut(Pod(1, [10.0]), load, 600, 3.0, np.random.default_rng(4), until=900)
    assert _row(cut, 895, cpu_per_busy)["capacity_rps"] < 45
    assert _row(cut, 1080, cpu_per_busy)["capacity_rps"] == pytest.approx(100, rel=0.25)


@pytest.mark.parametrize("level", [1.1, 1.5])
@pytest.mark.parametrize("workers", [1, 4])
def test_an_overload_and_its_end_do_not_cut_the_capacity(workers, level):
    """30 s at 110 or 150 % of the capacity, then 40 % while the rest is served.

    The capacity is within 30 % at every moment.
    """
    load = np.concatenate([0.45 + 0.35 * np.sin(np.arange(600) / 60), np.full(30, level), np.full(120, 0.4)])
    cut = Cut(Pod(workers, [10.0 * workers]), load, 10**9, 1.0, np.random.default_rng(3))
    for now in range(610, 750, 20):
        assert _row(cut, now, 1.0)["capacity_rps"] == pytest.approx(100, rel=0.3), now


def _noise(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """An hour of an unchanged queue: rate, latency and CPU use per request of each second.

    The load, at most 88 %, is constant, varies smoothly, or jumps every minute.
    """
    random, seconds = np.random.default_rng(seed), np.arange(3600)
    workers, saturation = [1, 2, 4, 8][seed % 4], [20, 100, 100, 400][seed // 4 % 4]
    load = [
        np.full(3600, random.choice([0.3, 0.6, 0.8, 0.88])),
        0.45 + 0.4 * np.sin(seconds / 600 * 2 * np.pi),
        np.repeat(random.uniform(0.1, 0.88, 60), 60),
    ][seed % 3]
    at = queues.arrivals(load * saturation, random)
    service = random.exponential(workers / saturation, len(at))
    wait = queues.waits(at, service, workers)
    busy = queues.busy(at, wait + service, workers, 3600)
    count = np.bincount(at.astype(int), minlength=3600)
    latency = np.bincount(at.astype(int), wait + service, 3600) / np.maximum(count, 1)
    rate, use = (np.convolve(column, np.ones(5) / 5, "same") for column in (count, busy))
    return rate, latency, np.divide(use, rate, out=np.zeros(3600), where=rate > 0)


def test_noise_is_hardly_ever_taken_for_a_change():
    """Ten hours, tested every 30 s: of 1 160 tests at most three find a change of latency.

    None finds a change of CPU use.
    """
    at, looks, by_latency, by_cpu = np.arange(3600), 0, 0, 0
    for seed in range(200, 210):
        rate, latency, cost = _noise(seed)
        for end in range(120, 3600, 30):
            looks += 1
            by_latency += change.last(at[:end], rate[:end], latency[:end], change.LATENCY) is not None
            by_cpu += change.last(at[:end], rate[:end], cost[:end], change.CPU) is not None
    assert looks == 1160 and by_latency <= 3 and by_cpu == 0


def test_what_left_is_counted_and_not_what_came():
    """60 arrive and 33 leave per second: the latency rises by 0.8 s per second, then it falls."""
    arrived = np.full(30, 60.0)
    rises = (60 / 33 - 1) * 1000 * np.arange(30)
    assert restart.completed(arrived, rises) == pytest.approx(33, rel=0.1)
    left = restart.completed(np.full(20, 20.0), 16_000 - 800.0 * np.arange(20))
    assert left == pytest.approx(100)
    assert restart.slower(100, (25, 25), (13.3, 120), 0) == pytest.approx(33, rel=0.05)
