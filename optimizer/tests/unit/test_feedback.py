"""L3 and C3 against the formulas and Fig. 4 of the L3 paper, and as policies of routes."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mesh import NOW, Mesh
from spillway_contracts.hot_state import LoadBoardEntry
from spillway_optimizer.callers.averages import Averages, RouteSignals
from spillway_optimizer.callers.ewma import Ewma
from spillway_optimizer.callers.signals import Outcome, Signals
from spillway_optimizer.feedback import c3, l3, rate_control
from spillway_optimizer.feedback.weights import LEAST, by_c3, by_l3, by_l3_peak, shares
from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.policies import MODEL_FREE, REGISTRY
from spillway_optimizer.solving.config import OptimizerTuning
from spillway_optimizer.solving.observations import Observations

FAST = Outcome(rps=50.0, success_rate=1.0, p50_ms=5.0, p99_ms=20.0, in_flight=0.5)
SLOW = replace(FAST, p50_ms=10.0, p99_ms=400.0)
P = 0.6  # what a call costs at a success rate of one half, in seconds
ROUTE = ("west", "web", "db GET /x")


def after(polls: int, **outcomes: Outcome) -> RouteSignals:
    """Returns the averages after so many polls with the same outcomes, five seconds apart."""
    found = Averages()
    for number in range(polls):
        found = found.after({ROUTE: outcomes}, 100.0 + 5.0 * number)
    return found.routes[ROUTE]


@pytest.mark.parametrize(
    ("c", "above", "below"),
    [
        (-1.0, 2968.4, 44.7),
        (-0.5, 2829.3, 176.8),
        (0.0, 2000.0, 500.0),
        (0.5, 1715.5, 642.2),
        (1.0, 1353.6, 823.2),
        (2.0, 1089.4, 955.3),
    ],
)
def test_rate_control_has_the_values_of_figure_4(c, above, below):
    """Weights of 2000 and of 500 beside a mean of 1000."""
    for weight, expected in ((2000.0, above), (500.0, below)):
        others = np.array([weight, 2000.0 - weight])  # the mean of both is 1000
        assert rate_control.adjusted(others, c, 0.0)[0] == pytest.approx(expected, abs=0.05)


def test_the_change_of_load_is_relative_to_the_average():
    """There is no change without requests, or before the first."""
    assert rate_control.change(150.0, 100.0) == 0.5
    assert rate_control.change(0.0, 100.0) == rate_control.change(0.0, 0.0) == 0.0


@given(st.lists(st.floats(0.01, 1e6), min_size=1, max_size=5), st.floats(-1, 10), st.floats(0.001, 100))
def test_no_weight_falls_below_the_least(weights, c, least):
    found = rate_control.adjusted(np.array(weights), c, least)
    assert (found >= least).all() and np.isfinite(found).all()


def test_an_average_begins_at_its_default_and_halves_its_distance_in_its_half_life():
    """The first sample does not replace the default (equation 1)."""
    ewma = Ewma(5.0, half_life_s=5.0)
    assert ewma.now == 5.0
    assert ewma.after(1.0, 5.0).now == pytest.approx(3.0)
    assert ewma.after(1.0, 5.0).after(1.0, 10.0).now == pytest.approx(1.5)
    assert 5.0 / math.log(2) == pytest.approx(7.2135, abs=1e-4)  # beta, in the paper's terms


def test_a_peak_average_takes_a_higher_sample_at_once_and_falls_slowly():
    """Equation 2."""
    ewma = Ewma(1.0, half_life_s=5.0, peak=True)
    assert ewma.after(9.0, 0.1).now == 9.0
    assert ewma.after(9.0, 0.1).after(1.0, 5.0).now == pytest.approx(5.0)


def test_averages_go_back_to_their_defaults_after_ten_seconds_without_traffic():
    """By 0.1 s, 1 request in flight and 0.01 of success for each poll, and never beyond."""
    seen = after(40, east=replace(FAST, success_rate=0.5)).destinations["east"]
    once = seen.after(None, 5.0)
    assert once.p99_s.now == seen.p99_s.now and once.rps.now < seen.rps.now
    twice = once.after(None, 5.0)
    assert twice.p99_s.now == pytest.approx(seen.p99_s.now + 0.1)
    assert twice.in_flight.now == pytest.approx(seen.in_flight.now + 1)
    assert twice.success_rate.now == pytest.approx(seen.success_rate.now + 0.01)
    for _ in range(200):
        twice = twice.after(None, 5.0)
    assert (twice.p99_s.now, twice.in_flight.now, twice.success_rate.now) == (5.0, 100.0, 1.0)


def test_calls_that_all_fail_have_no_latency():
    """Success falls and the latency stays what it was: unknown is not zero."""
    seen = after(40, east=FAST).destinations["east"]
    failing = seen.after(Outcome(50.0, 0.0, None, None, 0.1), 10.0)
    assert failing.p99_s == seen.p99_s
    assert failing.success_rate.now == pytest.approx(0.5, abs=0.01)


def test_the_weight_of_l3_counts_failures_and_requests_in_flight():
    """Equations 3 and 4, computed by hand."""
    assert l3.estimated_latency_s(0.1, 0.5, P) == pytest.approx(0.7)
    assert l3.weight(in_flight=10.0, rps=10.0, latency_s=0.1, success_rate=1.0, penalty_s=P) == pytest.approx(
        2.5
    )
    assert l3.weight(in_flight=10.0, rps=0.0, latency_s=0.1, success_rate=1.0, penalty_s=P) == pytest.approx(
        10.0
    )
    assert l3.weight(in_flight=0.0, rps=10.0, latency_s=0.1, success_rate=0.0, penalty_s=P) == 0.0


def test_the_weight_of_c3_is_that_of_a_log_normal_mean():
    """M of p50 = 10 ms and p99 = 100 ms is 16.3 ms: sigma is ln(10) / 2.3263."""
    sigma = math.log(10) / 2.3263
    assert c3.mean_latency_s(0.01, 0.1) == pytest.approx(0.01 * math.exp(sigma**2 / 2), rel=1e-4)
    assert c3.weight(20.0, 10.0, 0.01, 0.01) == pytest.approx(1 / (0.01 * 9))
    assert c3.weight(20.0, 10.0, 0.02, 0.01) == pytest.approx(1 / (0.02 * 9))  # quantiles out of order


@pytest.mark.parametrize("weigh", [by_l3, by_l3_peak, by_c3])
def test_the_faster_destination_gets_more_and_no_destination_nothing(weigh):
    found = shares(after(60, west=SLOW, east=FAST), ["west", "east", "north"], weigh, P)
    assert found.sum() == pytest.approx(1.0)
    assert found[1] > 1.5 * found[0] > 0
    assert found[2] >= LEAST / 3 * 0.99  # never measured: 5 s and 100 in flight


def test_only_l3_sees_failures():
    seen = after(60, west=replace(FAST, success_rate=0.5), east=FAST)
    assert shares(seen, ["west", "east"], by_l3, P)[0] < 0.1 < shares(seen, ["west", "east"], by_l3, 0.0)[0]
    assert shares(seen, ["west", "east"], by_c3, P)[0] == pytest.approx(0.5)


def test_l3_peak_remembers_a_spike_for_longer():
    """One poll at 400 ms, and a quick return: the peak average is still higher."""
    seen = after(60, west=FAST, east=FAST)
    for outcome in (SLOW, FAST):
        seen = seen.after({"west": outcome, "east": FAST}, 5.0)
    by_average, by_peak = (shares(seen, ["west", "east"], weigh, P)[0] for weigh in (by_l3, by_l3_peak))
    assert by_peak < by_average < 0.5


def test_a_destination_that_was_never_measured_has_the_default_averages():
    """All of them alike before the first poll, as round robin would."""
    assert shares(RouteSignals(), ["a", "b", "c"], by_l3, P) == pytest.approx([1 / 3] * 3)
    assert Signals().p99_s.now == 5.0


def test_a_reading_that_is_not_newer_changes_nothing():
    """Redis has the last board until it expires. Counting it twice would move averages twice."""
    first = Averages().after({ROUTE: {"west": FAST}}, 100.0)
    assert first.after({ROUTE: {"west": SLOW}}, 100.0) is first


def test_a_route_without_calls_is_forgotten_in_the_end():
    found = Averages().after({ROUTE: {"west": FAST}}, 100.0)
    for number in range(200):
        found = found.after({}, 105.0 + 5.0 * number)
    assert found.routes == {}
    assert Averages().after({ROUTE: {}}, 100.0).routes == {}


def test_averages_go_on_while_no_route_has_calls_and_stay_while_calls_are_not_seen():
    """Without the outcomes of any route, the load boards tell silence from what is not known."""
    entry = LoadBoardEntry(0.0, 50.0, 0.0, 10.0, 5.0, 1.0, None)
    tuning = OptimizerTuning()
    slow = Telemetry(outcomes={ROUTE: {"west": SLOW}}, outcomes_at=100.0)
    known = Observations().after(slow, (), 100.0, tuning)
    silent = unseen = known
    for number in range(1, 9):
        at = 100.0 + 5.0 * number
        silent = silent.after(Telemetry(load={"west": {}}), (), at, tuning)
        unseen = unseen.after(Telemetry(load={"west": {ROUTE[2]: replace(entry, at=at)}}), (), at, tuning)
    before = known.callers.routes[ROUTE].destinations["west"]
    assert unseen.callers.routes[ROUTE].destinations["west"] == before
    after = silent.callers.routes[ROUTE].destinations["west"]
    assert after.silent_s == 40.0 and after.rps.now < before.rps.now
    back = silent.after(replace(slow, outcomes_at=150.0), (), 150.0, tuning)
    assert back.callers.routes[ROUTE].silent_s == 0.0


@pytest.mark.parametrize("name", sorted(MODEL_FREE))
def test_a_policy_splits_each_route_by_its_own_averages(chain, name):
    """West's calls to db go mainly to east, where they are fast. East was never measured."""
    problem = chain({"west": 100.0, "east": 100.0})
    measured = replace(problem, callers={ROUTE: after(60, west=SLOW, east=FAST)})
    found = REGISTRY[name]().route(measured).shares[0]
    assert found[0, 1] > 0.6
    assert found[1] == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("name", sorted(MODEL_FREE))
