"""The convex envelope of what several classes cost at a station together."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from spillway_optimizer.problem.objective import U_LINEAR, queue_factor, queue_slope
from spillway_optimizer.solvers.envelope import Envelope
from spillway_optimizer.solvers.stations import Stations

CAPACITY = 100.0
alphas = st.lists(st.one_of(st.just(0.0), st.floats(0.01, 50.0)), min_size=2, max_size=4)
# Utilisation ceiling, highest utilisation that was seen, caution beyond it.
FREE = (np.inf, np.inf, 0.0)
LIMITS = [
    FREE, (0.5, np.inf, 0.0), (0.9, np.inf, 0.0), (0.99, np.inf, 0.0),
    (np.inf, 0.6, 2.0), (0.9, 0.5, 5.0), (0.5, 0.7, 2.0), (0.99, 0.3, 20.0), (0.9, 1.2, 2.0),
]  # fmt: skip
limits = st.sampled_from(LIMITS)
loads = st.lists(st.floats(0.0, 80.0), min_size=4, max_size=4)


def _envelope(alpha: list[float], limit: tuple[float, float, float]) -> Envelope:
    """Returns one station that all classes load. Its reference is a class of middling alpha."""
    assume(max(alpha) > 0)
    own = np.array(alpha)[:, None]
    root = np.sqrt(own).mean(keepdims=True)[0]
    reference = _stations(root**2 if np.ptp(own) else own[0], limit)
    return Envelope(reference, _stations(own, limit), np.zeros(own.shape, int))


def _stations(alpha: np.ndarray, limit: tuple[float, float, float]) -> Stations:
    ceiling, seen, caution = limit
    return Stations(alpha, np.full_like(alpha, CAPACITY), ceiling, np.full_like(alpha, seen), caution)


def _cost(envelope: Envelope, n: np.ndarray) -> float:
    """Returns what the classes cost together, which is not convex."""
    u, seen = n.sum() / CAPACITY, float(envelope.stations.seen[0])
    factor = float(queue_factor(u)) + envelope.stations.caution * _unseen(u, seen)
    penalty = float(envelope.stations.beyond(np.array([n.sum()]))[0])
    return float((envelope.classes.alpha * n).sum() * factor) + penalty


def _unseen(u: float, seen: float) -> float:
    """Returns what the queue has above its tangent at `seen`."""
    edge = min(seen, U_LINEAR)
    line = float(queue_factor(edge)) + float(queue_slope(edge)) * (u - edge)
    return max(float(queue_factor(u)) - line, 0.0) if u > edge else 0.0


def _value(envelope: Envelope, n: np.ndarray) -> float:
    return float(envelope.cost(n)[0])


def _column(values: list[float], alpha: list[float]) -> np.ndarray:
    return np.array(values[: len(alpha)])[:, None]


@given(alphas, limits, loads)
def test_the_envelope_is_never_above_the_cost(alpha, ceiling, load):
    """Holds from idle to overload, and for classes that never queue."""
    envelope, n = _envelope(alpha, ceiling), _column(load, alpha)
    cost = _cost(envelope, n)
    assert _value(envelope, n) <= cost * (1 + 1e-9) + 1e-9


@given(alphas, limits, st.floats(0.0, 150.0), st.integers(0, 3))
def test_a_class_alone_costs_what_it_costs(alpha, ceiling, load, number):
    """The envelope equals the cost where only one class is at the station."""
    envelope, n = _envelope(alpha, ceiling), np.zeros((len(alpha), 1))
    n[number % len(alpha)] = load
    assert _value(envelope, n) == pytest.approx(_cost(envelope, n), rel=1e-6, abs=1e-6)


@given(alphas, limits, loads, loads, st.floats(0.0, 1.0))
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
    envelope, n = _envelope(alpha, FREE), _column(load, alpha)
    own, room = envelope.classes.alpha, CAPACITY - n.sum()
    root = float((np.sqrt(own) * n).sum()) / room
    assume(root < 40 * np.sqrt(min(alpha)))  # every class is below U_LINEAR
    expected = float((own * n).sum()) + room * root**2
    assert _value(envelope, n) == pytest.approx(expected, rel=1e-9)


@given(alphas, limits, loads, st.floats(0.0, 3.0))
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


@given(st.floats(0.01, 50.0), limits, loads)
def test_equal_classes_cost_their_sum(alpha, ceiling, load):
    """Where all alpha are equal the envelope is the cost itself, and all prices are the same."""
    envelope, n = _envelope([alpha] * 4, ceiling), _column(load, [alpha] * 4)
    assert envelope.even
    assert _value(envelope, n) == pytest.approx(_cost(envelope, n), rel=1e-12, abs=1e-12)
    prices = envelope.prices(envelope.reference(n))
    assert np.ptp(prices) == 0.0


@given(alphas, limits, st.floats(0.01, 150.0))
def test_pull_is_the_derivative_of_prices(alpha, ceiling, load):
    """Compared with the difference quotient."""
    assume(min(alpha) > 0 or np.isinf(ceiling[0]))  # else prices differ by less than their arithmetic
    envelope = _envelope(alpha, ceiling)
    price = envelope.stations.slope(np.array([load]))
    step = 1e-6 * price
    quotient = (envelope.prices(price + step) - envelope.prices(price)) / step
    assert np.allclose(envelope.pull(price), quotient, rtol=1e-3, atol=1e-3)


@given(alphas, limits, st.floats(0.0, 3.0), st.integers(0, 3))
def test_a_price_pays_for_the_load_that_has_it(alpha, ceiling, u, number):
    """`at` inverts `slope`, and `price` inverts `root`, on each side of every limit."""
    assume(abs(u - ceiling[0]) > 1e-4)  # the slope has a kink at the ceiling
    stations = _stations(np.array([alpha[number % len(alpha)]]), ceiling)
    assume(stations.alpha[0] > 0 or (np.isfinite(ceiling[0]) and u > ceiling[0] + 0.01))
    n = np.array([max(u, 1e-3) * CAPACITY])
    price = stations.slope(n)
    assert stations.at(price)[0] == pytest.approx(n[0], rel=1e-6)
    assert stations.price(stations.root(price))[0] == pytest.approx(price[0], rel=1e-6)
    step = 1e-6 * n
    assert stations.slope(n)[0] == pytest.approx(
        float((stations.phi(n + step) - stations.phi(n - step))[0] / (2 * step[0])), rel=1e-3
    )


@given(st.floats(0.01, 50.0), limits, st.floats(0.0, 2.0), st.floats(0.0, 2.0), st.floats(0.0, 1.0))
def test_load_alone_is_convex(alpha, ceiling, x, y, part):
    """A caution keeps the cost convex and increasing."""
    stations = _stations(np.array([alpha]), ceiling)
    low, high, mixed = (
        float(stations.phi(np.array([v * CAPACITY]))[0]) for v in (x, y, part * x + (1 - part) * y)
    )
    assert mixed <= (part * low + (1 - part) * high) * (1 + 1e-9) + 1e-9


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([np.inf, 0.4, 0.9, 0.99]),
    st.sampled_from([0.0, 0.3, 2.0, 100.0]),
)
def test_stations_of_one_array_do_not_disturb_each_other(seed, ceiling, caution):
    """Capacities, ranges and alphas are mixed, and the corner of the queue is no round number."""
    chance, count = np.random.default_rng(seed), 40
    alpha, capacity = chance.choice([0.0, 0.5, 8.0], count), 10 ** chance.uniform(0, 4, count)
    seen = np.where(chance.random(count) < 0.3, np.inf, chance.uniform(0.1, 1.2, count))
    stations = Stations(alpha, capacity, ceiling, seen, caution)
    u = chance.uniform(0.001, 3.0, count)
    paid = (alpha > 0) | (np.isfinite(ceiling) & (u > ceiling + 0.01))
    price = stations.slope(u * capacity)
    assert np.allclose((stations.at(price) / capacity)[paid], u[paid], rtol=1e-6)
    assert np.allclose(stations.price(stations.root(price))[paid], price[paid], rtol=1e-6)


@pytest.mark.parametrize("alpha", [1.0, 100.0, 1e4])
@pytest.mark.parametrize("ceiling", [0.3, 0.8, 0.95])
def test_a_price_beyond_the_ceiling_pays_for_the_load_whose_price_it_is(alpha, ceiling):
    """Holds at each of 2 000 capacities, whether U_LINEAR of it is rounded up or down."""
    r = np.random.default_rng(0)
    capacity = r.uniform(1, 1000, 2000)
    unseen = np.full_like(capacity, np.inf)
    stations = Stations(np.full_like(capacity, alpha), capacity, ceiling, unseen, 0.0)
    load = capacity * r.uniform(ceiling, 1.3, len(capacity))
    price = stations.slope(load)
    assert np.allclose(stations.at(price), load, rtol=1e-9)
    assert np.allclose(stations.price(stations.root(price)), price, rtol=1e-9)
