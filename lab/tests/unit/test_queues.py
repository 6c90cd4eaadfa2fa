"""Formulas of queues have the values of textbooks, for numbers and for arrays."""

import numpy as np
import pytest
from spillway_lab.scenario import queues


@pytest.mark.parametrize(
    ("workers", "load", "expected"),
    # M/M/1: the utilisation. The others are from tables of the Erlang C formula.
    [(1, 0.5, 0.5), (2, 1.0, 1 / 3), (4, 3.6, 0.7878), (10, 8.0, 0.4092), (4, 0.0, 0.0)],
)
def test_the_probability_of_waiting_is_erlangs(workers: int, load: float, expected: float) -> None:
    """`load` is the arrival rate times the service time."""
    assert queues.erlang_c(workers, load / workers) == pytest.approx(expected, abs=2e-4)
    assert queues.erlang_c(workers, np.array([load / workers])) == pytest.approx([expected], abs=2e-4)


@pytest.mark.parametrize(
    ("workers", "u", "cv2", "expected"),
    [
        (1, 0.5, 1.0, 1.0),
        (1, 0.9, 1.0, 9.0),
        (2, 0.5, 1.0, 1 / 3),
        (4, 0.9, 1.0, 1.969),
        (1, 0.5, 0.0, 0.5),  # constant times: half as long
        (1, 0.5, 3.0, 2.0),  # Pollaczek and Khinchine: (1 + cv2) / 2 times as long
    ],
)
def test_mean_waits_are_erlangs(workers: int, u: float, cv2: float, expected: float) -> None:
    """In units of the service time."""
    assert queues.wait_ms(workers, 1.0, cv2, u) == pytest.approx(expected, rel=1e-3)


def test_a_curve_is_found_again_and_the_certain_points_decide() -> None:
    """Points of a curve give its a and b. One that is off hardly counts if it is uncertain."""
    u = np.array([0.1, 0.3, 0.5, 0.8])
    latency = 4 / (1 - u) + 3
    assert queues.curve(u, latency, np.ones(4)) == pytest.approx((4, 3))
    latency[1] *= 2
    assert queues.curve(u, latency, np.array([1, 1e-6, 1, 1])) == pytest.approx((4, 3), rel=1e-3)
    assert queues.curve(u, latency, np.ones(4)) != pytest.approx((4, 3), rel=0.05)
