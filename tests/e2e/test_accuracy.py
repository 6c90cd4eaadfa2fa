"""What is learned of an application whose queues are known.

Requests go through real Envoys, Kafka, streams and ClickHouse.
"""

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
    """Figures, also from a busy machine, which hardly affects capacities and ratios."""
    try:
        return accuracy.run(LADDER, "accuracy-test")
    except accuracy.Disturbed as disturbed:
        warnings.warn(f"curves are held against their own errors only: {disturbed}", stacklevel=1)
        return [replace(row, note=f"{row.note} {DISTURBED}") for row in disturbed.rows]


def _errors(rows: list[accuracy.Row], kind: str, how: str = "") -> dict[str, float]:
    return {row.of: row.error for row in rows if row.kind == kind and row.note.startswith(how)}


def test_capacities_of_services_that_report_cpu(rows):
    """Capacities are within 15 % of workers divided by service time."""
    found = _errors(rows, "saturation", "cpu")
    assert sorted(found) == ["ledger", "stock"]
    assert all(abs(error) < 0.15 for error in found.values()), found


def test_the_capacity_of_a_silent_service(rows):
    """The capacity is estimated from 70 seconds of latency alone.

    It is at least 1 / 1.6 of the true one and at most twice as large. Samples reach only 60 % of
    it, where the estimate is some 10 % too high and scatters by as much (ADR 16).
    """
    [error] = _errors(rows, "saturation", "curve").values()
    assert 1 / 1.6 < 1 + error < 2


def test_call_ratios(rows):
    """Numbers of calls are exact, except for calls that end after their second.

    A ratio of probability p deviates by sqrt((1 - p) / (p n)) in n requests. The five such ratios
    together stay within the 1 in 100 000 quantile of chi-square.
    """
    sent = sum(step.seconds * step.rps["west"] for step in LADDER.document.load.profile)
    requests = {request.method: request.share * sent for request in LADDER.document.requests}
    ratios = [row for row in rows if row.kind == "ratio"]
    chance = [row for row in ratios if row.true < 1]
    assert len(ratios) == 6 and len(chance) == 5
    assert all(abs(row.error) < 0.05 for row in ratios if row.true >= 1), ratios
    squares = [row.error**2 * requests[row.of.split()[1]] * row.true / (1 - row.true) for row in chance]
    assert sum(squares) < 31, ratios


def test_curves_lie_within_their_own_errors(rows):
    """The sensitivity a of classes whose service reports CPU is that of the requests that arrived.

    It is within 4.5 of its standard errors, of which two hold nine times in ten (ADR 16). Where the
    machine stalled, it is within 9. Standard errors rest on four blocks of time here, and a stall
    makes one of them unlike the others. `make accuracy-lab` measures a more closely, with longer
    steps on a quiet machine.
    """
    found = [row for row in rows if row.kind == "a" and row.note.startswith("cpu")]
    assert len(found) == 3
    most = {row.of: 9.0 if DISTURBED in row.note else 4.5 for row in found}
    assert all(abs(row.learned - row.true) <= most[row.of] * row.se for row in found), found


def test_curves_tell_the_latency_at_half_load(rows):
    """The latency is within half of the application's, unless the machine made requests wait."""
    found = [row for row in rows if row.kind == "L(0.5)" and row.note.startswith("cpu")]
    assert len(found) == 3
    assert all(DISTURBED in row.note or abs(row.error) < 0.5 for row in found), found
