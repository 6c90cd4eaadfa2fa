"""The cost of failures. A failing destination loses its traffic and is tried again later."""

import dataclasses

import pytest
from mesh import NOW, Mesh
from spillway_contracts.hot_state import LoadBoardEntry
from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.inputs.unknown import Unknown
from spillway_optimizer.model.failures import Success, Successes, cost_ms, rates_without_callees
from spillway_optimizer.policies import REGISTRY, SPILLWAY
from spillway_optimizer.problem.objective import evaluate_shares, marginal_ms, propagate
from spillway_optimizer.programmes.exact import Exact

BACKEND = "backend GET /items/{id}"


def test_the_price_is_that_of_the_l3_paper():
    """P * (1/R - 1) with P = 0.6 s. Finite even if every call fails."""
    assert cost_ms(1.0, 600.0) == 0.0
    assert cost_ms(0.5, 600.0) == pytest.approx(600.0)
    assert cost_ms(0.985, 600.0) == pytest.approx(9.137, abs=1e-3)
    assert cost_ms(0.0, 600.0) == cost_ms(0.05, 600.0) == pytest.approx(11_400.0)


def test_few_failures_of_few_requests_are_chance():
    """One failure in ten requests may be chance, but a tenth of thousands is not."""
    few, many = Success(), Success()
    few = few.after(10.0, 0.1, 5.0)
    for _ in range(10):
        many = many.after(1000.0, 0.1, 5.0)
    assert few.at_most == 1.0 and many.at_most == pytest.approx(0.9, abs=0.02)


def test_a_rate_without_requests_goes_back_to_one():
    """After 10 s without requests, the rate rises by 0.01 per 5 s.

    So a destination that is no longer called is tried again.
    """
    success = Success(0.5, 1000.0)
    for _ in range(2):
        success = success.after(0.0, 0.0, 5.0)
    assert success.rate == 0.5
    success = success.after(0.0, 0.0, 5.0)
    assert success.rate == pytest.approx(0.51)
    for _ in range(60):
        success = success.after(0.0, 0.0, 5.0)
    assert success.rate == 1.0


def test_what_is_unknown_keeps_its_rate():
    """Without samples of an unknown cluster, the rate neither rises nor falls."""
    entry = LoadBoardEntry(0.0, 100.0, 0.5, 10.0, 5.0, 1.0, None)
    known = Successes().after(Telemetry(load={"east": {BACKEND: entry}}), Unknown(), 100.0)
    for at in range(101, 200, 5):
        known = known.after(Telemetry(), Unknown({"east": "silent"}), float(at))
    assert known.rates()[BACKEND, "east"] == pytest.approx(0.5, abs=0.06)


def test_failures_that_a_caller_only_passes_on_are_counted_where_they_begin():
    """A caller that fails as often as its callee has a success rate of 1 of its own.

    A caller that fails more often has the rest of its failures itself.
    """
    rates = {("web GET /", "west"): 0.5, ("db GET /", "east"): 0.5, ("web GET /", "east"): 0.25}
    shares = {("west", "web", "db GET /"): {"east": 1.0}, ("east", "web", "db GET /"): {"east": 1.0}}
    classes = {"db GET /": "db", "web GET /": "web"}
    calls = {"web GET /": {"db GET /": 1.0}}
    found = rates_without_callees(rates, classes, calls, lambda *route: shares[route])
    assert found == pytest.approx({("db GET /", "east"): 0.5, ("web GET /", "east"): 0.5})


def test_a_caller_does_not_answer_for_the_failures_of_many_calls():
    """Three calls of which each succeeds in nine of ten cases: 0.729 of the requests succeed.

    Of requests that make such a call only sometimes, 0.95 do.
    """
    rates = {("db GET /", "west"): 0.9, ("thrice GET /", "west"): 0.729, ("half GET /", "west"): 0.9025}
    classes = {"db GET /": "db", "thrice GET /": "thrice", "half GET /": "half"}
    calls = {"thrice GET /": {"db GET /": 3.0}, "half GET /": {"db GET /": 0.5}}
    found = rates_without_callees(rates, classes, calls, lambda *_: {"west": 1.0})
    assert ("thrice GET /", "west") not in found or found["thrice GET /", "west"] == pytest.approx(1.0)
    assert found["half GET /", "west"] == pytest.approx(0.95)


def test_a_destination_that_fails_gets_nothing_where_another_is_near(chain):
    """Half of the calls fail in west, which costs 600 ms per call, so calls go east.

    The exact and the fast solver agree to 0.1 %.
    """
    problem = dataclasses.replace(chain({"west": 400.0}), failure_ms={("db GET /x", "west"): 600.0})
    fast, exact = REGISTRY[SPILLWAY]().route(problem), Exact().route(problem)
    assert fast.flows[0, 0, 1] == pytest.approx(400.0, rel=0.05)
    assert fast.evaluation.usd_per_hour == pytest.approx(exact.evaluation.usd_per_hour, rel=1e-3)
    assert fast.relative_gap < 1e-3 and fast.evaluation.failure_ms_rps < 400 * 600 * 0.05
    home = REGISTRY["local"]().route(problem).evaluation
    assert home.failure_ms_rps == pytest.approx(400 * 600.0)
    assert home.mean_latency_ms < 100, "failures are no latency"


def test_the_marginal_cost_has_the_failures(chain):
    """The cost of one more call includes failures, as the evaluator's does."""
    problem = dataclasses.replace(chain({"west": 100.0}), failure_ms={("db GET /x", "west"): 50.0})
    shares = REGISTRY["local"]().route(problem).shares
    _, load = propagate(problem.layout, shares)
    k = problem.layout.classes.index("db GET /x")
    free = dataclasses.replace(problem, failure_ms={})
    assert marginal_ms(problem, load)[k, 0] - marginal_ms(free, load)[k, 0] == pytest.approx(50.0)
    more = evaluate_shares(problem, shares).usd_per_hour - evaluate_shares(free, shares).usd_per_hour
    assert more == pytest.approx(100 * 50.0 * problem.usd_per_ms * 3600)


async def test_a_backend_that_fails_every_call_is_left_and_tried_again(settings, tmp_path):
    """A backend in east that fails every call loses all calls within two solves.

    West could serve all of them at a high cost, so east has a part at first. The reason names
    failures. Minutes after the last call, east is tried again.
    """
    mesh = Mesh(settings, tmp_path)

    def failing(d):
        d["load"]["east"][BACKEND] |= {"failed_share": 1.0, "rps": 200.0}

    def busy(d):
        failing(d)
        d["load"]["east"][BACKEND]["failed_share"] = 0.0

    await mesh.solve(NOW, busy)
    before = _to_east(mesh)
    assert before > 1500
    for n in (1, 2):
        await mesh.solve(NOW + 5 * n, failing)
    assert _to_east(mesh) == 0
    assert any("for failures" in reason for key, reason in mesh.reasons().items() if key[0] == "west")

    def silent(d):
        busy(d)
        del d["load"]["east"][BACKEND]

    for n in range(3, 180):
        await mesh.solve(NOW + 5 * n, silent)
    assert _to_east(mesh) > 1000


def _to_east(mesh):
    """Returns the parts of 10 000 of west's calls that end at a backend in east."""
    rules = mesh.rules()
    front = next(w for k, w in rules.items() if k[:2] == ("west", "gateway"))
    back = next(w for k, w in rules.items() if k[:2] == ("west", "frontend"))
    east = next(w for k, w in rules.items() if k[:2] == ("east", "frontend"))
    return (front.get("west", 0) * back.get("east", 0) + front.get("east", 0) * east.get("east", 0)) / 10_000
