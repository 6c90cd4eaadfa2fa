"""Trials of changes to an application's rules, and the memory of a change that was worse. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from spillway_optimizer.judging.sequential import LEAST, Judge, Samples, Verdict
from spillway_optimizer.problem.rules import OTHERS_DELTA, Rules, Weights

# Samples. _MOST_LEANING applies while they are higher than before the change.
_MOST_AFTER, _MOST_LEANING = 20, 60
_ALPHA = 0.01
# _MARGIN is relative to the cost before. Smaller differences count as none.
_MARGIN, _LEAST_MARGIN_MS = 0.05, 1.0


@dataclass(frozen=True)
class Sample:
    """Costs in ms per entry request, including egress and failures."""

    at: float  # Unix seconds
    observed_ms: float
    predicted_ms: float
    demand_rps: float


@dataclass(frozen=True)
class Trial:
    """A change that is being judged."""

    since: float  # time of its last step, Unix seconds
    before: Rules  # rules before its first step
    after: Rules
    demand_rps: float
    observed: Judge
    error: Judge  # observed minus predicted
    seen: int = 0  # samples after earlier steps that showed nothing worse

    def on(self, now: float, after: Rules) -> "Trial":
        """Returns the trial with a further step at time `now`.

        Samples that lean towards worse are kept. Otherwise, a series of small steps would never be
        judged. Other samples are dropped, because they would hide the effect of the next step for
        minutes.
        """
        count = self.observed.after.count
        if self.worse or (count >= LEAST and not self.leaning):
            observed, error = _again(self.observed), _again(self.error)
            seen = self.seen + count
            return replace(self, since=now, after=after, observed=observed, error=error, seen=seen)
        return replace(self, since=now, after=after)

    @property
    def leaning(self) -> bool:
        """Whether both means exceed their values before the change by more than the margin."""
        return all(judge.difference > judge.margin for judge in (self.observed, self.error))

    @property
    def worse(self) -> bool:
        """Whether both tests have found a value worse than before."""
        return self.observed.verdict is Verdict.WORSE and self.error.verdict is Verdict.WORSE

    @property
    def over(self) -> bool:
        """Whether enough samples have shown nothing worse."""
        most = _MOST_LEANING if self.leaning else _MOST_AFTER
        return self.seen + self.observed.after.count >= most and not self.worse

    def __str__(self) -> str:
        before, after = self.observed.before, self.observed.after
        predicted = after.mean - self.error.after.mean
        return (
            f"{after.mean:.1f} ms observed in {after.count} samples after the change, {before.mean:.1f} in "
            f"{before.count} before it, {predicted:.1f} predicted"
        )


@dataclass(frozen=True)
class Failed:
    """A change that was judged worse."""

    at: float
    before: Rules
    after: Rules
    demand_rps: float
    why: str
    kept: str = ""  # why it was not rolled back; empty: it was

    def towards(self, candidate: Rules, in_force: Rules) -> bool:
        """Returns whether the candidate moves a route towards the weights after the failed change.

        Such a route leaves its weights before the change, and comes closer to those after it than
        the rules in force are. Differences up to OTHERS_DELTA count as rounding.
        """
        way = {k: _apart(self.after[k], self.before[k]) for k in self.after.keys() & self.before.keys()}
        rounding = min(OTHERS_DELTA, max(way.values(), default=0) // 2)
        for key in way.keys() & candidate.keys():
            left = _apart(self.after[key], candidate[key])
            now = _apart(self.after[key], in_force.get(key, self.before[key]))
            if way[key] - left > rounding and left < now:
                return True
        return False


def begun(
    now: float, before: Rules, after: Rules, demand_rps: float, samples: Sequence[Sample]
) -> Trial | None:
    """Starts the trial of a first step. `samples` were taken before it.

    Returns None if there are too few samples, or if there were no rules before.
    """
    if len(samples) < LEAST or not before:
        return None
    observed, error = Samples(), Samples()
    for sample in samples:
        observed = observed.add(sample.observed_ms)
        error = error.add(sample.observed_ms - sample.predicted_ms)
    margin = max(_MARGIN * observed.mean, _LEAST_MARGIN_MS)
    return Trial(
        now,
        before,
        after,
        demand_rps,
        Judge(_ALPHA, margin, before=observed),
        Judge(_ALPHA, margin, before=error),
    )


def _apart(weights: Weights, other: Weights) -> int:
    """Returns the largest difference of a weight, in parts of TOTAL."""
    return max(abs(weights.get(to, 0) - other.get(to, 0)) for to in weights.keys() | other.keys())


def _again(judge: Judge) -> Judge:
    """Returns a new judge with the same samples before the change and none after it."""
    return Judge(judge.alpha, judge.margin, judge.effect, judge.before)
