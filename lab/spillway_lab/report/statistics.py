"""Figures of the policies of a run with 95 % intervals, and how two policies compare. Pure.

An interval has two parts. Within rounds, a block bootstrap gives the spread (`resampling.py`).
Between rounds, what their own figures differ by beyond that spread is added, with Student's t for
the number of rounds: the random effects of DerSimonian and Laird, Meta-analysis in clinical trials
(1986), with the t of Hartung and Knapp (2001). ADR 52 has what was tried beside it, and how often
these intervals contain the true value.

A failed request counts in the latencies with the client's timeout, so latencies of policies that
fail requests are lower bounds. What is not known is None, never 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

import numpy as np

from spillway_lab.report import resampling
from spillway_lab.report.resampling import Statistic
from spillway_lab.report.results import Run
from spillway_lab.report.round_samples import RoundSamples

Metric = Literal["mean_ms", "p50_ms", "p90_ms", "p99_ms", "failed_share", "egress_usd_per_hour"]
METRICS: tuple[Metric, ...] = get_args(Metric)
LEVEL = 0.95
_SEED = 1
_Z = 1.959964  # the standard normal's quantile at 97.5 %


@dataclass(frozen=True)
class Estimate:
    """A figure and the bounds of its 95 % interval; None where unknown.

    The value of one round is known, but not its interval: nothing shows how rounds differ.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def bounded(self) -> bool:
        """Whether the interval is known."""
        return self.low is not None and self.high is not None


UNKNOWN = Estimate()


