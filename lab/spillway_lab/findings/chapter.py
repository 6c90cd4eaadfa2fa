"""One experiment and what is there of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spillway_lab.findings.beside_papers import Beside
from spillway_lab.findings.catalogue import Experiment, Variant
from spillway_lab.findings.gathered import RunFigures
from spillway_lab.scenario.scenario import Scenario


@dataclass(frozen=True)
class Chapter:
    """One experiment and what is there of it."""

    id: str
    experiment: Experiment
    variants: Sequence[Variant]
    scenarios: Mapping[str, Scenario]  # by the variant's name
    runs: Mapping[str, RunFigures]  # by the variant's name
    facts: Mapping[str, Any] | None = None  # of a benchmark
    digests: Mapping[str, str] = field(default_factory=dict)  # of the inputs of each run
    beside: Sequence[Beside] = ()
    stale: Sequence[str] = ()  # names of runs whose inputs have changed since
    problems: Sequence[str] = field(default_factory=tuple)  # results that cannot be read

    @property
    def state(self) -> str:
        """What is there of it, in a few words, for each kind of run."""
        if not self.runs and self.facts is None:
            return "not run"
        kinds = dict.fromkeys(each.kind for each in self.variants)
        return "; ".join(self._state_of(kind) for kind in kinds or [self.experiment.kind])

    def _state_of(self, kind: str) -> str:
        names = [each.name for each in self.variants if each.kind == kind] or [self.id]
        there = [name for name in names if name in self.runs]
        if names != [self.id] and not there:
            return f"{kind} not run"
        disturbed = any(self.runs[name].disturbed for name in there)
        return (
            kind
            + (f", {len(there)} of {len(names)}" if 0 < len(there) < len(names) else "")
            + (", disturbed" if disturbed else "")
            + (", stale" if any(name in self.stale for name in names) else "")
        )

    def baseline_of(self, figures: RunFigures) -> str:
        """Returns the first baseline that a run has, else its first other policy; empty if none."""
        others = [*self.experiment.baselines, *figures.policies]
        return next((p for p in others if p in figures.policies and p != self.experiment.policy), "")
