"""The convex envelope of what several classes cost at a station together."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from spillway_optimizer.problem.objective import queue_factor
from spillway_optimizer.solvers.envelope import Envelope
from spillway_optimizer.solvers.stations import Stations

CAPACITY = 100.0
alphas = st.lists(st.one_of(st.just(0.0), st.floats(0.01, 50.0)), min_size=2, max_size=4)
ceilings = st.sampled_from([np.inf, 0.5, 0.9, 0.99])
loads = st.lists(st.floats(0.0, 80.0), min_size=4, max_size=4)


def _envelope(alpha: list[float], ceiling: float) -> Envelope:
    """Returns one station that all classes load. Its reference is a class of middling alpha."""
    assume(max(alpha) > 0)
    own = np.array(alpha)[:, None]
    root = np.sqrt(own).mean(keepdims=True)[0]
    reference = Stations(root**2 if np.ptp(own) else own[0], np.array([CAPACITY]), ceiling)
    return Envelope(reference, Stations(own, np.full_like(own, CAPACITY), ceiling), np.zeros(own.shape, int))


def _cost(envelope: Envelope, n: np.ndarray) -> float:
    """Returns what the classes cost together, which is not convex."""
    factor = queue_factor(n.sum() / CAPACITY)
    penalty = float(envelope.stations.beyond(np.array([n.sum()]))[0])
    return float((envelope.classes.alpha * n).sum() * factor) + penalty


def _value(envelope: Envelope, n: np.ndarray) -> float:
    return float(envelope.cost(n)[0])


def _column(values: list[float], alpha: list[float]) -> np.ndarray:
    return np.array(values[: len(alpha)])[:, None]


@given(alphas, ceilings, loads)
def test_the_envelope_is_never_above_the_cost(alpha, ceiling, load):
    """Holds from idle to overload, and for classes that never queue."""
    envelope, n = _envelope(alpha, ceiling), _column(load, alpha)
    cost = _cost(envelope, n)
    assert _value(envelope, n) <= cost * (1 + 1e-9) + 1e-9


@given(alphas, ceilings, st.floats(0.0, 150.0), st.integers(0, 3))
def test_a_class_alone_costs_what_it_costs(alpha, ceiling, load, number):
    """The envelope equals the cost where only one class is at the station."""
    envelope, n = _envelope(alpha, ceiling), np.zeros((len(alpha), 1))
    n[number % len(alpha)] = load
    assert _value(envelope, n) == pytest.approx(_cost(envelope, n), rel=1e-6, abs=1e-6)


@given(alphas, ceilings, loads, loads, st.floats(0.0, 1.0))
def test_the_envelope_is_convex(alpha, ceiling, first, second, part):
    """On the line between two loads it is not above the line."""
    envelope, a, b = _envelope(alpha, ceiling), _column(first, alpha), _column(second, alpha)
    line = part * _value(envelope, a) + (1 - part) * _value(envelope, b)
    assert _value(envelope, part * a + (1 - part) * b) <= line * (1 + 1e-7) + 1e-6


@given(
    st.lists(st.floats(0.01, 50.0), min_size=2, max_size=4),
    st.lists(st.floats(0.1, 20.0), min_size=4, max_size=4),
)
def test_below_the_limits_it_has_a_closed_form(alpha, load):
    """sum(alpha * n) + sum(sqrt(alpha) * n)^2 / (capacity - sum(n))."""
    envelope, n = _envelope(alpha, np.inf), _column(load, alpha)
    own, room = envelope.classes.alpha, CAPACITY - n.sum()
    root = float((np.sqrt(own) * n).sum()) / room
    assume(root < 40 * np.sqrt(min(alpha)))  # every class is below U_LINEAR
    expected = float((own * n).sum()) + room * root**2
    assert _value(envelope, n) == pytest.approx(expected, rel=1e-9)


@given(alphas, ceilings, loads, st.floats(0.0, 3.0))
def test_every_price_gives_a_tangent_from_below(alpha, ceiling, load, factor):
    """Prices of any t, and their conjugate, are a lower bound; those of `reference` meet it."""
    envelope, n = _envelope(alpha, ceiling), _column(load, alpha)
    best, value = envelope.reference(n), _value(envelope, n)

    def tangent(price: np.ndarray) -> float:
        paid = float((envelope.prices(price) * n).sum())
        return paid - float(envelope.stations.conjugate(price)[0])

    any_price = np.maximum(best * factor, envelope.stations.alpha)
    assert tangent(any_price) <= value * (1 + 1e-7) + 1e-6
    assert tangent(best) == pytest.approx(value, rel=1e-6, abs=1e-6)


@given(st.floats(0.01, 50.0), ceilings, loads)
def test_equal_classes_cost_their_sum(alpha, ceiling, load):
    """Where all alpha are equal the envelope is the cost itself, and all prices are the same."""
    envelope, n = _envelope([alpha] * 4, ceiling), _column(load, [alpha] * 4)
    assert envelope.even
    assert _value(envelope, n) == pytest.approx(_cost(envelope, n), rel=1e-12, abs=1e-12)
    prices = envelope.prices(envelope.reference(n))
    assert np.ptp(prices) == 0.0


@given(alphas, ceilings, st.floats(0.01, 150.0))
def test_pull_is_the_derivative_of_prices(alpha, ceiling, load):
    """Compared with the difference quotient."""
    assume(min(alpha) > 0 or np.isinf(ceiling))  # else prices differ by less than their arithmetic
    envelope = _envelope(alpha, ceiling)
    price = envelope.stations.slope(np.array([load]))
    step = 1e-6 * price
    quotient = (envelope.prices(price + step) - envelope.prices(price)) / step
    assert np.allclose(envelope.pull(price), quotient, rtol=1e-3, atol=1e-3)
