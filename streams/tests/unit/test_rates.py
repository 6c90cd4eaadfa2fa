"""Rates from random counts, and from stamps."""

import numpy as np
import pytest
from accuracy import simulated
from spillway_streams.load import rates
from spillway_streams.load.load import Sum
from spillway_streams.load.load_rates import Seconds, class_rates, proxies


def _moving_rate(at: np.ndarray, counts: np.ndarray, width: int) -> np.ndarray:
    first, end, seconds = rates.windows(at, width)
    return rates.sums(counts, first, end) / seconds


def test_rates_are_counted_over_gaps_and_edges():
    """Missing seconds count as empty. A long stop of the recording is not zero load."""
    at = np.array([0, 1, 2, 4, 5, 100, 101])
    counts = np.array([10.0, 10, 10, 10, 10, 40, 40])
    rate = _moving_rate(at, counts, 3)
    assert rate.tolist() == pytest.approx([10, 10, 20 / 3, 20 / 3, 10, 40, 40])


def test_a_quiet_service_is_not_one_whose_recording_stopped():
    """A call about every ten seconds. If gaps were ends, each call would be a rate of its own."""
    at = np.cumsum(np.random.default_rng(1).geometric(0.1, 300))
    assert _moving_rate(at, np.ones(300), 21)[5:-5].mean() == pytest.approx(0.1 + 0.9 / 21, rel=0.1)


def test_the_largest_nearby_value_is_found():
    """A pod that misses a report is still counted."""
    at, pods = np.arange(8), np.array([2.0, 2, 1, 2, 1, 1, 1, 1])
    assert rates.most(at, pods, 3).tolist() == [2, 2, 2, 2, 2, 1, 1, 1]
    assert rates.most(at[:0], pods[:0], 3).tolist() == []


def _steady(at: np.ndarray, counts: np.ndarray) -> np.ndarray:
    best = rates.widest(at, counts, counts)
    return rates.pick(best, [_moving_rate(at, counts, width) for width in rates.WIDTHS])


def test_a_steady_rate_is_measured_longer_than_one_that_jumps():
    """At 40 per second, the error of the steady parts is a quarter below that of a 5 s mean.

    Around a jump by half, it is at most half as large again.
    """
    random = np.random.default_rng(1)
    truth = np.repeat([40.0, 60.0] * 10, 60)
    counts, at = random.poisson(truth).astype(float), np.arange(1200)
    found, short = _steady(at, counts), _moving_rate(at, counts, rates.WIDTHS[0])
    inside = np.abs(at % 60 - 30) < 25
    assert np.std((found - truth)[inside]) < 0.75 * np.std((short - truth)[inside])
    edge = at % 60 < 3
    assert np.abs(found - truth)[edge].mean() < 1.5 * np.abs(short - truth)[edge].mean()


def _seconds(**columns: np.ndarray) -> Seconds:
    n, classes = next(iter(columns.values())).shape
    sums = np.zeros((n, classes, len(Sum)))
    for name, values in columns.items():
        sums[:, :, Sum[name]] = values
    return Seconds(np.arange(n), sums)


def test_the_stamp_goes_before_the_count_and_the_class_before_the_service():
    """A tenth of the spans is kept: counts are adjusted tenfold and noisy, stamps are exact.

    One class has stamps of its own, the other its share of the service's. Without any stamps,
    calls are counted.
    """
    random = np.random.default_rng(2)
    n, truth = 300, np.array([50.0, 150.0])
    kept = random.poisson(truth / 10, (n, 2)).astype(float)
    seconds = _seconds(
        ARRIVALS=10 * kept, OK=10 * kept, SAMPLES=kept, STAMPED=10 * kept, RATE=10 * kept * truth.sum(),
        CLASS_STAMPED=10 * kept * [1, 0], CLASS_RATE=10 * kept * [50, 0],
    )  # fmt: skip
    found = class_rates(seconds)
    assert found[:, 0] == pytest.approx(50)
    assert found[:, 1].mean() == pytest.approx(150, rel=0.02)
    assert np.abs(found[:, 1] - 150).mean() < 0.3 * np.abs(10 * kept[:, 1] - 150).mean()
    plain = class_rates(_seconds(ARRIVALS=10 * kept, OK=10 * kept, SAMPLES=kept))
    assert plain.mean(axis=0) == pytest.approx(truth, rel=0.03)


def test_what_one_proxy_stamps_is_multiplied_by_the_proxies():
    """Three pods: the stamps of each show a third of the rate, and counts show three pods."""
    pod = simulated.Pod(4, [20.0])
    load, _ = simulated.tables(simulated.observe(pod, [0.5] * 120, np.random.default_rng(3), pods=[3] * 120))
    [series] = load.series.values()
    at, sums = series.all()
    seconds = Seconds(at, sums[:, None, :])
    assert (proxies(seconds)[5:-5] == 3).all()
    assert class_rates(seconds)[5:-5].mean() == pytest.approx(300, rel=0.05)


def test_stamps_that_see_their_siblings_are_put_right_by_counts():
    """Ten calls at once per request: each sees about half of the others in its last second.

    There are ten requests per second, then one.
    """
    n = 200
    calls = np.full((n, 1), 100.0)
    found = class_rates(_seconds(ARRIVALS=calls, OK=calls, SAMPLES=calls, STAMPED=calls, RATE=calls * 104.5))
    assert found[10:-10] == pytest.approx(100, rel=0.05)
    few = np.full((n, 1), 10.0)
    found = class_rates(_seconds(ARRIVALS=few, OK=few, SAMPLES=few, STAMPED=few, RATE=few * 14.5))
    assert found[40:-40] == pytest.approx(10, rel=0.05)