def test_a_policy_leaves_a_destination_where_calls_hang(chain, name):
    """No call ends there, so rate, success and latency say nothing. Only Envoys know."""
    found, hung = Averages(), Outcome(0.0, 1.0, None, None, 60.0, reported=True)
    for number in range(24):
        east = FAST if number < 18 else hung
        found = found.after({ROUTE: {"west": FAST, "east": east}}, 100.0 + 5.0 * number)
    problem = replace(chain({"west": 100.0, "east": 0.0}), callers=found.routes)
    solution = REGISTRY[name]().route(problem)
    assert solution.shares[0][0, 1] < 0.05
    assert solution.notes[:2] == (
        "requests in flight as Envoys report them: web in west",
        "requests in flight by Little's law, without calls that hang: web in west",
    )


def test_without_curves_times_are_unknown_and_the_rest_is_priced(chain):
    """Egress and network follow from weights alone. A mean that nobody knows is NaN, not 0."""
    problem = chain({"west": 100.0, "east": 0.0})
    problem = replace(problem, unmodelled=frozenset({"db GET /x"}), callers={ROUTE: after(9, east=FAST)})
    found = REGISTRY["l3"]().route(problem).evaluation
    assert math.isnan(found.mean_latency_ms) and math.isnan(found.usd_per_hour)
    assert found.network_ms > 0 and math.isfinite(found.egress_usd_per_hour)


