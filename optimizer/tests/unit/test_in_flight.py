"""Calls in flight that Envoys report take the place of Little's law."""

import pytest
from spillway.v1.heartbeat_pb2 import Heartbeat
from spillway_optimizer.callers.signals import Outcome, Signals
from spillway_optimizer.inputs.in_flight import measured, reported
from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.solving.config import OptimizerTuning
from spillway_optimizer.solving.observations import Observations

X, Y, OTHER = ("west", "web", "db GET /x"), ("west", "web", "db GET /y"), ("west", "web", "cart GET /x")
WEB = ("west", "web")


def outcome(in_flight: float) -> Outcome:
    return Outcome(5.0, 0.9, 1.0, 2.0, in_flight)


def beat(connected: int, reporting: int, **calls: int) -> Heartbeat:
    """Returns the placement of a cluster whose web has calls in flight to db, by destination."""
    message = Heartbeat(cluster="west")
    message.services.add(service="web", connected_envoys=connected)
    source = message.calls_in_flight.add(service="web", reporting_envoys=reporting)
    for cluster, count in calls.items():
        source.destinations.add(service="db", cluster=cluster, calls=count)
    return message


def test_calls_are_those_of_all_connected_envoys():
    assert reported({"west": beat(2, 2, east=6)}) == {WEB: {("db", "east"): 6.0}}
    assert reported({"west": beat(10, 9, east=9)}) == {WEB: {("db", "east"): 10.0}}
    assert reported({"west": beat(3, 3)}) == {WEB: {}}


@pytest.mark.parametrize(("connected", "reporting"), [(2, 1), (10, 8), (0, 1), (1, 0), (2, 3)])
def test_calls_are_unknown_where_not_all_envoys_report(connected: int, reporting: int):
    """Those that do not report have an older bootstrap, and their calls are no zeros."""
    assert reported({"west": beat(connected, reporting, east=6)}) == {}


def test_relays_that_report_no_calls_leave_littles_law():
    assert reported({"west": Heartbeat(cluster="west")}) == {}
    seen = {X: {"east": outcome(3.0)}}
    assert measured(seen, [X], {}) == seen


def test_calls_are_split_over_classes_in_proportion_to_littles_law():
    """Only over the classes of the called service. Other callers and services have their own."""
    cart = ("east", "cart", "db GET /x")
    seen = {
        X: {"east": outcome(1.0), "west": outcome(1.0)},
        Y: {"east": outcome(3.0)},
        OTHER: {"east": outcome(9.0)},
    }
    seen[cart] = {"east": outcome(7.0)}
    found = measured(seen, [], {WEB: {("db", "east"): 40.0, ("cart", "east"): 2.0}})
    assert (found[X]["east"].in_flight, found[Y]["east"].in_flight) == (10.0, 30.0)
    assert (found[OTHER]["east"].in_flight, found[X]["west"].in_flight) == (2.0, 0.0)
    assert found[X]["east"].reported and found[X]["west"].reported
    assert found[cart]["east"] == outcome(7.0) and not outcome(7.0).reported
    assert (found[X]["east"].rps, found[X]["east"].success_rate) == (5.0, 0.9)


def test_calls_are_split_equally_where_littles_law_knows_none():
    """At this destination, every call hangs."""
    seen = {X: {"west": outcome(1.0)}}
    found = measured(seen, [Y], {WEB: {("db", "east"): 8.0, ("db", "west"): 2.0}})
    for route in (X, Y):
        assert found[route]["east"] == Outcome(0.0, 1.0, None, None, 4.0, reported=True)
    assert found[X]["west"].in_flight == 2.0 and "west" not in found[Y]


def test_a_destination_without_calls_gets_no_outcome():
    assert measured({}, [X], {WEB: {("db", "east"): 0.0, ("elsewhere", "east"): 3.0}}) == {}


def test_a_route_of_which_no_call_ends_is_remembered():
    """Streams no longer have it, and its calls go on hanging."""
    settings = OptimizerTuning()
    first = Telemetry(outcomes={X: {"east": outcome(3.0)}}, outcomes_at=100.0)
    hangs = Telemetry(
        outcomes={OTHER: {"east": outcome(1.0)}}, outcomes_at=105.0, in_flight={WEB: {("db", "east"): 400.0}}
    )
    seen = Observations().after(first, (), 100.0, settings).after(hangs, (), 105.0, settings)
    found = seen.callers.routes[X].destinations["east"]
    assert found.in_flight.now > 200.0 and found.reported and found.silent_s == 0.0


def test_calls_that_hang_raise_the_average_and_leave_success_and_latency():
    steady = Signals()
    for _ in range(20):
        steady = steady.after(Outcome(10.0, 0.5, 5.0, 20.0, 0.2), 5.0)
    hung = steady
    for _ in range(6):
        hung = hung.after(Outcome(0.0, 1.0, None, None, 50.0, reported=True), 5.0)
    assert hung.in_flight.now == pytest.approx(50.0, rel=0.05) and hung.reported
    assert hung.rps.now < steady.rps.now / 4 and hung.silent_s == 0.0
    assert (hung.p99_s, hung.p50_s, hung.success_rate) == (steady.p99_s, steady.p50_s, steady.success_rate)
    silent = hung.after(Outcome(0.0, 1.0, None, None, 0.0, reported=True), 5.0)
    assert silent.silent_s == 5.0