class Comparison:
    """The policies of one run. Figures are computed when they are asked for, and kept.

    `samples` are those of `run.rounds`, in their order. The same run gives the same figures.
    """

    def __init__(self, run: Run, samples: Sequence[RoundSamples]) -> None:
        self._measured_s = run.measured_seconds
        self._samples: dict[str, dict[int, RoundSamples]] = {}
        self._egress: dict[str, dict[int, float]] = {}
        for each, columns in zip(run.rounds, samples, strict=True):
            self._samples.setdefault(each.policy, {})
            if len(columns):
                self._samples[each.policy][each.repetition] = columns
            if each.egress_usd_per_hour is not None:
                self._egress.setdefault(each.policy, {})[each.repetition] = each.egress_usd_per_hour
        self._draws: dict[int, np.ndarray] = {}
        self._known: dict[tuple[str, tuple[int, ...]], Mapping[str, Statistic]] = {}

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies of the run, in the order of their first rounds."""
        return tuple(self._samples)

    def rounds(self, policy: str, metric: Metric) -> tuple[int, ...]:
        """Returns the repetitions that show this figure of a policy, ascending."""
        source = self._egress if metric == "egress_usd_per_hour" else self._samples
        return tuple(sorted(source.get(policy, {})))

    def estimate(self, policy: str, metric: Metric) -> Estimate:
        """Returns a figure of a policy. Latencies are unknown if every request failed."""
        found = self._statistic(policy, metric, self.rounds(policy, metric))
        if found is None:
            return UNKNOWN
        if metric == "failed_share":
            requests = sum(len(each) for each in self._samples[policy].values())
            bounds = _interval(found)
            return _estimate(found.value, bounds and _widened(bounds, found.value, requests))
        logarithms = _logarithms(found)
        if logarithms is None:
            return _estimate(found.value, _interval(found))
        bounds = _interval(logarithms)
        return _estimate(found.value, bounds and np.exp(bounds))

    def ratio(self, numerator: str, denominator: str, metric: Metric) -> Estimate:
        """Returns a figure of one policy over that of another, paired by repetition.

        Unknown if a figure is unknown or 0 under one of them. The interval is also unknown if one
        is 0 in a round or a replicate.
        """
        pair = self._pair(numerator, denominator, metric)
        if pair is None or pair[0].value <= 0 or pair[1].value <= 0:
            return UNKNOWN
        first, second = _logarithms(pair[0]), _logarithms(pair[1])
        bounds = _interval(_minus(first, second)) if first and second else None
        return _estimate(pair[0].value / pair[1].value, bounds and np.exp(bounds))

    def difference(self, first: str, second: str, metric: Metric) -> Estimate:
        """Returns a figure of one policy minus that of another, paired by repetition."""
        pair = self._pair(first, second, metric)
        if pair is None:
            return UNKNOWN
        found = _minus(*pair)
        return _estimate(found.value, _interval(found))

    def _pair(self, first: str, second: str, metric: Metric) -> tuple[Statistic, Statistic] | None:
        """Returns the figures of the repetitions that both policies have."""
        both = tuple(sorted({*self.rounds(first, metric)} & {*self.rounds(second, metric)}))
        found = self._statistic(first, metric, both), self._statistic(second, metric, both)
        return None if found[0] is None or found[1] is None else (found[0], found[1])

    def _statistic(self, policy: str, metric: Metric, repetitions: tuple[int, ...]) -> Statistic | None:
        if not repetitions:
            return None
        if metric == "egress_usd_per_hour":
            values = np.array([self._egress[policy][repetition] for repetition in repetitions])
            return Statistic(float(values.mean()), np.full(resampling.DRAWS, values.mean()), values)
        key = (policy, repetitions)
        if key not in self._known:
            rounds = [self._samples[policy][repetition] for repetition in repetitions]
            draws = [self._drawn(repetition) for repetition in repetitions]
            self._known[key] = resampling.statistics(rounds, draws, self._measured_s)
        found = self._known[key]
        all_failed = found["failed_share"].value == 1
        return None if all_failed and metric in resampling.LATENCIES else found[metric]

    def _drawn(self, repetition: int) -> np.ndarray:
        if repetition not in self._draws:
            blocks = resampling.blocks_of(self._measured_s)
            self._draws[repetition] = resampling.block_draws(blocks, _SEED, repetition)
        return self._draws[repetition]


def _interval(found: Statistic) -> tuple[float, float] | None:
    """Returns the interval of a figure, on the scale that it is given on; None for one round."""
    rounds = len(found.rounds)
    if rounds < 2:
        return None
    between = float(np.var(found.rounds, ddof=1)) / rounds - float(np.var(found.replicates))
    spread = found.replicates + np.sqrt(max(0.0, between)) * _student(rounds - 1)
    low, high = np.quantile(spread, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


@cache
def _student(freedom: int) -> np.ndarray:
    """Returns values of Student's t at even ranks, in random order, shape (draws,)."""
    random = np.random.default_rng([_SEED, freedom])
    values = np.sort(random.standard_t(freedom, size=(resampling.DRAWS, 101)), axis=None)
    return random.permutation(values[50::101])


def _logarithms(found: Statistic) -> Statistic | None:
    """Returns a figure on the logarithmic scale; None if a part of it is 0."""
    if found.value <= 0 or (found.replicates <= 0).any() or (found.rounds <= 0).any():
        return None
    return Statistic(float(np.log(found.value)), np.log(found.replicates), np.log(found.rounds))


def _minus(first: Statistic, second: Statistic) -> Statistic:
    return Statistic(
        first.value - second.value, first.replicates - second.replicates, first.rounds - second.rounds
    )


def _widened(bounds: tuple[float, float], share: float, requests: int) -> tuple[float, float]:
    """Returns bounds that contain Wilson's interval too: none of few is not never."""
    centre = (share + _Z**2 / (2 * requests)) / (1 + _Z**2 / requests)
    half = _Z * np.sqrt(share * (1 - share) / requests + (_Z / (2 * requests)) ** 2) / (1 + _Z**2 / requests)
    return max(0.0, min(bounds[0], centre - half)), min(1.0, max(bounds[1], centre + half))


def _estimate(value: float, bounds: Sequence[float] | np.ndarray | None) -> Estimate:
    """Returns a figure with its bounds, which contain it whatever rounding does."""
    if bounds is None:
        return Estimate(value)
    return Estimate(value, min(float(bounds[0]), value), max(float(bounds[1]), value))
