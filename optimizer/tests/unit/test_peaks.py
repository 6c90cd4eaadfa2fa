"""What a station can gain at most, when the load that each price is for is limited."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from spillway_optimizer.problem.objective import queue_factor
from spillway_optimizer.problem.penalties import CEILING_MS
from spillway_optimizer.solvers.peaks import Offers

CAPACITY = 100.0
DUST = 1e-9 * CAPACITY * 400.0  # what loads that are too small for a cell are paid at most
items = st.lists(
    st.tuples(
        st.one_of(st.just(-np.inf), st.floats(0.0, 400.0)),
        st.one_of(st.just(0.0), st.floats(0.01, 50.0)),
        st.floats(0.0, 150.0),
    ),
    min_size=1,
    max_size=4,
)
ceilings = st.sampled_from([np.inf, 0.5, 0.9, 0.99])
parts = st.lists(st.floats(0.0, 1.0), min_size=4, max_size=4)


def _offers(drawn: list[tuple[float, float, float]], ceiling: float) -> Offers:
    price, alpha, volume = (np.array([values]) for values in zip(*drawn, strict=True))
    return Offers(price, alpha, volume, np.array([CAPACITY]), ceiling)


def _gains(offers: Offers, y: np.ndarray) -> np.ndarray:
    """Returns what loads [n, M] gain."""
    total = y.sum(axis=1)
    paid = (np.where(y > 0, offers.price, 0.0) * y).sum(axis=1)
    queueing = (offers.alpha * y).sum(axis=1) * queue_factor(total / CAPACITY)
    over = np.maximum(total / CAPACITY - offers.ceiling, 0.0)
    return paid - queueing - 0.5 * CEILING_MS * CAPACITY * over**2


@given(items, ceilings, parts)
def test_no_loads_gain_more_than_the_peak(drawn, ceiling, part):
    """Holds from idle to overload, beyond ceilings, and for loads that cannot come."""
    offers = _offers(drawn, ceiling)
    y = np.array([part[: len(drawn)]]) * np.where(np.isfinite(offers.price), offers.volume, 0.0)
    peak = offers.peaks()[0]
    assert _gains(offers, y)[0] <= peak * (1 + 1e-9) + DUST


@settings(max_examples=50)
@example([(13.0, 12.0, 25.0)], np.inf)  # a small part of the only item
@given(items, ceilings)
def test_the_peak_is_reached(drawn, ceiling):
    """Some loads gain it, up to a thousandth.

    At a given total, the best loads are all or nothing for all items but one. So all such loads are
    tried.
    """
    offers = _offers(drawn, ceiling)
    volume, most = np.where(np.isfinite(offers.price), offers.volume, 0.0)[0], 0.0
    for partial in range(len(drawn)):
        for full in itertools.product([0.0, 1.0], repeat=len(drawn)):
            y = np.tile(volume * full, (4001, 1))
            y[:, partial] = volume[partial] * np.linspace(0.0, 1.0, 4001)
            most = max(most, float(_gains(offers, y).max()))
    assert offers.peaks()[0] == pytest.approx(most, rel=1e-3, abs=1e-3)


@given(items, ceilings, parts, st.floats(0.0, 1e3))
def test_inexact_peaks_are_too_high_and_by_no_more_than_may_be(drawn, ceiling, part, miss):
    """No loads gain more, and the limit is at most `miss` above the exact one."""
    offers = _offers(drawn, ceiling)
    exact, found = offers.peaks()[0], offers.peaks(miss)[0]
    y = np.array([part[: len(drawn)]]) * np.where(np.isfinite(offers.price), offers.volume, 0.0)
    assert _gains(offers, y)[0] <= found * (1 + 1e-9) + DUST
    assert found <= exact + max(miss, 1e-3 * exact) + DUST


@given(items, ceilings, parts)
def test_peaks_of_no_use_are_still_limits(drawn, ceiling, part):
    """The first loads already gain more than is of use, so the limit is left as it is."""
    offers = _offers(drawn, ceiling)
    y = np.array([part[: len(drawn)]]) * np.where(np.isfinite(offers.price), offers.volume, 0.0)
    found = offers.peaks(useless=-1.0)[0]
    assert _gains(offers, y)[0] <= found * (1 + 1e-9) + DUST
    assert found >= offers.peaks()[0] * (1 - 1e-4) - DUST


@given(items, items, ceilings)
def test_stations_do_not_affect_each_other(first, second, ceiling):
    """Two stations together have the peaks that each has alone."""
    count = min(len(first), len(second))
    alone = [_offers(drawn[:count], ceiling) for drawn in (first, second)]
    together = Offers(
        *(np.concatenate([getattr(o, name) for o in alone]) for name in ("price", "alpha", "volume")),
        np.full(2, CAPACITY),
        ceiling,
    )
    expected = [offers.peaks()[0] for offers in alone]
    assert together.peaks() == pytest.approx(expected, rel=1e-4, abs=1e-6)
