"""What is learned of an application whose queues are known, through real Envoys, Kafka, streams and ClickHouse."""

import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from spillway_lab.experiments import accuracy
from spillway_lab.scenario import scenario

LADDER = scenario.load(Path(__file__).with_name("accuracy.yaml"))
DISTURBED = "(disturbed)"
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def rows() -> list[accuracy.Row]:
    """Of a busy machine too: capacities and ratios hardly suffer from it."""
    try:
        return accuracy.run(LADDER, "accuracy-test")
    except accuracy.Disturbed as disturbed:
        warnings.warn(f"curves are held against their own errors only: {disturbed}", stacklevel=1)
        return [replace(row, note=f"{row.note} {DISTURBED}") for row in disturbed.rows]


def _errors(rows: list[accuracy.Row], kind: str, how: str = "") -> dict[str, float]:
    return {row.of: row.error for row in rows if row.kind == kind and row.note.startswith(how)}


def test_capacities_of_services_that_report_cpu(rows):
    """Within 15 % of workers over service time."""
    found = _errors(rows, "saturation", "cpu")
    assert sorted(found) == ["ledger", "stock"]
    assert all(abs(error) < 0.15 for error in found.values()), found


def test_the_capacity_of_a_silent_service(rows):
    """From 70 seconds of latency alone: no less than 1 / 1.6 of the true one, and no more than twice: what was seen of
    it is 60 %, where the estimate is some 10 % too high and scatters by as much (ADR 16)."""
    [error] = _errors(rows, "saturation", "curve").values()
    assert 1 / 1.6 < 1 + error < 2


def test_call_ratios(rows):
    """Numbers of calls are exact, but for what ends after its second; a call of probability p strays by
    sqrt((1 - p) / (p n)) in n requests: the five of them are within the 1 in 100 000 of chi-square."""
    sent = sum(step.seconds * step.rps["west"] for step in LADDER.document.load.profile)
    requests = {one.method: one.share * sent for one in LADDER.document.requests}
    ratios = [row for row in rows if row.kind == "ratio"]
    chance = [row for row in ratios if row.true < 1]
    assert len(ratios) == 6 and len(chance) == 5
    assert all(abs(row.error) < 0.05 for row in ratios if row.true >= 1), ratios
    squares = [row.error**2 * requests[row.of.split()[1]] * row.true / (1 - row.true) for row in chance]
    assert sum(squares) < 31, ratios


def test_curves_lie_within_their_own_errors(rows):
    """The sensitivity a of the classes whose service reports CPU is within 4.5 of its standard errors of the
    application's (two hold nine times in ten, ADR 16). `make accuracy-lab` measures it closely, with longer steps on a
    quiet machine."""
    found = [row for row in rows if row.kind == "a" and row.note.startswith("cpu")]
    assert len(found) == 3
    assert all(abs(row.learned - row.true) <= 4.5 * row.se for row in found), found


def test_curves_tell_the_latency_at_half_load(rows):
    """Within half of the application's, unless the machine made requests wait."""
    found = [row for row in rows if row.kind == "L(0.5)" and row.note.startswith("cpu")]
    assert len(found) == 3
    assert all(DISTURBED in row.note or abs(row.error) < 0.5 for row in found), found
