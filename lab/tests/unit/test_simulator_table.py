"""The table of simulated beside live figures."""

from pathlib import Path

import pytest
from made_runs import figures
from spillway_lab.findings import catalogue
from spillway_lab.findings.chapter import Chapter
from spillway_lab.findings.gathered import RunFigures
from spillway_lab.pages import simulator_table
from spillway_lab.pages.blocks import Table, Text

HOW_MUCH = Path(__file__).resolve().parents[2] / "experiments/how-much.yaml"
LIVE = {"spillway": 100.0, "waterfall": 200.0}


def _chapter(runs: dict[str, RunFigures]) -> Chapter:
    known = catalogue.load(HOW_MUCH)
    return Chapter("how-much", known, catalogue.variants(known), {}, runs)


def _table(live: RunFigures, simulated: RunFigures) -> tuple[list[tuple[str, ...]], str]:
    """Returns the rows of the table, and the sentence about the median error."""
    found = list(simulator_table.blocks([_chapter({"some": live, "some-simulated": simulated})]))
    table = next(each for each in found if isinstance(each, Table))
    return list(table.rows), next(each.text for each in found if isinstance(each, Text) and each.strong)


def test_an_error_is_the_simulated_figure_over_the_live_one_less_one() -> None:
    """A policy that ran only one way has no row."""
    simulated = figures(
        {"spillway": 90.0, "waterfall": 220.0, "local": 1.0}, name="some-simulated", kind="simulated"
    )
    rows, middle = _table(figures(LIVE, name="some"), simulated)
    assert [row[:2] for row in rows] == [("some", "spillway"), ("some", "waterfall")]
    errors = [float(row[4].removesuffix(" %")) for row in rows]
    assert errors == pytest.approx([-10, 10], abs=1)
    assert [row[6] for row in rows] == ["+0 %", "+0 %"]  # made runs have the egress of their place
    assert "mean latency 10 %" in middle


def test_latencies_of_requests_that_failed_are_not_compared() -> None:
    """They are lower bounds; egress is still compared."""
    rows, middle = _table(figures(LIVE, failed_share=0.1), figures(LIVE, kind="simulated"))
    assert [row[4:] for row in rows] == [("-", "-", "+0 %")] * 2
    assert rows[0][2].startswith("≥")
    assert "mean latency" not in middle


def test_a_disturbed_live_run_is_marked() -> None:
    rows, _ = _table(figures(LIVE, disturbed=1), figures(LIVE, kind="simulated"))
    assert rows[0][0] == "some, disturbed"


def test_without_a_scenario_of_both_kinds_there_is_no_section() -> None:
    assert list(simulator_table.blocks([_chapter({"some": figures(LIVE)})])) == []
