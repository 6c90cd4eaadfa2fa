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
    beside: Sequence[Beside] = ()
    stale: Sequence[str] = ()  # names of runs whose inputs have changed since
    problems: Sequence[str] = field(default_factory=tuple)  # results that cannot be read

    @property
    def state(self) -> str:
        """What is there of it, in a word."""
        there = len(self.runs) + (self.facts is not None)
        wanted = len(self.variants) or 1
        if not there:
            return "not run"
        disturbed = any(figures.disturbed for figures in self.runs.values())
        state = self.experiment.kind if there >= wanted else f"{self.experiment.kind}, {there} of {wanted}"
        return state + (", disturbed" if disturbed else "") + (", stale" if self.stale else "")

    def baseline_of(self, figures: RunFigures) -> str:
        """Returns the first baseline that a run has, else its first other policy; empty if none."""
        others = [*self.experiment.baselines, *figures.policies]
        return next((p for p in others if p in figures.policies and p != self.experiment.policy), "")
