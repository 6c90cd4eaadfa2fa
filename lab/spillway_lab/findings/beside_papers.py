"""Our figures beside those of the papers. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from spillway_lab.findings.gathered import RunFigures
from spillway_lab.findings.papers import Figure
from spillway_lab.findings.verdicts import Reach, reach
from spillway_lab.report.statistics import UNKNOWN, Estimate

NOT_RUN = "not run"
_WORDS: Mapping[Reach, str] = {
    "not told apart": "not told apart",
    "disturbed": "disturbed: no conclusion",
    "unknown": "unknown",
    "not compared": "other units or load: not compared",
    "reached": "reached",
    "not reached": "not reached",
}


@dataclass(frozen=True)
class Beside:
    """A paper's figure and ours. `reached` is None if there is no run that would show it."""

    figure: Figure
    ours: Estimate
    scenario: str  # that ours is of; empty for facts of a benchmark and where nothing ran
    reached: Reach | None

    @property
    def words(self) -> str:
        return NOT_RUN if self.reached is None else _WORDS[self.reached]


def beside(figure: Figure, runs: Mapping[str, RunFigures], facts: Mapping[str, Any] | None) -> Beside:
    """Returns ours beside a paper's figure.

    `runs` are those of its experiment by scenario, `facts` those of a benchmark. Live runs whose
    machine was not disturbed come first, then simulated ones. Of several scenarios, the one that
    shows the most is taken: papers say "up to".
    """
    found = list(_candidates(figure, runs, facts))
    if not found:
        return Beside(figure, UNKNOWN, "", None)
    known = [each for each in found if each[1].value is not None] or found
    calm = [each for each in known if not each[2]] or known
    live = [each for each in calm if each[0] in runs and runs[each[0]].setting.kind == "live"] or calm
    best = max if figure.better == "more" else min
    name, ours, disturbed = best(live, key=lambda each: each[1].value or 0.0)
    return Beside(figure, ours, name, reach(figure, ours, disturbed))


def _candidates(
    figure: Figure, runs: Mapping[str, RunFigures], facts: Mapping[str, Any] | None
) -> Iterator[tuple[str, Estimate, bool]]:
    """Yields scenario, our figure and whether it was disturbed, for each run that has it."""
    measure = figure.measure
    if measure.fact is not None and facts is not None:
        yield "", _fact(facts, measure.fact), False
    for name, whole in runs.items():
        figures = whole.settled if measure.settled else whole
        if figures is None or not fnmatchcase(name, measure.scenario or "*"):
            continue
        disturbed = figures.disturbed > 0
        if measure.fact is not None:
            yield name, _fact(figures.setting.facts, measure.fact), disturbed
        elif measure.metric is not None and measure.of is not None:
            if measure.over is not None and {measure.of, measure.over} <= set(figures.policies):
                yield name, figures.pair(measure.over, measure.of, measure.metric).ratio, disturbed
            elif measure.over is None and measure.of in figures.policies:
                yield name, figures.policies[measure.of].figures[measure.metric], disturbed


def _fact(facts: Mapping[str, Any], key: str) -> Estimate:
    """Returns a number of the facts; a dot leads into an object that is one of them."""
    value: Any = facts
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return Estimate(float(value)) if known else UNKNOWN