async def test_l3_routes_an_application_that_has_no_curves(settings, tmp_path):
    """Spillway refuses it. L3 publishes rules with what it saw, and predicts no latency."""

    def without_curves(document):
        document["curves"], document["capacities"] = [], []

    refused = Mesh(settings, tmp_path, policy="spillway")
    rows = await refused.solve(NOW, without_curves)
    assert {row["outcome"] for row in rows.values()} == {"refused"} and not refused.sent
    mesh = Mesh(settings, tmp_path, policy="l3")
    rows = await mesh.solve(NOW, without_curves)
    assert {row["outcome"] for row in rows.values()} == {"proposed"}
    assert all(math.isnan(row["mean_latency_ms"]) for row in rows.values())
    assert all("the policy does without" in " ".join(row["notes"]) for row in rows.values())
    ruleset = mesh.sent[-1]
    assert ruleset.policy == "l3" and ruleset.rules
    assert math.isnan(ruleset.predicted.mean_latency_ms)
    assert ruleset.rules[0].reason.endswith("by what its callers see")


def test_averages_of_a_route_that_nobody_reports_stay_as_they_were():
    """Telemetry that stops is no traffic that stops."""
    first = Averages().after({ROUTE: {"west": FAST}}, 100.0)
    held = first.after({}, 200.0, lambda route: route == ROUTE)
    assert held.routes == first.routes and held.at == 200.0


@pytest.mark.parametrize("poll_s", [1.0, 5.0])
def test_what_is_forgotten_in_silence_does_not_depend_on_how_often_it_is_looked_at(poll_s):
    """After a minute without calls a destination that failed half of them is not forgiven."""
    found = after(60, west=replace(FAST, success_rate=0.5)).destinations["west"]
    for _ in range(int(60 / poll_s)):
        found = found.after(None, poll_s)
    assert found.success_rate.now == pytest.approx(0.61, abs=0.02)
