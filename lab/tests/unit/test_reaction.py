"""The time from a step of the load to other rules is read from the series of a live run."""

from dataclasses import replace
from pathlib import Path

import pytest
from made_runs import made
from spillway_lab.findings import reaction
from spillway_lab.scenario import scenario

SCENARIOS = Path(__file__).parents[2] / "scenarios"
STEP = scenario.load(SCENARIOS / "step.yaml")  # at 20 s


def run(*series: tuple[tuple[float, float | None], ...]):
    """A run with one round for each series."""
    given, _ = made({"spillway": 50.0}, repetitions=len(series))
    pairs = zip(given.rounds, series, strict=True)
    return replace(given, rounds=tuple(replace(each, series={"share": its}) for each, its in pairs))


def test_a_step_is_where_the_load_changes_at_once() -> None:
    """A constant load has none. In a cascade, the first one counts."""
    assert reaction.step_s(STEP) == 20
    assert reaction.step_s(scenario.load(SCENARIOS / "cascade.yaml")) == 12
    assert reaction.step_s(scenario.load(SCENARIOS / "two-clusters.yaml")) is None


def test_the_first_change_after_the_step_counts() -> None:
    """What is unknown for a second, a change before the step, and a rounding do not count."""
    first = ((0.0, 0.0), (10.0, 0.2), (19.0, 0.2), (21.0, None), (22.0, 0.21), (23.5, 0.5), (30.0, 0.4))
    found = reaction.facts(run(first, ((19.0, 0.0), (22.0, 0.3)), ((19.0, 0.0), (27.0, 0.3))), STEP)
    assert found == {"reaction_s": pytest.approx(3.5), "longest_reaction_s": pytest.approx(7.0)}


def test_rules_that_never_change_have_no_time() -> None:
    """One such round of several makes the time unknown, not that of the others."""
    still = ((0.0, 0.2), (40.0, 0.2))
    found = reaction.facts(run(((19.0, 0.0), (22.0, 0.3)), still), STEP)
    assert found == {"reaction_s": None, "longest_reaction_s": None}


def test_without_a_step_or_series_there_is_nothing() -> None:
    plain = scenario.load(SCENARIOS / "two-clusters.yaml")
    assert reaction.facts(run(((0.0, 0.0), (30.0, 0.5))), plain) == {}
    without = run(())
    assert reaction.facts(replace(without, rounds=(replace(without.rounds[0], series={}),)), STEP) == {}
