"""The sequential test in simulations.

They measure how often noise passes it, and how soon it finds a clear change.
"""

import math

import numpy as np
import pytest
from spillway_optimizer.judging.sequential import Judge, Samples, Verdict

BEFORE, LOOKS = 8, 40


def judged(noise: np.ndarray, change: float = 0.0, **settings) -> tuple[Verdict, int]:
    """Returns the verdict, read after every sample, and the number of samples after the change."""
    judge = Judge(**settings)
    for value in noise[:BEFORE]:
        judge.add_before(float(value))
    for looks, value in enumerate(noise[BEFORE:], 1):
        verdict = judge.add_after(float(value) + change)
        if verdict is not Verdict.UNDECIDED:
            return verdict, looks
    return Verdict.UNDECIDED, len(noise) - BEFORE


def correlated(rng, size: int, r: float) -> np.ndarray:
    values = rng.standard_normal(size)
    for i in range(1, size):
        values[i] = r * values[i - 1] + math.sqrt(1 - r * r) * values[i]
    return values


NOISE = {
    "normal": lambda rng, size: 50 + 3 * rng.standard_normal(size),
    "skewed as latencies are": lambda rng, size: rng.lognormal(4, 0.5, size),
    "correlated by 0.2": lambda rng, size: correlated(rng, size, 0.2),
}


@pytest.mark.parametrize("name", NOISE)
@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_noise_passes_no_more_often_than_alpha_though_it_is_looked_at_after_every_sample(name, alpha):
    """1 500 runs with 40 looks each. Three standard errors of the count are allowed."""
    rng, runs = np.random.default_rng(7), 1500
    wrong = sum(
        judged(NOISE[name](rng, BEFORE + LOOKS), alpha=alpha)[0] is not Verdict.UNDECIDED for _ in range(runs)
    )
    assert wrong / runs <= alpha + 3 * math.sqrt(alpha * (1 - alpha) / runs)


def test_a_comparison_of_two_means_passes_noise_half_of_the_time():
    """This is the comparison that the test replaces: lower is as likely as higher."""
    rng, runs = np.random.default_rng(7), 1000
    below = sum(rng.standard_normal(16)[8:].mean() < rng.standard_normal(8).mean() for _ in range(runs))
    assert 0.4 < below / runs < 0.6


@pytest.mark.parametrize("change, within", [(2.5, 16), (4.0, 8)])
def test_a_clear_change_is_found_within_a_few_windows(change, within):
    """It is found in nine of ten runs. The direction is right in all of them."""
    rng, runs = np.random.default_rng(3), 300
    for sign, expected in ((1, Verdict.WORSE), (-1, Verdict.BETTER)):
        found = [judged(rng.standard_normal(BEFORE + LOOKS), sign * change) for _ in range(runs)]
        assert sum(verdict is expected and looks <= within for verdict, looks in found) >= 0.9 * runs
        assert all(verdict in (expected, Verdict.UNDECIDED) for verdict, _ in found)


def test_a_worse_change_is_called_better_no_more_often_than_alpha():
    """This also holds one-sided.

    A slightly worse change is not judged better more often than a change without effect.
    """
    rng, runs = np.random.default_rng(5), 1000
    found = [judged(rng.standard_normal(BEFORE + LOOKS), 0.3)[0] for _ in range(runs)]
    assert found.count(Verdict.BETTER) <= 0.025 * runs


def test_differences_within_the_margin_are_no_change():
    """The margin is one standard deviation.

    A change of 0.8 passes no more often than alpha, and a change of 5 is found.
    """
    rng, runs = np.random.default_rng(11), 600
    small = sum(
        judged(rng.standard_normal(48), 0.8, margin=1.0)[0] is not Verdict.UNDECIDED for _ in range(runs)
    )
    assert small <= 0.07 * runs
    assert judged(rng.standard_normal(48), 5.0, margin=1.0)[0] is Verdict.WORSE


def test_values_without_any_spread_are_decided_by_their_number():
    """Equal values give no evidence. Two different constants are told apart after a few samples."""
    assert judged(np.full(48, 20.0))[0] is Verdict.UNDECIDED
    verdict, looks = judged(np.full(48, 20.0), -1.0)
    assert verdict is Verdict.BETTER and looks <= 4


def test_the_order_of_samples_and_the_unit_do_not_matter():
    """The evidence is the same in milliseconds and seconds, and if before and after are mixed."""
    values = np.random.default_rng(2).standard_normal(20)
    assert judged(values, 3.0) == judged(values * 1000, 3000.0)
    a, b = Judge(), Judge()
    for value in values[:10]:
        a.add_before(value)
    for value in values[10:]:
        a.add_after(value)
    for first, second in zip(values[:10], values[10:], strict=True):
        b.add_after(second)
        b.add_before(first)
    assert a.difference == pytest.approx(b.difference)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_is_no_number_is_refused(value):
    """Such a value would invalidate every later verdict."""
    with pytest.raises(ValueError, match="must be finite"):
        Samples().add(value)
    with pytest.raises(ValueError, match="alpha"):
        Judge(alpha=1.0)
