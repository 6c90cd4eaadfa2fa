"""One step of PAPA as a computation on values (SLATE 4.4.2, appendix F). Pure.

The paper's "ruleset" is one rule here: the split of one class from one service in one cluster.

Signs: the formulas printed in the paper are garbled. Discrepancy d = (expected - observed) * rps is
positive where a destination is faster than predicted. So over-performers have d >= mean, and weight
leaves the others:

    w' = w - gamma * (mean - d) / S_U   for d <  mean, S_U = sum over under-performers of (mean - d)
    w' = w + gamma * (d - mean) / S_O   for d >= mean, S_O = sum over over-performers of (d - mean)

S_U = S_O, so the sum of the weights does not change.

In the direction of costs, d is minus the cost of one more request there: the model's marginal cost
at the load of the moment, with the calls that it causes along the rules in force, and what observed
times exceed expected ones by. At the model's optimum marginal costs are equal, so only gaps differ,
as in the paper. Away from it, for example where an overload was not foreseen, an overloaded
destination that is no worse than the model says is not taken for a good one.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from spillway_optimizer.problem.rules import TOTAL, RuleKey, Rules, Weights, changed, largest_remainder

Direction = Literal["gap", "cost"]


@dataclass(frozen=True)
class Parameters:
    """Parameters of PAPA. The defaults are those of SLATE 4.4.2, with steps of one size."""

    gamma: float = 0.05  # share of a rule's weight that one step moves
    gamma_most: float = 0.05  # each step that is kept doubles the rule's next one, up to this
    direction: Direction = "gap"  # the paper's
    theta: int = 3  # failed attempts before a rule counts as converged
    delta_perf: float = 0.10  # relative change of any class's latency that restarts exploration
    min_gap_ms: float = 1.0  # spread of per-request discrepancies below which nothing is done
    sigma: float = 2.0  # the same minimum, in standard errors of that spread


@dataclass(frozen=True)
class Observation:
    """One destination of a rule: a value for each sample, in ms.

    Times are exclusive time plus network time.
    """

    gaps_ms: Sequence[float]  # expected minus observed time; positive: faster than expected
    costs_ms: Sequence[float] = ()  # of one more request; see the module

    @property
    def gap_ms(self) -> float:
        return float(np.mean(self.gaps_ms))

    def score_ms(self, direction: Direction) -> float:
        """Returns the mean of what the direction compares; more is better."""
        return float(np.mean(self._scores(direction)))

    def error_ms(self, direction: Direction) -> float:
        """Returns the standard error of the mean. Infinite with fewer than two samples."""
        scores = self._scores(direction)
        n = len(scores)
        return float(np.std(scores, ddof=1)) / math.sqrt(n) if n > 1 else math.inf

    def _scores(self, direction: Direction) -> Sequence[float]:
        return self.gaps_ms if direction == "gap" else [-cost for cost in self.costs_ms]


Observations = Mapping[str, Observation]  # by destination cluster


@dataclass(frozen=True)
class Progress:
    """What PAPA remembers of its rules between steps.

    These are failed attempts, converged rules, and the sizes of next steps that are not gamma.
    """

    attempts: Mapping[RuleKey, int]
    converged: frozenset[RuleKey]
    sizes: Mapping[RuleKey, float] = field(default_factory=dict)

    @classmethod
    def none(cls) -> "Progress":
        return cls({}, frozenset())


def discrepancies(
    weights: Weights, observed: Observations, rule_rps: float, direction: Direction = "gap"
) -> dict[str, float]:
    """Returns d of every destination with weight, in ms per second. Step 1 of the paper.

    The paper weighs gaps by volume. A cost is that of one more request, so it is not weighed.
    """
    return {
        c: observed[c].score_ms(direction) * rule_rps * (weights[c] / TOTAL if direction == "gap" else 1.0)
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
    # What has no more than the least share cannot give, and hinders no other.
    while poor := [c for c in names if weights[c] <= least and d[c] < np.mean([d[o] for o in names])]:
        names = [c for c in names if c not in poor]
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
    """Returns whether best and worst destination differ by more than noise and min_gap_ms."""
    used = [observed[c] for c in sorted(weights) if weights[c] > 0 and c in observed]
    if len(used) < 2:
        return False
    direction = parameters.direction
    scores = [each.score_ms(direction) for each in used]
    best, worst = used[int(np.argmax(scores))], used[int(np.argmin(scores))]
    spread = max(scores) - min(scores)
    error = math.hypot(best.error_ms(direction), worst.error_ms(direction))
    return spread > parameters.min_gap_ms and spread > parameters.sigma * error


def gain(weights: Weights, after: Weights, observed: Observations, rule_rps: float) -> float:
    """Returns what costs say that a change of weights saves, in ms per second."""
    return rule_rps * sum(
        (weights[c] - after[c]) / TOTAL * -observed[c].score_ms("cost") for c in weights if c in observed
    )


def choose(
    rules: Rules,
    observed: Mapping[RuleKey, Observations],
    rps: Mapping[RuleKey, float],
    progress: Progress,
    parameters: Parameters,
    least: int = 0,
) -> RuleKey | None:
    """Returns the rule that promises most, among those not converged.

    By gaps it is the one whose discrepancies vary most, as in the paper. By costs it is the one
    whose next step saves most; `least` is that of `shift`. None if no rule's are significant.
    """

    def promise(key: RuleKey) -> float:
        weights, rule_rps = rules[key], rps.get(key, 0.0)
        d = discrepancies(weights, observed[key], rule_rps, parameters.direction)
        if parameters.direction == "gap":
            return float(np.var(list(d.values())))
        after = shift(weights, d, progress.sizes.get(key, parameters.gamma), least)
        return gain(weights, after, observed[key], rule_rps)

    open_ = [
        key
        for key, weights in sorted(rules.items())
        if key in observed
        and key not in progress.converged
        and significant(observed[key], weights, parameters)
    ]
    return max(open_, key=promise, default=None)


def judge(progress: Progress, key: RuleKey, improved: bool, parameters: Parameters) -> Progress:
    """Counts an attempt.

    A success resets the failure count. `theta` failures in a row make the rule converged. A failure
    of a longer step than gamma does not count: the next one is as long as gamma again.
    """
    sizes = {other: size for other, size in progress.sizes.items() if other != key}
    size = progress.sizes.get(key, parameters.gamma)
    if improved:
        longer = min(2 * size, parameters.gamma_most)
        sizes |= {key: longer} if longer > parameters.gamma else {}
        return Progress({**progress.attempts, key: 0}, progress.converged, sizes)
    if size > parameters.gamma:
        return Progress(progress.attempts, progress.converged, sizes)
    attempts = {**progress.attempts, key: progress.attempts.get(key, 0) + 1}
    converged = progress.converged | ({key} if attempts[key] >= parameters.theta else set())
    return Progress(attempts, frozenset(converged), sizes)


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
    """Returns the progress without what it has of these rules."""
    attempts = {key: count for key, count in progress.attempts.items() if key not in keys}
    sizes = {key: size for key, size in progress.sizes.items() if key not in keys}
    return Progress(attempts, progress.converged - set(keys), sizes)
