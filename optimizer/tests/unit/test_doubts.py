"""How uncertain predictions are: the errors of curves and capacities, at the load of the moment."""

import math

import pytest
from spillway_contracts.hot_state import LoadBoardEntry
from spillway_optimizer.inputs.telemetry import CapacityRow, CurveRow, Telemetry
from spillway_optimizer.model.doubts import NO_DOUBT, largest

NOW = 1000.0
CLASS, RARE = "web GET /", "web GET /rare"


def doubt(
    rps=50.0, capacity_error=None, errors=(None, None), correlation=None, rare_rps=0.0, at=NOW, u_max=0.0
):
    """Of a service with a_ms 10 and b_ms 5, which serves 100 requests/s at most."""
    row = CurveRow(NOW, "w", "web", CLASS, 10.0, 5.0, 1.0, u_max=u_max, ab_correlation=correlation,
                   a_se_ms=errors[0], b_se_ms=errors[1])  # fmt: skip
    rare = CurveRow(NOW, "w", "web", RARE, 10.0, 5.0, 1.0, a_se_ms=100.0, b_se_ms=100.0)
    board = {CLASS: entry(rps, at)} | ({RARE: entry(rare_rps, at)} if rare_rps else {})
    capacities = {("web", "west"): CapacityRow(NOW, "w", "west", "web", 100.0, error=capacity_error)}
    telemetry = Telemetry((row, rare), tuple(capacities.values()), (), load={"west": board})
    found = largest(
        telemetry, {CLASS: row, RARE: rare}, capacities, dict.fromkeys((CLASS, RARE), "web"), NOW, 15.0
    )
    return found.error


def entry(rps, at):
    return LoadBoardEntry(
        at=at, rps=rps, failed_share=0.0, duration_ms=20.0, exclusive_ms=20.0, in_flight=0.0, cpu=0.0
    )


def test_the_errors_of_a_curve_are_those_of_the_time_that_it_predicts():
    """At half of the capacity, 10 / (1 - 0.5) + 5 is 25 ms."""
    assert doubt(errors=(1.0, 2.0)) == pytest.approx(math.sqrt((2 * 1.0) ** 2 + 2.0**2) / 25)
    assert doubt(errors=(1.0, 2.0), correlation=-1.0) == pytest.approx(0.0)


@pytest.mark.parametrize(("rps", "factor"), [(20.0, 0.25), (50.0, 1.0), (90.0, 1.0), (300.0, 1.0)])
def test_the_error_of_a_capacity_counts_where_there_is_load(rps, factor):
    """An idle service is as fast whatever it could serve. Near saturation the error itself counts:
    a queue there multiplies any error.
    """
    assert doubt(rps, capacity_error=0.3) == pytest.approx(0.3 * factor)


def test_what_is_unknown_old_or_rare_is_not_in_doubt():
    assert doubt() == NO_DOUBT.error == 0.0
    assert doubt(errors=(1.0, None)) == 0.0
    assert doubt(errors=(50.0, 50.0), at=NOW - 60) == 0.0
    assert doubt(rps=50.0, rare_rps=2.0) == 0.0
    assert doubt(rps=50.0, rare_rps=5.0) > 1.0
