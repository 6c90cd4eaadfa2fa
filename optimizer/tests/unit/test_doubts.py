"""How uncertain predictions are: the errors of curves and capacities, at the load of the moment."""

import math

import pytest
from spillway_contracts.hot_state import LoadBoardEntry
from spillway_optimizer.inputs.telemetry import CapacityRow, CurveRow, Telemetry
from spillway_optimizer.model.doubts import NO_DOUBT, Evidence, largest

NOW = 1000.0
CLASS, RARE = "web GET /", "web GET /rare"


def doubt(rps=50.0, capacity_error=None, errors=(None, None), correlation=0.0, rare_rps=0.0, at=NOW, u_max=0.0,
          b_ms=5.0, live_rps=100.0):  # fmt: skip
    """Returns the error of a service with a_ms 10, whose live pods serve 100 requests/s at most."""
    row = CurveRow(NOW, "w", "web", CLASS, 10.0, b_ms, 1.0, u_max=u_max, ab_correlation=correlation,
                   a_se_ms=errors[0], b_se_ms=errors[1])  # fmt: skip
    rare = CurveRow(NOW, "w", "web", RARE, 10.0, 5.0, 1.0, ab_correlation=0.0, a_se_ms=100.0, b_se_ms=100.0)
    board = {CLASS: entry(rps, at)} | ({RARE: entry(rare_rps, at)} if rare_rps else {})
    place = ("web", "west")
    measured = {place: CapacityRow(NOW, "w", "west", "web", 100.0, error=capacity_error)}
    telemetry = Telemetry((row, rare), tuple(measured.values()), (), load={"west": board})
    evidence = Evidence({CLASS: row, RARE: rare}, {place: live_rps}, measured)
    return largest(telemetry, evidence, dict.fromkeys((CLASS, RARE), "web"), NOW, 15.0).error


def entry(rps, at):
    return LoadBoardEntry(
        at=at, rps=rps, failed_share=0.0, duration_ms=20.0, exclusive_ms=20.0, in_flight=0.0, cpu=0.0
    )


def test_the_errors_of_a_curve_are_those_of_the_time_that_it_predicts():
    """At half of the capacity, 10 / (1 - 0.5) + 5 is 25 ms."""
    assert doubt(errors=(1.0, 2.0)) == pytest.approx(math.sqrt((2 * 1.0) ** 2 + 2.0**2) / 25)
    assert doubt(errors=(1.0, 2.0), correlation=-1.0) == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("rps", "waits_ms", "factor"), [(20.0, 12.5, 0.25), (50.0, 20.0, 1.0), (90.0, 100.0, 1.0)]
)
def test_the_error_of_a_capacity_moves_the_wait_by_its_own_share_at_most(rps, waits_ms, factor):
    """An idle service is as fast whatever it could serve. Near saturation, 1 / (1 - u) would make
    any error a large one.
    """
    assert doubt(rps, capacity_error=0.3) == pytest.approx(factor * 0.3 * waits_ms / (waits_ms + 5))


def test_a_time_that_hardly_depends_on_the_load_needs_no_capacity():
    assert doubt(capacity_error=0.6, b_ms=1000.0) < 0.02


def test_the_utilisation_is_that_of_live_pods_and_at_least_the_highest_of_the_fit():
    """A policy that moves load away does not end its own reason."""
    assert doubt(20.0, capacity_error=0.3, u_max=0.5) == doubt(50.0, capacity_error=0.3)
    assert doubt(100.0, capacity_error=0.3, live_rps=500.0) == doubt(20.0, capacity_error=0.3)


def test_what_is_unknown_old_or_rare_is_not_in_doubt():
    """Rows of earlier versions have errors without their correlation."""
    assert doubt() == NO_DOUBT.error == 0.0
    assert doubt(errors=(1.0, None)) == doubt(errors=(9.0, 9.0), correlation=None) == 0.0
    assert doubt(errors=(50.0, 50.0), at=NOW - 60) == 0.0
    assert doubt(rps=50.0, rare_rps=2.0) == 0.0
    assert doubt(rps=50.0, rare_rps=5.0) > 1.0
