"""The state that PAPA keeps in Redis across restarts.

It contains the progress, the values for comparison, and steps not yet kept or rolled back.
"""

import json
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from spillway_optimizer.papa.step import Progress
from spillway_optimizer.problem.rules import RuleKey, Rules, Weights

_V = TypeVar("_V")


@dataclass(frozen=True)
class Trial:
    """A step that was published and is not yet kept or rolled back."""

    key: RuleKey
    before: Mapping[str, int]
    after: Mapping[str, int]
    objective_before_ms: float
    # The version that it was proposed upon. None: a version before 0.2.0 has stored it.
    base: int | None = None

    def to_json(self) -> dict:
        return {
            "key": list(self.key),
            "before": dict(self.before),
            "after": dict(self.after),
            "objective_before_ms": self.objective_before_ms,
        } | ({} if self.base is None else {"base": self.base})

    @classmethod
    def from_json(cls, d: Mapping) -> "Trial":
        weights = d["before"], d["after"]
        return cls(RuleKey(*d["key"]), *weights, d["objective_before_ms"], d.get("base"))


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

    def split(self, classes: Container[str]) -> "tuple[Checkpoint, Checkpoint]":
        """Returns the part about rules of these classes, and the rest."""
        return self._where(lambda class_id: class_id in classes), self._where(
            lambda class_id: class_id not in classes
        )

    def _where(self, has: Callable[[str], bool]) -> "Checkpoint":
        def of(values: Mapping[RuleKey, _V]) -> dict[RuleKey, _V]:
            return {key: value for key, value in values.items() if has(key.class_id)}

        progress = self.progress
        return Checkpoint(
            Progress(
                of(progress.attempts),
                frozenset(key for key in progress.converged if has(key.class_id)),
                of(progress.sizes),
            ),
            None if self.rules is None else of(self.rules),
            {name: ms for name, ms in self.latency_ms.items() if has(name.partition(" ")[2])},
            self.trial if self.trial is not None and has(self.trial.key.class_id) else None,
            of(self.parked),
        )

    def to_json(self) -> str:
        return json.dumps(
            {
                "attempts": [[*key, count] for key, count in sorted(self.progress.attempts.items())],
                "converged": sorted(map(list, self.progress.converged)),
                "sizes": [[*key, size] for key, size in sorted(self.progress.sizes.items())],
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
                    # Versions before 0.3.0 do not write this field.
                    {RuleKey(*row[:3]): float(row[3]) for row in d.get("sizes", [])},
                ),
                None if d["rules"] is None else {RuleKey(*row[:3]): row[3] for row in d["rules"]},
                d["latency_ms"],
                d["trial"] and Trial.from_json(d["trial"]),
                {trial.key: trial for trial in parked},
            )
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"papa checkpoint: {type(error).__name__}: {error}") from error


def joined(parts: Iterable[Checkpoint]) -> Checkpoint:
    """Returns one checkpoint of parts about different rules.

    It has room for one trial. The others are parked, so a restart rolls them back like that one.
    """
    parts = list(parts)
    trials = [part.trial for part in parts if part.trial is not None]
    known = [part.rules for part in parts if part.rules is not None]
    return Checkpoint(
        Progress(
            {key: count for part in parts for key, count in part.progress.attempts.items()},
            frozenset(key for part in parts for key in part.progress.converged),
            {key: size for part in parts for key, size in part.progress.sizes.items()},
        ),
        {key: weights for rules in known for key, weights in rules.items()} if known else None,
        {name: ms for part in parts for name, ms in part.latency_ms.items()},
        trials[0] if trials else None,
        {key: trial for part in parts for key, trial in part.parked.items()}
        | {trial.key: trial for trial in trials[1:]},
    )
