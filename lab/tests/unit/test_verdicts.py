"""Verdicts follow from intervals, and a disturbed machine has none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import figures
from spillway_lab.findings import beside_papers
from spillway_lab.findings.gathered import Pair
from spillway_lab.findings.papers import Figure, Measure
from spillway_lab.findings.verdicts import interval, judge, outcome_of, reach
from spillway_lab.pages import papers_table
from spillway_lab.report.statistics import UNKNOWN, Estimate


def figure(value: float, **changes: object) -> Figure:
    keys = {
        "experiment": "any",
        "paper": "SLATE",
        "where": "Fig. 0",
        "says": "mean, other over ours",
        "unit": "×",
        "measure": Measure(metric="mean_ms", of="waterfall", over="spillway"),
    }
    return Figure.model_validate(keys | {"value": value} | changes)


@pytest.mark.parametrize(
    ("other_ms", "outcome"), [(80.0, "better"), (50.0, "not told apart"), (30.0, "worse")]
)
def test_the_sentence_says_who_is_better_by_how_much(other_ms: float, outcome: str) -> None:
    """The words follow from the interval of the ratio, and the sentence has it."""
    found = judge(figures({"spillway": 50.0, "waterfall": other_ms}), "spillway", "waterfall", "mean_ms")
    assert found.outcome == outcome
    assert "waterfall has" in found.sentence
    assert "times as much" in found.sentence
    assert "–" in found.sentence


def test_a_disturbed_round_refuses_every_conclusion() -> None:
    """One disturbed round of six is enough: no verdict, and no figure of a paper is reached."""
    disturbed = figures({"spillway": 50.0, "waterfall": 500.0}, disturbed=1)
    found = judge(disturbed, "spillway", "waterfall", "mean_ms")
    assert found.outcome == "disturbed"
    assert "1 of 6 rounds" in found.sentence
    assert "better" not in found.sentence
    beside = beside_papers.beside(figure(2.0), {"two-clusters": disturbed}, None)
    assert (beside.reached, beside.words) == ("disturbed", "disturbed: no conclusion")


@pytest.mark.parametrize(("disturbed", "expected"), [(0, "live"), (1, "simulated")])
def test_a_live_run_comes_before_a_simulated_one(disturbed: int, expected: str) -> None:
    """Even if less is seen in it, unless its machine was disturbed."""
    runs = {
        "live": figures({"spillway": 50.0, "waterfall": 60.0}, disturbed=disturbed),
        "simulated": figures({"spillway": 50.0, "waterfall": 90.0}, kind="simulated"),
    }
    assert beside_papers.beside(figure(1.1), runs, None).scenario == expected


def test_one_round_concludes_nothing() -> None:
    """Without an interval there is no verdict, however far apart the values are."""
    found = judge(figures({"a": 10.0, "b": 90.0}, repetitions=1), "a", "b", "mean_ms")
    assert found.outcome == "unknown"
    assert "one round" in found.sentence


def test_a_policy_that_did_not_run_is_named() -> None:
    """The sentence says which policy is missing, instead of comparing with nothing."""
    assert "waterfall did not run" in judge(figures({"a": 1.0}), "a", "waterfall", "p99_ms").sentence


def test_failures_are_compared_by_their_difference() -> None:
    """A policy that fails nothing is better than one that fails much, though no ratio exists."""
    run = figures({"a": 10.0, "b": 10.0}, failed_share=0.0)
    assert judge(run, "a", "b", "failed_share").outcome == "not told apart"
    better = Pair(UNKNOWN, Estimate(-0.1, -0.15, -0.05))
    assert outcome_of(better, "failed_share") == "better"
    assert outcome_of(Pair(UNKNOWN, Estimate(0.1, 0.05, 0.15)), "egress_usd_per_hour") == "worse"


@given(st.floats(0.01, 100), st.floats(1, 3), st.floats(1, 3), st.floats(0.01, 100))
def test_a_figure_is_reached_as_its_interval_says(
    value: float, up: float, down: float, theirs: float
) -> None:
    """Reached: all of the interval is. Not reached: none of it. Else they are not told apart."""
    ours = Estimate(value, value / down, value * up)
    for better, all_of_it, none_of_it in (
        ("more", ours.low >= theirs, ours.high < theirs),
        ("less", ours.high <= theirs, ours.low > theirs),
    ):
        found = reach(figure(theirs, better=better), ours, False)
        assert (found == "reached", found == "not reached") == (all_of_it, none_of_it)


def test_a_missing_run_is_not_run() -> None:
    """Without results, or without one of the policies, ours is "not run" and never 0."""
    for runs in ({}, {"two-clusters": figures({"spillway": 50.0})}):
        beside = beside_papers.beside(figure(2.0), runs, None)
        assert (beside.reached, beside.ours) == (None, UNKNOWN)
        assert papers_table.table([beside]).rows[0][3:] == (
            "not run",
            "mean latency, waterfall over spillway",
            "not run",
        )


def test_of_several_scenarios_the_best_undisturbed_one_is_taken() -> None:
    """A disturbed scenario with a larger factor does not hide one that can conclude."""
    runs = {
        "calm": figures({"spillway": 50.0, "waterfall": 100.0}),
        "less": figures({"spillway": 50.0, "waterfall": 60.0}),
        "busy": figures({"spillway": 50.0, "waterfall": 900.0}, disturbed=2),
    }
    beside = beside_papers.beside(figure(1.5), runs, None)
    assert (beside.scenario, beside.reached) == ("calm", "reached")
    named = figure(
        1.5, measure={"metric": "mean_ms", "of": "waterfall", "over": "spillway", "scenario": "l*s"}
    )
    assert beside_papers.beside(named, runs, None).reached == "not reached"


def test_facts_are_compared_by_their_value() -> None:
    """A benchmark's number is found by its key, also within an object; text is no number."""
    facts = {"seconds": 0.5, "rates": {"2000": {"p50": 1}}, "name": "x", "yes": True}
    for key, reached in (
        ("seconds", "reached"),
        ("rates.2000.p50", "reached"),
        ("name", "unknown"),
        ("yes", "unknown"),
        ("rates.1.p50", "unknown"),
        ("seconds.more", "unknown"),
    ):
        found = beside_papers.beside(figure(22.0, better="less", measure={"fact": key}), {}, facts)
        assert found.reached == reached, key


@pytest.mark.parametrize(
    ("found", "percent", "text"),
    [
        (Estimate(81.52, 80.1, 1234.5), False, "81.5 (80.1–1234)"),
        (Estimate(0.0, 0.0, 0.0031), True, "0 (0–0.310)"),
        (Estimate(2.0), False, "2.00"),
        (UNKNOWN, False, "unknown"),
    ],
)
def test_figures_are_written_with_their_interval(found: Estimate, percent: bool, text: str) -> None:
    """Three digits are enough; a figure without an interval stands alone, and unknown is a word."""
    assert interval(found, percent) == text
