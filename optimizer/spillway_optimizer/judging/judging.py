"""Whether a change of an application's rules did what was predicted of it, and what follows when it did not. Pure.

After a change the observed objective is compared with that before it, and the error of the prediction with that
before it, each by a sequential test (sequential.py). Only when both are worse did the change do harm: a load that
grew makes the first worse, a model that was wrong all along the second. The rules of before are then proposed again.
"""

from collections import deque
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.inputs.unknown import Unknown
from spillway_optimizer.judging.memory import difference
from spillway_optimizer.judging.trials import Failed, Sample, Trial, begun
from spillway_optimizer.model.failures import cost_ms
from spillway_optimizer.problem.objective import Evaluation
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.rules import Rules

WINDOW_S = 6.0  # of a board: samples that are closer share requests
SETTLE_S = 10.0  # until rules are in force and boards have forgotten those before
_MOST_BEFORE = 10  # samples
_NO_RULES: Rules = MappingProxyType({})


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


@dataclass
class Watch:
    """Of one application."""

    every_s: float  # least time between two rollbacks, and until the same is tried again
    change: float  # of the demand from which on two times cannot be compared, relative
    recent: deque[Sample] = field(default_factory=lambda: deque(maxlen=_MOST_BEFORE))
    trial: Trial | None = None
    failed: Failed | None = None
    unfinished: Rules | None = None  # rules of before that a rollback has not reached yet
    hindered: str = ""  # why the last step back was not possible
    _rolled_back_at: float = float("-inf")
    _sampled_at: float = float("-inf")

    def observe(self, sample: Sample) -> None:
        """Takes samples that are a window apart, of rules that are in force."""
        if 0 <= sample.at - self._sampled_at < WINDOW_S:
            return
        trial = self.trial
        if trial is not None and self._moved(trial.demand_rps, sample.demand_rps):
            self.trial = trial = None
            self.recent.clear()
        if self.hindered and self._moved(self.failed.demand_rps, sample.demand_rps):
            self._stop_rolling_back()
        if trial is None:
            self.recent.append(sample)
        elif sample.at - trial.since >= SETTLE_S:
            trial.observed.add_after(sample.observed_ms)
            trial.error.add_after(sample.observed_ms - sample.predicted_ms)
            self.recent.append(sample)
            if trial.over:
                self.trial = None
        else:
            return
        self._sampled_at = sample.at

    def changed(self, now: float, before: Rules, after: Rules, demand_rps: float) -> None:
        """Rules were proposed. A change on top of one that is still judged is judged with it: it keeps the samples, or
        steady small steps would never be judged."""
        self._stop_rolling_back()
        if self.trial is not None and self._moved(self.trial.demand_rps, demand_rps):
            self.trial = None
        if self.trial is None:
            known = [s for s in self.recent if not self._moved(s.demand_rps, demand_rps)]
            self.trial = begun(now, before, after, demand_rps, known)
            self.recent.clear()
        elif difference(self.trial.before, after) <= 1:
            self.trial = None
            self.recent.clear()
        else:
            self.trial = self.trial.on(now, after)

    def rolled_back(self, now: float, why: str) -> None:
        """Also of each further step, when a rollback takes several."""
        if self.trial is not None or self.hindered:
            self._rolled_back_at = now
        self._failed(now, why)
        if self.failed is not None:
            self.failed = replace(self.failed, kept="")
        self.hindered = ""
        self.recent.clear()

    def not_possible(self, now: float, why: str) -> None:
        """The rules of `to_restore` may not be in force. The trial ends, so that other rules may follow the worse ones.
        Until they do, or the load changes, the rollback is made as soon as it is possible."""
        if self.trial is not None:
            self._failed(now, f"rolled back: {self.trial}")
            self.failed = replace(self.failed, kept=why)
            self.recent.clear()
        self.hindered = why

    def _failed(self, now: float, why: str) -> None:
        trial, self.trial = self.trial, None
        if trial is not None:
            self.failed = Failed(now, trial.before, trial.after, trial.demand_rps, why)
            self.unfinished = trial.before

    def _stop_rolling_back(self) -> None:
        self.unfinished, self.hindered = None, ""

    def to_restore(self, in_force: Rules, now: float) -> tuple[Rules, str] | None:
        """The rules of before a change that did harm, and why; also while the steps back to them go on."""
        if self.trial is not None and self.trial.worse and self.may_roll_back(now):
            return self.trial.before, f"rolled back: {self.trial}"
        late = self.hindered and not self._recently_failed(now)
        if self.unfinished is None or late or difference(in_force, self.unfinished) <= 1:
            self._stop_rolling_back()
            return None
        if self.hindered:
            return self.unfinished, self.failed.why
        return self.unfinished, f"a further step of what was {self.failed.why}"

    def may_roll_back(self, now: float) -> bool:
        return not 0 <= now - self._rolled_back_at < self.every_s

    def again(
        self, candidate: Rules, now: float, demand_rps: float, in_force: Rules = _NO_RULES
    ) -> str | None:
        """Why a candidate is not proposed: a route of it is on the way to what was worse than before, soon after and at
        the same load, or to rules in force that are worse and wait until they may be rolled back."""
        trial = self.trial
        if trial is not None and trial.worse and not self._moved(trial.demand_rps, demand_rps):
            worse = Failed(now, trial.before, trial.after, trial.demand_rps, str(trial))
            if worse.towards(candidate, in_force):
                return f"worse than before: {trial}; the last rollback is too recent"
        failed = self.failed
        if not self._recently_failed(now) or self._moved(failed.demand_rps, demand_rps):
            return None
        returning = self.unfinished is not None and not self.hindered
        if not failed.towards(candidate, failed.before if returning else in_force):
            return None
        ago = f"{now - failed.at:.0f} s ago"
        if failed.kept:
            return f"worse than before {ago}, and not rolled back ({failed.kept}): {failed.why}"
        return f"tried {ago} and rolled back: {failed.why}"

    def _recently_failed(self, now: float) -> bool:
        return self.failed is not None and 0 <= now - self.failed.at < self.every_s

    def _moved(self, before: float, now: float) -> bool:
        return abs(now - before) > self.change * max(before, now)
