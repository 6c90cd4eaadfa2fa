"""Judges a change by a sequential test, whose result may be read after every sample. Pure.

The test is the two-sample t-test as an e-process. The model: samples before and after the change
are normal, with one unknown mean and one unknown variance. Under the alternative, the change shifts
the mean by `delta` standard deviations, and delta is distributed as N(0, effect²). With the right
Haar prior on mean and scale, the ratio of the two likelihoods has a closed form:

    n = n0 n1 / (n0 + n1)      D = mean1 - mean0      T = sum of squares about the common mean

    e = (1 + n g)^(-1/2) * (1 - g n² D² / ((1 + n g) T))^(-(n0 + n1 - 1) / 2)      g = effect²

Without a change, `e` is a nonnegative martingale that starts at 1. The probability that it ever
reaches 1/alpha is therefore at most alpha (Ville's inequality), whenever the result is read or the
test is stopped.

Sources: T. L. Lai, "On confidence sequences", Ann. Statist. 4(2), 1976. A. Hendriksen, R. de Heide,
P. Grünwald, "Optional stopping with Bayes factors", Bayesian Analysis 16(3), 2021: right Haar
priors keep the guarantee. H. Wang, A. Ramdas, "Anytime-valid t-tests and confidence sequences for
Gaussian means with unknown variance", 2024.

Samples must be independent of each other. Use one sample per window, and windows that do not
overlap: a board that averages the last 6 s gives one sample in 6 s. Simulations in
tests/unit/test_sequential.py check the error rate, also for skewed and slightly correlated noise.
"""

import math
from dataclasses import dataclass, field
from enum import Enum

# Minimum number of samples on each side before a verdict. A single outlier must not decide.
LEAST = 3


class Verdict(Enum):
    """The result of a test. The samples are costs."""

    BETTER = "better"  # lower costs
    WORSE = "worse"  # higher costs
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Samples:
    """Count, mean and sum of squared deviations of the samples so far (Welford)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> "Samples":
        """Returns the samples with one more. Raises ValueError for a value that is not finite."""
        if not math.isfinite(value):
            raise ValueError(f"sample: {value}; must be finite")
        count, away = self.count + 1, value - self.mean
        mean = self.mean + away / count
        return Samples(count, mean, self.squares + away * (value - mean))


@dataclass
class Judge:
    """Compares samples of a cost, where lower is better, before and after one change.

    `alpha`: upper bound of the probability that a change without effect is ever judged better or
    worse. `margin`: differences up to this value count as no effect, in the unit of the samples.
    `effect`: the size of change that is detected soonest, in standard deviations of one sample.
    Once a verdict is reached, it does not change.
    """

    alpha: float = 0.05
    margin: float = 0.0
    effect: float = 1.5
    before: Samples = field(default_factory=Samples)
    after: Samples = field(default_factory=Samples)
    verdict: Verdict = Verdict.UNDECIDED

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise ValueError(f"alpha: {self.alpha}; must be above 0 and below 1")
        if not (self.margin >= 0 and self.effect > 0):
            raise ValueError(f"margin, effect: {self.margin}, {self.effect}; must be at least 0, and above 0")

    def add_before(self, value: float) -> Verdict:
        """Adds a sample from before the change. Raises ValueError if it is not finite."""
        self.before = self.before.add(value)
        return self._judge()

    def add_after(self, value: float) -> Verdict:
        """Adds a sample from after the change. Raises ValueError if it is not finite."""
        self.after = self.after.add(value)
        return self._judge()

    @property
    def difference(self) -> float:
        """The mean after minus the mean before. NaN until both have a sample."""
        known = self.before.count and self.after.count
        return self.after.mean - self.before.mean if known else math.nan

    def _judge(self) -> Verdict:
        if self.verdict is Verdict.UNDECIDED and min(self.before.count, self.after.count) >= LEAST:
            beyond = abs(self.difference) - self.margin
            if beyond > 0 and log_evidence(self.before, self.after, beyond, self.effect) >= -math.log(
                self.alpha
            ):
                self.verdict = Verdict.WORSE if self.difference > 0 else Verdict.BETTER
        return self.verdict


def log_evidence(before: Samples, after: Samples, difference: float, effect: float) -> float:
    """Returns the natural logarithm of `e` (see the module docstring) for this difference of means.

    Returns 0, which means no evidence, until both sides have a sample.
    """
    total = before.count + after.count
    if not before.count or not after.count or not difference:
        return 0.0
    n, g = before.count * after.count / total, effect * effect
    between = n * difference * difference
    explained = g * n * between / ((1 + n * g) * (before.squares + after.squares + between))
    return -0.5 * math.log1p(n * g) - 0.5 * (total - 1) * math.log1p(-explained)
