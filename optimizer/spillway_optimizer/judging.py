"""Whether a change of an application's rules did what was predicted of it, and what follows when it did not. Pure.

After a change the observed objective is compared with that before it, and the error of the prediction with that
before it, each by a sequential test (sequential.py). Only when both are worse did the change do harm: a load that
grew makes the first worse, a model that was wrong all along the second. The rules of before are then proposed again.
"""

from collections import deque
from dataclasses import dataclass, field

from spillway_optimizer.failures import cost_ms
from spillway_optimizer.memory import difference
from spillway_optimizer.objective import Evaluation
from spillway_optimizer.problem import Problem
from spillway_optimizer.rules import Rules
from spillway_optimizer.sequential import LEAST, Judge, Samples, Verdict
from spillway_optimizer.telemetry import Telemetry
from spillway_optimizer.unknown import Unknown

WINDOW_S = 6.0  # of a board: samples that are closer share requests
SETTLE_S = 10.0  # until rules are in force and boards have forgotten those before
_MOST_BEFORE, _MOST_AFTER = 10, 20  # samples
_ALPHA = 0.01
_MARGIN, _LEAST_MARGIN_MS = 0.05, 1.0  # of the cost before: smaller differences are none


@dataclass(frozen=True)
class Sample:
    """Costs in ms per entry request, egress and failures included."""

    at: float  # Unix seconds
    observed_ms: float
    predicted_ms: float
    demand_rps: float


def sample(
    telemetry: Telemetry,
    unknown: Unknown,
    problem: Problem,
    predicted: Evaluation,
    at: float,
    failure_cost_ms: float,
) -> Sample | None:
    """Of an application's entries. None where one of them is unknown, or nobody asks for anything."""
    entries = []
    for cluster, class_id in problem.demand_rps:
        if unknown.why(problem.classes[class_id], cluster) is not None:
            return None
        entry = telemetry.demand.get(cluster, {}).get(class_id)
        if entry is not None:
            entries.append(entry)
    rps = sum(entry.rps for entry in entries)
    if rps <= 0 or predicted.demand_rps <= 0:
        return None
    latency = sum(entry.rps * entry.duration_ms for entry in entries) / rps
    failed = sum(entry.rps * entry.failed_share for entry in entries) / rps
    ms = 1.0 / (3600.0 * problem.usd_per_ms * predicted.demand_rps)  # of a USD/h, per request
    observed = latency + cost_ms(1.0 - failed, failure_cost_ms) + predicted.egress_usd_per_hour * ms
    return Sample(at, observed, predicted.usd_per_hour * ms, rps)


@dataclass(frozen=True)
class Trial:
    """A change that is being judged."""

    since: float
    before: Rules
    after: Rules
    demand_rps: float
    observed: Judge
    error: Judge  # observed less predicted

    @property
    def worse(self) -> bool:
        return self.observed.verdict is Verdict.WORSE and self.error.verdict is Verdict.WORSE

    def __str__(self) -> str:
        before, after = self.observed.before, self.observed.after
        predicted = after.mean - self.error.after.mean
        return (
            f"{after.mean:.1f} ms observed in {after.count} samples after the change, {before.mean:.1f} in "
            f"{before.count} before it, {predicted:.1f} predicted"
        )


@dataclass(frozen=True)
class Failed:
    """A change that was rolled back."""

    at: float
    before: Rules
    after: Rules
    demand_rps: float
    why: str


@dataclass
class Watch:
    """Of one application."""

    every_s: float  # least time between two rollbacks, and until the same is tried again
    change: float  # of the demand from which on two times cannot be compared, relative
    recent: deque[Sample] = field(default_factory=lambda: deque(maxlen=_MOST_BEFORE))
    trial: Trial | None = None
    failed: Failed | None = None
    unfinished: Rules | None = None  # rules of before that a rollback in steps has not reached yet
    _sampled_at: float = float("-inf")

    def observe(self, sample: Sample) -> None:
        """Takes samples that are a window apart, of rules that are in force."""
        if 0 <= sample.at - self._sampled_at < WINDOW_S:
            return
        trial = self.trial
        if trial is not None and self._moved(trial.demand_rps, sample.demand_rps):
            self.trial = trial = None
            self.recent.clear()
        if trial is None:
            self.recent.append(sample)
        elif sample.at - trial.since >= SETTLE_S:
            trial.observed.add_after(sample.observed_ms)
            trial.error.add_after(sample.observed_ms - sample.predicted_ms)
            if trial.observed.after.count >= _MOST_AFTER and not trial.worse:
                self.trial = None
                self.recent.clear()
        else:
            return
        self._sampled_at = sample.at

    def changed(self, now: float, before: Rules, after: Rules, demand_rps: float) -> None:
        """Rules were proposed. A change on top of one that is still judged is judged with it."""
        self.unfinished = None
        known = [s for s in self.recent if not self._moved(s.demand_rps, demand_rps)]
        if self.trial is not None:
            old = self.trial
            self.trial = Trial(now, old.before, after, demand_rps, _again(old.observed), _again(old.error))
        elif len(known) >= LEAST and before:
            observed, error = Samples(), Samples()
            for sample in known:
                observed = observed.add(sample.observed_ms)
                error = error.add(sample.observed_ms - sample.predicted_ms)
            margin = max(_MARGIN * observed.mean, _LEAST_MARGIN_MS)
            judges = (Judge(_ALPHA, margin, before=one) for one in (observed, error))
            self.trial = Trial(now, before, after, demand_rps, *judges)
        self.recent.clear()

    def rolled_back(self, now: float, why: str) -> None:
        """Also of each further step, when a rollback takes several."""
        trial, self.trial = self.trial, None
        self.recent.clear()
        if trial is not None:
            self.failed = Failed(now, trial.before, trial.after, trial.demand_rps, why)
            self.unfinished = trial.before

    def to_restore(self, in_force: Rules, now: float) -> tuple[Rules, str] | None:
        """The rules of before a change that did harm, and why; also while the steps back to them go on."""
        if self.trial is not None and self.trial.worse and self.may_roll_back(now):
            return self.trial.before, f"rolled back: {self.trial}"
        if self.unfinished is None or difference(in_force, self.unfinished) <= 1:
            self.unfinished = None
            return None
        return self.unfinished, f"a further step of what was {self.failed.why}"

    def may_roll_back(self, now: float) -> bool:
        return self.failed is None or not 0 <= now - self.failed.at < self.every_s

    def again(self, candidate: Rules, now: float, demand_rps: float) -> str | None:
        """Why a candidate is not proposed: it is on the way to what was worse than before, soon after and at the same
        load; or what is in force was worse, and waits until it may be rolled back."""
        if self.trial is not None and self.trial.worse:
            return f"worse than before: {self.trial}; the last rollback is too recent"
        failed = self.failed
        if failed is None or self.may_roll_back(now) or self._moved(failed.demand_rps, demand_rps):
            return None
        if difference(failed.after, candidate) >= difference(failed.after, failed.before):
            return None
        return f"tried {now - failed.at:.0f} s ago and rolled back: {failed.why}"

    def _moved(self, before: float, now: float) -> bool:
        return abs(now - before) > self.change * max(before, now)


def _again(judge: Judge) -> Judge:
    return Judge(judge.alpha, judge.margin, judge.effect, judge.before)
