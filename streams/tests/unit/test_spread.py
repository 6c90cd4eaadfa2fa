"""How far single calls are from a curve: the standard deviation that is stored with it."""

import math

import numpy as np
import pytest
from accuracy import queues, simulated
from accuracy.simulated import Pod
from hypothesis import given, settings
from hypothesis import strategies as st
from spillway_streams.curves import curves, fit
from spillway_streams.curves.buckets import N_BUCKETS, Buckets, collect
from spillway_streams.curves.curves import Curve, Evidence
from spillway_streams.model.modelling import CURVES, Modeller, Options
from spillway_streams.recorded.offline import named

LADDER = np.repeat(np.arange(0.1, 0.9, 0.1), 40)
EVERY = np.tile((np.arange(N_BUCKETS) + 0.5) / 10, 4)  # the middle of every bucket, in four blocks of time
NOTHING = collect(np.arange(0), *np.zeros((4, 0)))
SEEDS = range(12)


def _buckets(mean: np.ndarray, sd: np.ndarray, u: np.ndarray = EVERY, samples: float = 25.0) -> Buckets:
    """Buckets of ten seconds in each of four blocks. All arguments are per second."""
    return collect(np.arange(len(u)) // N_BUCKETS, u, mean, sd, np.full(len(u), samples))


def _update(curve: Curve | None, kept: Buckets, recent: Buckets = NOTHING) -> Curve:
    """Updates a curve with samples of which none is fresh."""
    evidence = Evidence(kept, kept, NOTHING, recent, int(recent.samples.sum()))
    found = curves.update(curve, evidence, 20, 2, 100.0)
    assert found is not None
    return found


def _learned(pod: Pod, load: np.ndarray, seed: int) -> list[dict]:
    observed = simulated.observe(pod, load, np.random.default_rng(seed))
    rows, _ = Modeller(Options()).fit(*simulated.tables(observed), 0)
    return [dict(zip(CURVES, row, strict=True)) for row in rows]


def _sd(row: dict, u: float) -> float:
    return row["sd_a_ms"] / (1 - u) + row["sd_b_ms"]


def test_calls_that_scatter_like_those_of_an_mm1_queue_give_its_spread():
    """Times in an M/M/1 queue are exponential: the standard deviation is the mean, s / (1 - u)."""
    level = 10 / (1 - EVERY)
    found = _update(None, _buckets(level, level, samples=1e6))
    assert found.phase == "retrain"
    assert (found.sd_a_ms, found.sd_b_ms) == (pytest.approx(10), pytest.approx(0, abs=1e-4))


def test_few_samples_hide_a_part_of_the_spread():
    """Around their own mean, n independent calls have a variance that is too small by 1 / n.

    The fit adds the scatter of the mean, here of 100 calls in each bucket.
    """
    level = 10 / (1 - EVERY)
    found = _update(None, _buckets(level, level))
    assert found.sd_a_ms == pytest.approx(10 * math.sqrt(1 + 1 / 100), rel=1e-3)


def test_blocks_show_how_much_each_of_them_moves_the_spread():
    """The sums by block are influences: the change of the spread for a little more of a block.

    Their mean over a bucket is the bucket's spread.
    """
    random, more = np.random.default_rng(5), 1e-6
    mean, sd = random.uniform(5, 30, len(EVERY)), random.uniform(1, 20, len(EVERY))
    samples = random.integers(5, 50, len(EVERY)).astype(float)
    used, block = list(range(N_BUCKETS)), np.arange(len(EVERY)) // N_BUCKETS
    buckets = collect(block, EVERY, mean, sd, samples)
    points = buckets.spread_points(used)
    assert points.block_latency.sum(axis=0) == pytest.approx(points.samples * points.latency)
    for number, influence in enumerate(points.block_latency):
        heavier = collect(block, EVERY, mean, sd, samples * (1 + more * (block == number)))
        change = (heavier.sd_ms**2 - buckets.sd_ms**2) / (2 * points.latency) / more
        expected = (influence - points.block_samples[number] * points.latency) / points.samples
        assert change == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_a_spread_that_differs_between_blocks_is_less_certain():
    """All blocks have the same mean, but busy calls scatter by 0.3 or 2.7 of it."""
    level = 10 / (1 - EVERY)
    block = np.arange(len(EVERY)) // N_BUCKETS
    busy = EVERY > 0.5
    steady = _buckets(level, level * np.where(busy, 1.5, 1.0), samples=1e6)
    torn = _buckets(
        level, level * np.where(busy, 1.5 * np.array([0.2, 1.8, 0.2, 1.8])[block], 1.0), samples=1e6
    )
    found, unsure = (fit.fit(buckets.spread_points(list(range(N_BUCKETS)))) for buckets in (steady, torn))
    assert unsure.a_se > 3 * found.a_se


def test_before_the_first_fit_a_class_counts_as_exponential():
    """The prior is the M/M/1 identity, so the standard deviation is the mean at every load."""
    found = _update(None, _buckets(np.full(10, 8.0), np.ones(10), np.full(10, 0.5)))
    assert found.phase == "prior" and found.a_ms == pytest.approx(4)
    assert (found.sd_a_ms, found.sd_b_ms) == (found.a_ms, 0.0)
    assert math.isnan(found.ab_correlation), "nothing was fitted"


def test_a_shift_leaves_the_spread():
    """Recent calls that are slower move b. One minute does not show a new spread."""
    curve = _update(None, _buckets(2 / (1 - EVERY) + 5, 3 / (1 - EVERY) + 1))
    slower = _buckets(np.full(20, 40.0), np.full(20, 9.0), np.full(20, 0.35))
    shifted = _update(curve, _buckets(2 / (1 - EVERY) + 5, 3 / (1 - EVERY) + 1), slower)
    assert shifted.phase == "shift" and shifted.b_ms > curve.b_ms + 20
    assert (shifted.sd_a_ms, shifted.sd_b_ms) == (curve.sd_a_ms, curve.sd_b_ms)
    assert (curve.sd_a_ms, curve.sd_b_ms) == (pytest.approx(3, rel=0.01), pytest.approx(1, rel=0.01))


@given(
    st.lists(st.floats(0.01, 1e4), min_size=N_BUCKETS, max_size=N_BUCKETS),
    st.lists(st.floats(0, 1e4), min_size=N_BUCKETS, max_size=N_BUCKETS),
)
@settings(max_examples=100)
def test_no_spread_is_below_zero(means, sds):
    """Whatever the buckets hold: sd_a >= 0 and sd_a + sd_b >= 0, so sd(u) >= 0 at every load.

    The correlation is between -1 and 1, or unknown.
    """
    found = _update(None, _buckets(np.tile(means, 4), np.tile(sds, 4)))
    assert found.sd_a_ms >= 0 and found.sd_a_ms + found.sd_b_ms >= -1e-9 * found.sd_a_ms
    assert math.isnan(found.ab_correlation) or -1 <= found.ab_correlation <= 1


def test_single_samples_show_no_spread():
    """One sample in each bucket: the spread is unknown, not 0. A document has null there."""
    single = _buckets(2 / (1 - EVERY[:10]) + 5, np.zeros(10), EVERY[:10], 1.0)
    evidence = Evidence(single, single, NOTHING, NOTHING, 0)
    found = curves.update(None, evidence, 20, 1, 100.0)
    assert found is not None and found.phase == "retrain"
    assert math.isnan(found.sd_a_ms) and math.isnan(found.sd_b_ms)
    assert named(("at", "sd_a_ms"), [(0, found.sd_a_ms)])[0]["sd_a_ms"] is None


def test_constant_times_have_no_spread():
    found = _update(None, _buckets(np.full(40, 7.0), np.zeros(40)))
    assert (found.sd_a_ms, found.sd_b_ms) == (pytest.approx(0, abs=1e-6), pytest.approx(0, abs=1e-6))


@pytest.mark.parametrize("workers", [1, 4])
def test_the_spread_of_a_simulated_queue_is_the_true_one(workers):
    """Ladders of M/M/1 and M/M/4 up to 80 %: sd(u) is within 10 % on average, from 10 % to 80 %.

    Single ladders are within 35 % at 50 %.
    """
    rows = [_learned(Pod(workers, [10.0 * workers]), LADDER, seed)[0] for seed in SEEDS]
    for u in (0.1, 0.3, 0.5, 0.7, 0.8):
        true = 10 * workers * queues.erlang_spread(workers, u)
        assert np.mean([_sd(row, u) for row in rows]) == pytest.approx(true, rel=0.10), u
    at_half = 10 * workers * queues.erlang_spread(workers, 0.5)
    assert [_sd(row, 0.5) for row in rows] == [pytest.approx(at_half, rel=0.35)] * len(rows)


def test_overload_does_not_widen_the_spread():
    """Half a minute at 1.5 times the capacity and its backlog are left out, as for means."""
    burst = np.concatenate([LADDER, np.full(30, 1.5), np.full(60, 0.2)])
    [calm], [strained] = (_learned(Pod(1, [10.0]), load, 4) for load in (LADDER, burst))
    for u in (0.2, 0.5, 0.8):
        assert _sd(strained, u) == pytest.approx(_sd(calm, u), rel=0.25)


def test_the_errors_of_a_and_b_are_opposed_as_the_correlation_says():
    """A fit turns around its data: over seeds, a and b scatter with the stored correlation."""
    rows = [_learned(Pod(1, [10.0], constant_ms=5.0), LADDER, seed)[0] for seed in range(24)]
    scattered = np.corrcoef([row["a_ms"] for row in rows], [row["b_ms"] for row in rows])[0, 1]
    assert np.mean([row["ab_correlation"] for row in rows]) == pytest.approx(scattered, abs=0.15)
    assert all(-1 <= row["ab_correlation"] < -0.5 for row in rows)
