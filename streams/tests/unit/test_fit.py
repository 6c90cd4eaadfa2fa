"""The fit of a curve and its standard errors, on queues whose true values are known."""

import numpy as np
import pytest
from accuracy import queues
from hypothesis import given, settings
from hypothesis import strategies as st
from spillway_streams.curves import fit
from spillway_streams.curves.buckets import N_BUCKETS, collect

LADDER = np.repeat(np.arange(0.1, 0.85, 0.1), 40)
SEEDS = range(60)


def _exact(a: float, b: float, used: list[int]) -> fit.Points:
    """Buckets that lie on a curve, with four blocks of time each."""
    u = np.tile((np.arange(N_BUCKETS) + 0.5) / 10, 4)
    samples = np.where(np.isin((u * 10).astype(int), used), 100.0, 0)
    return collect(np.arange(40) // 10, u, a / (1 - u) + b, 0 * u + 0.1 * a, samples).points(used)


@given(a=st.floats(0.1, 50), b=st.floats(-1, 100))
@settings(max_examples=50)
def test_exact_points_give_their_curve(a, b):
    """b may be negative, as long as the latency without load is not: a + b >= 0."""
    found = fit.fit(_exact(a, max(b, -a), list(range(N_BUCKETS))))
    for u in (0.1, 0.5, 0.9):
        assert found(u) == pytest.approx(a / (1 - u) + max(b, -a), rel=1e-3, abs=1e-3)


def test_bounds_hold_where_data_contradict_them():
    """Latency that falls with load gives a flat curve. Latency without load is at least 0."""
    falling = fit.fit(_exact(-1.0, 20.0, list(range(9))))
    assert falling.a == 0 and falling.b > 0
    steep = fit.fit(_exact(5.0, -20.0, [7, 8, 9]))
    assert steep.a > 0 and steep.a + steep.b == pytest.approx(0, abs=1e-9)


def test_a_bad_bucket_does_not_bend_the_curve():
    """One bucket that is wrong by a factor of ten moves other predictions by less than 10 %."""
    exact = _exact(2, 5, list(range(N_BUCKETS)))
    latency = exact.latency.copy()
    latency[4] *= 10
    sums = exact.block_latency.copy()
    sums[:, 4] *= 10
    found = fit.fit(fit.Points(**(vars(exact) | {"latency": latency, "block_latency": sums})))
    for u in (0.05, 0.55, 0.95):
        assert found(u) == pytest.approx(2 / (1 - u) + 5, rel=0.10)


def _simulated(seed: int, workers: int) -> fit.Points:
    """A queue with 10 ms of work per worker plus 2 ms, over LADDER; utilisation is the true one."""
    random = np.random.default_rng(seed)
    mean_s = 0.01 * workers
    at = queues.arrivals(LADDER / 0.01, random)
    work = random.exponential(mean_s, len(at))
    exclusive_ms = (queues.waits(at, work, workers) + work) * 1000 + 2
    second = at.astype(int)
    n = np.bincount(second, minlength=len(LADDER)).astype(float)
    mean = np.bincount(second, exclusive_ms, len(LADDER)) / np.maximum(n, 1)
    square = np.bincount(second, exclusive_ms**2, len(LADDER)) / np.maximum(n, 1)
    seconds = np.arange(len(LADDER))
    found = collect(seconds // 20, LADDER, mean, np.sqrt(np.maximum(square - mean**2, 0)), n)
    return found.points(sorted(found.filled(30)))


def _covered(values: list[float], errors: list[float], truth: float) -> float:
    """Share of the fits whose truth lies within two standard errors."""
    return float(np.mean(np.abs(np.array(values) - truth) <= 2 * np.array(errors)))


def test_standard_errors_of_an_mm1_queue_hold():
    """Over 60 simulated ladders, a and b are within two standard errors in at least 88 %.

    95 % is expected; 88 % is 2.5 standard deviations of such a count below it. The errors are less
    than twice the scatter. The mean is within 3 % (a) and 0.5 ms (b).
    """
    fits = [fit.fit(_simulated(seed, 1)) for seed in SEEDS]
    a, b = [f.a for f in fits], [f.b for f in fits]
    assert _covered(a, [f.a_se for f in fits], 10.0) >= 0.88
    assert _covered(b, [f.b_se for f in fits], 2.0) >= 0.88
    assert np.mean([f.a_se for f in fits]) < 2 * np.std(a)
    assert np.mean(a) == pytest.approx(10, rel=0.03) and np.mean(b) == pytest.approx(2, abs=0.5)


def test_errors_that_take_calls_for_independent_do_not_hold():
    """The reason for blocks of time.

    From the spread of single calls, the error is less than half of the true scatter.
    """
    fits, naive = [], []
    for seed in SEEDS:
        points = _simulated(seed, 1)
        fits.append(fit.fit(points).a)
        design = np.stack([points.stretch - 1, np.ones_like(points.stretch)], axis=1)
        normal = (design.T * (points.samples / points.sd**2)) @ design
        naive.append(np.sqrt(np.linalg.inv(normal)[0, 0]))
    assert np.mean(naive) < 0.5 * np.std(fits)


@pytest.mark.parametrize("workers", [2, 4])
def test_standard_errors_of_an_mmc_queue_hold(workers):
    """The M/M/1 shape is not that of this queue.

    The truth is then its best approximation, fitted to exact Erlang C at the same loads. In at
    least 88 % of 60 ladders the fit is within two standard errors of it. It is also within 15 % of
    Erlang C itself.
    """
    exact = 10 * workers * (1 + queues.erlang_wait(workers, LADDER)) + 2
    at = np.arange(len(LADDER))
    # The weights are those of a typical simulation, applied to exact latencies.
    bests = []
    for seed in range(5):
        points = _simulated(seed, workers)
        truth = collect(at // 20, LADDER, exact, 0 * exact, np.full(len(LADDER), 50.0))
        means = truth.points(sorted(truth.filled(1))).latency
        sums = points.block_latency + (means - points.latency) * points.block_samples
        bests.append(fit.fit(fit.Points(**(vars(points) | {"latency": means, "block_latency": sums}))))
    a, b = np.mean([f.a for f in bests]), np.mean([f.b for f in bests])
    fits = [fit.fit(_simulated(seed, workers)) for seed in SEEDS]
    assert _covered([f.a for f in fits], [f.a_se for f in fits], a) >= 0.88
    assert _covered([f.b for f in fits], [f.b_se for f in fits], b) >= 0.88
    for u in (0.1, 0.3, 0.5, 0.7, 0.8):
        expected = 10 * workers * (1 + queues.erlang_wait(workers, u)) + 2
        assert np.mean([f(u) for f in fits]) == pytest.approx(expected, rel=0.15)


def test_the_simulated_queue_is_erlangs():
    """Mean waits of long runs equal Erlang C."""
    for workers, u in ((1, 0.5), (2, 0.7), (4, 0.8)):
        random = np.random.default_rng(workers)
        at = queues.arrivals(np.full(3000, u * 100), random)
        found = queues.waits(at, random.exponential(0.01 * workers, len(at)), workers).mean()
        assert found == pytest.approx(0.01 * workers * queues.erlang_wait(workers, u), rel=0.08)
