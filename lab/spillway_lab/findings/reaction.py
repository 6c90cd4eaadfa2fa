"""How long after a step of the load the rules changed, from the series of a run. Pure.

A series is what a cluster sends away by the rules in force, read once a second while a round runs.
So a time is up to a second too long.
"""

from collections.abc import Iterator
from statistics import median

from spillway_lab.report.results import Round, Run
from spillway_lab.scenario.scenario import Scenario

_CHANGED = 0.02  # of a share; less is a rounding of weights


def facts(run: Run, scenario: Scenario) -> dict[str, float | None]:
    """Returns the median and the longest time of all rounds, in seconds.

    Empty without series, or if the load has no step. None if the rules did not change in a round.
    """
    step = step_s(scenario)
    watched = [each for each in run.rounds if each.series]
    if step is None or not watched:
        return {}
    found = [min(_changes(each, step), default=None) for each in watched]
    known = [each for each in found if each is not None]
    if len(known) < len(found):
        return {"reaction_s": None, "longest_reaction_s": None}
    return {"reaction_s": median(known), "longest_reaction_s": max(known)}


def step_s(scenario: Scenario) -> float | None:
    """Returns when the load first changes at once, counted from the start of the measured part."""
    at, plan = 0.0, scenario.document.load.measure.plan
    for phase, following in zip(plan, plan[1:], strict=False):
        at += phase.seconds
        if (phase.to_rps or phase.rps) != following.rps:
            return at
    return None


def _changes(each: Round, step: float) -> Iterator[float]:
    """Yields, for each series that changes after the step, how long after it."""
    for points in each.series.values():
        known = [(at, value) for at, value in points if value is not None]
        before = [value for at, value in known if at < step]
        if before:
            yield from (at - step for at, value in known if at >= step and abs(value - before[-1]) > _CHANGED)
