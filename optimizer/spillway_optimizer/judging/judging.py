"""Judges a change of an application's rules by its prediction, and decides on rollbacks. Pure.

After a change, two values are compared with their values before it, each by a sequential test
(sequential.py): the observed objective, and the error of the prediction. The change did harm only
if both became worse. Higher load alone makes only the first worse, and a model that was always
wrong makes only the second worse. After a harmful change, the previous rules are proposed again.
"""

from collections import deque
from collections.abc import Mapping
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

WINDOW_S = 6.0  # averaging window of a board; samples that are closer share requests
# Time until new rules are in force and boards no longer contain samples from before.
SETTLE_S = 10.0
# Relative change of a number of pods, above which samples of two times cannot be compared.
_SCALED = 0.1
_MOST_BEFORE = 10  # maximum number of samples from before a change
_NO_RULES: Rules = MappingProxyType({})


def sample(
    telemetry: Telemetry,
    unknown: Unknown,
    problem: Problem,
    predicted: Evaluation,
    at: float,
    failure_cost_ms: float,
) -> Sample | None:
    """Returns one sample of an application's costs at its entries, each at its class's value.

    Returns None if an entry is unknown, or if there are no entry requests.
    """
    entries = []
    for cluster, class_id in problem.demand_rps:
        if unknown.why(problem.classes[class_id], cluster) is not None:
            return None
        entry = telemetry.demand.get(cluster, {}).get(class_id)
        if entry is not None:
            entries.append((entry, entry.rps * problem.latency_values.get(class_id, 1.0)))
    rps = sum(entry.rps for entry, _ in entries)
    if rps <= 0 or predicted.demand_rps <= 0:
        return None
    worth = sum(valued_rps for _, valued_rps in entries)
    latency = sum(valued_rps * entry.duration_ms for entry, valued_rps in entries) / rps
    failed = sum(valued_rps * entry.failed_share for entry, valued_rps in entries) / worth
    # Converts USD/h to ms per request.
    ms = 1.0 / (3600.0 * problem.usd_per_ms * predicted.demand_rps)
    failures = cost_ms(1.0 - failed, failure_cost_ms) * worth / rps
    observed = latency + failures + predicted.egress_usd_per_hour * ms
    # No request is expected to take what these two count.
    counted = predicted.caution_usd_per_hour + predicted.tail_usd_per_hour
    expected = predicted.usd_per_hour - counted
    return Sample(at, observed, expected * ms, rps)


@dataclass
class Watch:
    """Judges the changes of one application and remembers the last one that was worse."""

    # Minimum time between two rollbacks. A failed change is not tried again during that time.
    every_s: float
    # Relative change of demand above which samples of two times cannot be compared.
    change: float
    recent: deque[Sample] = field(default_factory=lambda: deque(maxlen=_MOST_BEFORE))
    trial: Trial | None = None
    failed: Failed | None = None
    unfinished: Rules | None = None  # previous rules that a rollback has not restored yet
    hindered: str = ""  # why the last step of a rollback was not possible
    _pods: Mapping[tuple[str, str], float] = field(default_factory=dict)
    _rolled_back_at: float = float("-inf")
    _sampled_at: float = float("-inf")

    def observe(self, sample: Sample) -> None:
        """Adds a sample that was taken while the proposed rules are in force.

        Samples closer than WINDOW_S to the previous one are ignored. So are samples within SETTLE_S
        of the last step of a trial.
        """
        if 0 <= sample.at - self._sampled_at < WINDOW_S:
            return
        trial = self.trial
        if trial is not None and self._moved(trial.demand_rps, sample.demand_rps):
            self.trial = trial = None
            self.recent.clear()
        failed = self.failed  # known wherever `hindered` is
        if self.hindered and failed is not None and self._moved(failed.demand_rps, sample.demand_rps):
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

    def scaled(self, pods: Mapping[tuple[str, str], float]) -> None:
        """Ends a trial, and drops all samples, when an autoscaler has changed pods.

        `pods`: those that count, by (service, cluster), new ones as a part. They change costs and
        predictions, whatever the rules are. Places that are absent now are compared when they are
        known again.
        """
        moved = any(
            abs(count - self._pods[place]) > _SCALED * max(count, self._pods[place])
            for place, count in pods.items()
            if place in self._pods
        )
        if moved:
            self.trial = None
            self.recent.clear()
        self._pods = {**self._pods, **pods} if moved else {**pods, **self._pods}

    def changed(self, now: float, before: Rules, after: Rules, demand_rps: float) -> None:
        """Records that rules were proposed, and starts or continues a trial.

        A change on top of one that is still being judged is judged together with it and keeps its
        samples. Otherwise, a series of small steps would never be judged.
        """
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
        """Records a rollback.

        Also called for each further step of a rollback that takes several.
        """
        if self.trial is not None or self.hindered:
            self._rolled_back_at = now
        self._failed(now, why)
        if self.failed is not None:
            self.failed = replace(self.failed, kept="")
        self.hindered = ""
        self.recent.clear()

    def not_possible(self, now: float, why: str) -> None:
        """Records that the rules of `to_restore` may not be put in force.

        The trial ends, so that other rules may follow the worse ones. Until they do, or the load
        changes, the rollback is made as soon as it is possible.
        """
        if self.trial is not None:
            self._failed(now, f"rolled back: {self.trial}", kept=why)
            self.recent.clear()
        self.hindered = why

    def _failed(self, now: float, why: str, kept: str = "") -> None:
        trial, self.trial = self.trial, None
        if trial is not None:
            self.failed = Failed(now, trial.before, trial.after, trial.demand_rps, why, kept)
            self.unfinished = trial.before

    def _stop_rolling_back(self) -> None:
        self.unfinished, self.hindered = None, ""

    def to_restore(self, in_force: Rules, now: float) -> tuple[Rules, str] | None:
        """Returns the rules from before a harmful change and the reason to restore them, or None.

        Also returns them while the steps back to these rules are still in progress.
        """
        if self.trial is not None and self.trial.worse and self.may_roll_back(now):
            return self.trial.before, f"rolled back: {self.trial}"
        late = self.hindered and not self._recently_failed(now)
        unfinished, failed = self.unfinished, self.failed  # never the first without the second
        if unfinished is None or failed is None or late or difference(in_force, unfinished) <= 1:
            self._stop_rolling_back()
            return None
        if self.hindered:
            return unfinished, failed.why
        return unfinished, f"a further step of the rollback: {failed.why}"

    def may_roll_back(self, now: float) -> bool:
        """Returns whether the last rollback is at least `every_s` ago."""
        return not 0 <= now - self._rolled_back_at < self.every_s

    def again(
        self, candidate: Rules, now: float, demand_rps: float, in_force: Rules = _NO_RULES
    ) -> str | None:
        """Returns why a candidate must not be proposed, or None if it may be.

        A candidate is rejected at an unchanged load in two cases. A route of it moves towards rules
        that were recently judged worse. Or it moves towards rules in force that are worse and that
        wait until they may be rolled back.
        """
        trial = self.trial
        if trial is not None and trial.worse and not self._moved(trial.demand_rps, demand_rps):
            worse = Failed(now, trial.before, trial.after, trial.demand_rps, str(trial))
            if worse.towards(candidate, in_force):
                return f"worse than before: {trial}; the last rollback is too recent"
        failed = self.failed
        if failed is None or not self._recently_failed(now) or self._moved(failed.demand_rps, demand_rps):
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
