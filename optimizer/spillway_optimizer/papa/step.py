"""One step of PAPA as a computation on values (SLATE 4.4.2, appendix F). Pure.

The paper's "ruleset" is one rule here: the split of one class from one service in one cluster.

Signs: the formulas printed in the paper are garbled. Discrepancy d = (expected - observed) * rps is
positive where a destination is faster than predicted. So over-performers have d >= mean, and weight
leaves the others:

    w' = w - gamma * (mean - d) / S_U   for d <  mean, S_U = sum over under-performers of (mean - d)
    w' = w + gamma * (d - mean) / S_O   for d >= mean, S_O = sum over over-performers of (d - mean)

S_U = S_O, so the sum of the weights does not change.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spillway_optimizer.problem.rules import TOTAL, RuleKey, Rules, Weights, changed, largest_remainder


@dataclass(frozen=True)
class Parameters:
    """Parameters of PAPA. The defaults are those of SLATE 4.4.2."""

    gamma: float = 0.05  # share of a rule's weight that one step moves
    theta: int = 3  # failed attempts before a rule counts as converged
    delta_perf: float = 0.10  # relative change of any class's latency that restarts exploration
    min_gap_ms: float = 1.0  # spread of per-request discrepancies below which nothing is done
    sigma: float = 2.0  # the same minimum, in standard errors of that spread


@dataclass(frozen=True)
class Observation:
    """The expected time of one destination of a rule, and samples of its observed time.

    Both are exclusive time plus network time, in ms.
    """

    expected_ms: float
    observed_ms: Sequence[float]

    @property
    def gap_ms(self) -> float:
        """Expected minus mean observed time. Positive: faster than expected."""
        return self.expected_ms - float(np.mean(self.observed_ms))

    @property
    def error_ms(self) -> float:
        """The standard error of the mean. Infinite with fewer than two samples."""
        n = len(self.observed_ms)
        return float(np.std(self.observed_ms, ddof=1)) / math.sqrt(n) if n > 1 else math.inf


Observations = Mapping[str, Observation]  # by destination cluster


@dataclass(frozen=True)
class Progress:
    """What PAPA remembers of its rules between steps: failed attempts, and converged rules."""

    attempts: Mapping[RuleKey, int]
    converged: frozenset[RuleKey]

    @classmethod
    def none(cls) -> "Progress":
        return cls({}, frozenset())


def discrepancies(weights: Weights, observed: Observations, rule_rps: float) -> dict[str, float]:
    """Returns d of every destination with weight, in ms per second. Step 1 of the paper."""
    return {
        c: observed[c].gap_ms * rule_rps * weights[c] / TOTAL
        for c in sorted(weights)
        if weights[c] > 0 and c in observed
    }


def shift(weights: Weights, d: Mapping[str, float], gamma: float, least: int = 0) -> dict[str, int]:
    """Returns the weights after one step.

    They are integers that sum to TOTAL, and no destination is added. None that gives falls below
    `least`, in parts of TOTAL, or below 0. Equal discrepancies, or fewer than two destinations,
    change nothing.
    """
    names = sorted(d)
    values = np.array([d[c] for c in names])
    if len(names) < 2 or np.ptp(values) <= 0:
        return dict(weights)
    before = np.array([weights[c] / TOTAL for c in names])
    # Positive for under-performers: how much of the step each gives.
    away = values.mean() - values
    under = away > 0
    given = np.where(under, away, 0.0) / away[under].sum()
    taken = np.where(under, 0.0, -away) / -away[~under].sum()
    # The whole step shrinks where a weight would fall too low, so that the sum does not change.
    room = np.maximum(before - least / TOTAL, 0.0)
    bound = float((room[under] / given[under]).min())
    after = before + min(gamma, bound) * (taken - given)
    total = sum(weights[c] for c in names)
    moved = largest_remainder(np.maximum(after, 0.0), total)
    return {**weights, **{c: int(w) for c, w in zip(names, moved, strict=True)}}


def significant(observed: Observations, weights: Weights, parameters: Parameters) -> bool:
    """Returns whether the largest and the smallest gap differ by more than noise and min_gap_ms."""
    used = [observed[c] for c in sorted(weights) if weights[c] > 0 and c in observed]
    if len(used) < 2:
        return False
    best, worst = max(used, key=lambda o: o.gap_ms), min(used, key=lambda o: o.gap_ms)
    spread = best.gap_ms - worst.gap_ms
    error = math.hypot(best.error_ms, worst.error_ms)
    return spread > parameters.min_gap_ms and spread > parameters.sigma * error


def choose(
    rules: Rules,
    observed: Mapping[RuleKey, Observations],
    rps: Mapping[RuleKey, float],
    progress: Progress,
    parameters: Parameters,
) -> RuleKey | None:
    """Returns the rule whose discrepancies vary most, among those not converged.

    None if no rule's discrepancies are significant.
    """
    variances = {
        key: float(np.var(list(discrepancies(weights, observed[key], rps.get(key, 0.0)).values())))
        for key, weights in rules.items()
        if key in observed
        and key not in progress.converged
        and significant(observed[key], weights, parameters)
    }
    return max(sorted(variances), key=lambda key: variances[key], default=None)


def judge(progress: Progress, key: RuleKey, improved: bool, parameters: Parameters) -> Progress:
    """Counts an attempt.

    A success resets the failure count. `theta` failures in a row make the rule converged.
    """
    attempts = {**progress.attempts, key: 0 if improved else progress.attempts.get(key, 0) + 1}
    converged = progress.converged | ({key} if attempts[key] >= parameters.theta else set())
    return Progress(attempts, frozenset(converged))


def restart(
    progress: Progress,
    rules_before: Rules,
    rules_now: Rules,
    latency_before: Mapping[str, float],
    latency_now: Mapping[str, float],
    parameters: Parameters,
) -> Progress:
    """Forgets convergence if others changed rules or any latency moved (appendix F, line 7).

    A rule that others changed by even a little loses its convergence and its failed attempts.
    """
    if changed(rules_before, rules_now):
        return Progress.none()
    for key in latency_before.keys() & latency_now.keys():
        if abs(latency_now[key] - latency_before[key]) > parameters.delta_perf * max(
            latency_before[key], 1e-9
        ):
            return Progress.none()
    return without(progress, changed(rules_before, rules_now, delta=0))


def without(progress: Progress, keys: Collection[RuleKey]) -> Progress:
    """Returns the progress without the attempts and convergence of these rules."""
    attempts = {key: count for key, count in progress.attempts.items() if key not in keys}
    return Progress(attempts, progress.converged - set(keys))
