"""The cost of several classes at a station whose load is on a piece of its range."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from spillway_optimizer.problem.objective import extrapolated, queue_factor
from spillway_optimizer.programmes.pieces import Piece
from spillway_optimizer.solvers.stations import Stations

CAPACITY = 100.0
alphas = st.lists(st.floats(0.01, 50.0), min_size=2, max_size=4)
# Utilisation ceiling, highest utilisation that was seen, caution beyond it.
limits = st.sampled_from(
    [(np.inf, np.inf, 0.0), (0.5, np.inf, 0.0), (0.9, np.inf, 0.0), (np.inf, 0.6, 2.0), (0.9, 0.5, 5.0)]
)
mixes = st.lists(st.floats(0.0, 1.0), min_size=4, max_size=4)
ends = st.tuples(st.floats(0.0, 150.0), st.floats(0.1, 60.0))


def _piece(alpha: list[float], limit: tuple[float, float, float], end: tuple[float, float]) -> Piece:
    own = np.array(alpha)
    ceiling, seen, caution = limit
    stations = Stations(own, np.full_like(own, CAPACITY), ceiling, np.full_like(own, seen), caution)
    return Piece(stations, end[0], end[0] + end[1])


def _loads(piece: Piece, mix: list[float], at: float) -> np.ndarray:
    """Returns loads with these proportions, whose sum is `at` of the way through the piece."""
    shares = np.array(mix[: len(piece.classes.alpha)])
    assume(shares.sum() > 0.01)
    return shares / shares.sum() * (piece.low + at * (piece.high - piece.low))


def _cost(piece: Piece, n: np.ndarray) -> float:
    classes, total = piece.classes, n.sum()
    penalty = float(classes.beyond(np.array([total]))[0]) if np.isfinite(classes.ceiling) else 0.0
    u, seen = np.array(total / CAPACITY), classes.seen[0]
    factor = queue_factor(u) + (classes.caution * extrapolated(u, seen)[0] if classes.caution else 0.0)
    return float((classes.alpha * n).sum() * factor) + penalty


def _value(piece: Piece, n: np.ndarray, theta: float) -> float:
    """Returns the tangent of `theta` at these loads."""
    return float((piece.prices(theta) * n).sum()) - theta


@given(alphas, limits, mixes, ends, st.floats(0.0, 1.0), st.floats(-0.5, 3.0))
def test_every_tangent_is_below_the_cost(alpha, ceiling, mix, end, at, factor):
    """Holds for any theta and any loads on the piece."""
    piece = _piece(alpha, ceiling, end)
    n = _loads(piece, mix, at)
    cost, best = _cost(piece, n), piece.best(n)
    for theta in (best, best * factor, *piece.thetas(3)):
        if theta >= 0 or piece.low > 0:
            assert _value(piece, n, theta) <= cost * (1 + 1e-7) + 1e-6


@given(alphas, limits, mixes, ends, st.sampled_from([0.0, 1.0]))
def test_the_ends_of_a_piece_are_exact(alpha, ceiling, mix, end, at):
    """Where the load is an end of the piece, the best tangent equals the cost of any mixture."""
    piece = _piece(alpha, ceiling, end)
    n = _loads(piece, mix, at)
    assert _value(piece, n, piece.best(n)) == pytest.approx(_cost(piece, n), rel=1e-4, abs=1e-4)


@given(alphas, limits, mixes, ends, st.floats(0.0, 1.0))
def test_a_smaller_piece_is_tighter(alpha, ceiling, mix, end, at):
    """Half a piece is never below the whole one."""
    piece = _piece(alpha, ceiling, end)
    n = _loads(piece, mix, at)
    half = piece.split(0.5 * (piece.low + piece.high))[int(at > 0.5)]
    whole = _value(piece, n, piece.best(n))
    assert _value(half, n, half.best(n)) >= whole - 1e-6 * abs(whole) - 1e-6
