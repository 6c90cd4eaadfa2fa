"""What PAPA keeps in Redis over a restart: progress, what it compared with, and a step not yet judged."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from spillway_optimizer.papa.step import Progress
from spillway_optimizer.rules import RuleKey, Rules


@dataclass(frozen=True)
class Trial:
    """A step that has been published and not yet kept or rolled back."""

    key: RuleKey
    before: Mapping[str, int]
    after: Mapping[str, int]
    objective_before_ms: float


@dataclass(frozen=True)
class Checkpoint:
    progress: Progress = field(default_factory=Progress.none)
    rules: Rules | None = None  # in force at the start of the last step, its outcome included
    latency_ms: Mapping[str, float] = field(default_factory=dict)
    trial: Trial | None = None

    def to_json(self) -> str:
        trial = self.trial
        return json.dumps(
            {
                "attempts": [[*key, count] for key, count in sorted(self.progress.attempts.items())],
                "converged": sorted(map(list, self.progress.converged)),
                "rules": None
                if self.rules is None
                else [[*k, dict(w)] for k, w in sorted(self.rules.items())],
                "latency_ms": dict(sorted(self.latency_ms.items())),
                "trial": trial
                and {
                    "key": list(trial.key),
                    "before": dict(trial.before),
                    "after": dict(trial.after),
                    "objective_before_ms": trial.objective_before_ms,
                },
            }
        )

    @classmethod
    def from_json(cls, text: str | None) -> "Checkpoint":
        """An empty one for None. Raises ValueError when it cannot be read."""
        if text is None:
            return cls()
        try:
            d = json.loads(text)
            trial = d["trial"]
            return cls(
                Progress(
                    {RuleKey(*row[:3]): int(row[3]) for row in d["attempts"]},
                    frozenset(RuleKey(*row) for row in d["converged"]),
                ),
                None if d["rules"] is None else {RuleKey(*row[:3]): row[3] for row in d["rules"]},
                d["latency_ms"],
                trial
                and Trial(
                    RuleKey(*trial["key"]), trial["before"], trial["after"], trial["objective_before_ms"]
                ),
            )
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"papa checkpoint: {type(error).__name__}: {error}") from error
