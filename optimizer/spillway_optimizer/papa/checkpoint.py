"""The state that PAPA keeps in Redis across restarts.

It contains the progress, the values for comparison, and steps not yet kept or rolled back.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from spillway_optimizer.papa.step import Progress
from spillway_optimizer.problem.rules import RuleKey, Rules, Weights


@dataclass(frozen=True)
class Trial:
    """A step that was published and is not yet kept or rolled back."""

    key: RuleKey
    before: Mapping[str, int]
    after: Mapping[str, int]
    objective_before_ms: float

    def to_json(self) -> dict:
        return {
            "key": list(self.key),
            "before": dict(self.before),
            "after": dict(self.after),
            "objective_before_ms": self.objective_before_ms,
        }

    @classmethod
    def from_json(cls, d: Mapping) -> "Trial":
        return cls(RuleKey(*d["key"]), d["before"], d["after"], d["objective_before_ms"])


@dataclass(frozen=True)
class Checkpoint:
    """PAPA's whole state."""

    progress: Progress = field(default_factory=Progress.none)
    # Rules in force at the start of the last step, updated with its outcome.
    rules: Rules | None = None
    latency_ms: Mapping[str, float] = field(default_factory=dict)
    trial: Trial | None = None
    # Steps to be rolled back once their destinations are known.
    parked: Mapping[RuleKey, Trial] = field(default_factory=dict)

    def ended(self, key: RuleKey, weights: Weights | None, parked: Trial | None = None) -> "Checkpoint":
        """Returns the checkpoint without the trial of this rule.

        `weights`: the rule's weights in force now. None: others have changed them. `parked`: a
        trial of the rule that still has to be rolled back.
        """
        others = {other: trial for other, trial in self.parked.items() if other != key}
        rules = self.rules if weights is None or self.rules is None else {**self.rules, key: weights}
        return replace(self, rules=rules, trial=None, parked=others | ({key: parked} if parked else {}))

    def to_json(self) -> str:
        return json.dumps(
            {
                "attempts": [[*key, count] for key, count in sorted(self.progress.attempts.items())],
                "converged": sorted(map(list, self.progress.converged)),
                "rules": None
                if self.rules is None
                else [[*k, dict(w)] for k, w in sorted(self.rules.items())],
                "latency_ms": dict(sorted(self.latency_ms.items())),
                "trial": self.trial and self.trial.to_json(),
                "parked": [trial.to_json() for _, trial in sorted(self.parked.items())],
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes | None) -> "Checkpoint":
        """Parses a checkpoint. None gives an empty one. Raises ValueError if it cannot be read."""
        if text is None:
            return cls()
        try:
            d = json.loads(text)
            # Version 0.1.0 does not write this field.
            parked = [Trial.from_json(trial) for trial in d.get("parked", [])]
            return cls(
                Progress(
                    {RuleKey(*row[:3]): int(row[3]) for row in d["attempts"]},
                    frozenset(RuleKey(*row) for row in d["converged"]),
                ),
                None if d["rules"] is None else {RuleKey(*row[:3]): row[3] for row in d["rules"]},
                d["latency_ms"],
                d["trial"] and Trial.from_json(d["trial"]),
                {trial.key: trial for trial in parked},
            )
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"papa checkpoint: {type(error).__name__}: {error}") from error
