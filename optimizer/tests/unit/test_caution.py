"""A caution beyond the loads that were seen: in the objective, in routing and in sentences."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from instances import random_problem
from spillway_contracts import topology
from spillway_contracts.guardrails import Guardrails
from spillway_optimizer import ProblemError
from spillway_optimizer.commands.explaining import explained
from spillway_optimizer.model import model
from spillway_optimizer.policies.nearest import nearest_shares
from spillway_optimizer.problem.binding import unseen
from spillway_optimizer.problem.marginal import marginal, way
from spillway_optimizer.problem.objective import evaluate_shares, marginal_ms
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.process.progress import Progress
from spillway_optimizer.programmes.exact import Exact
from spillway_optimizer.solvers.convex import Stop
from spillway_optimizer.solvers.descent import penalised
from spillway_optimizer.solvers.fast import Fast
from spillway_optimizer.sources import model_file
from spillway_optimizer.sources.situation import situation
from spillway_optimizer.sources.whatif import WhatIf

GOLDEN = Path(__file__).resolve().parents[3] / "contracts" / "golden"
FAST, EXACT, SHORT = Stop(5e-4, 60, 30.0), Stop(1e-5, 300, 30.0), Stop(1e-3, 300, 1.0)
some = settings(max_examples=16, derandomize=True, database=None)
seeds = st.integers(0, 2**32 - 1)


def _cautious(problem: Problem, caution: float = 2.0, **seen: float) -> Problem:
    return dataclasses.replace(problem, extrapolation_caution=caution, seen_utilisation=seen)


def _instance(seed: int, convex: bool) -> Problem | None:
    """Returns a random problem with caution, some of whose services have no range."""
    try:
        problem = random_problem(seed, constrained=seed % 2 > 0, convex=convex)
    except ProblemError:
        return None
    chance = np.random.default_rng(seed)
    services = sorted(set(problem.classes.values()))
    seen = {service: float(chance.uniform(0.2, 1.1)) for service in services if chance.random() < 0.8}
    caution = float(10 ** chance.uniform(-1, 1.5))
    return _cautious(problem, caution, **seen) if problem.layout.demand.any() else None


def test_what_is_extrapolated_counts_more(chain):
    """By hand: the queue above its tangent at 50 % counts three times, the rest of it once."""
    plain = chain({"west": 400.0, "east": 200.0}, capacity=500.0)
    shares, problem = nearest_shares(plain), _cautious(plain, db=0.5)
    before, after = evaluate_shares(plain, shares), evaluate_shares(problem, shares)
    tangent = 1 / (1 - 0.5) + 1 / (1 - 0.5) ** 2 * (0.8 - 0.5)
    surcharge = 400 * 3 * 2 * (1 / (1 - 0.8) - tangent) * 1e-7 * 3600
    assert after.caution_usd_per_hour == pytest.approx(surcharge)
    assert after.usd_per_hour == pytest.approx(before.usd_per_hour + surcharge)
    assert after.compute_usd_per_hour == pytest.approx(before.compute_usd_per_hour + surcharge)


def test_latencies_are_not_cautious(chain):
    """Predicted latency is what the curve says, also beyond the range."""
    plain = chain({"west": 400.0, "east": 200.0}, capacity=500.0)
    shares = nearest_shares(plain)
    before, after = evaluate_shares(plain, shares), evaluate_shares(_cautious(plain, db=0.5), shares)
    assert after.mean_latency_ms == before.mean_latency_ms and after.compute_ms == before.compute_ms
    assert (after.latency_ms == before.latency_ms).all()


@pytest.mark.parametrize("changed", [{"caution": 0.0, "db": 0.5}, {"db": 0.9}, {}])
def test_without_caution_or_within_the_range_nothing_changes(chain, changed):
    """It is off by default, and a service of unknown range has none."""
    plain = chain({"west": 400.0, "east": 200.0}, capacity=500.0)
    shares, problem = nearest_shares(plain), _cautious(plain, **changed)
    assert evaluate_shares(problem, shares).usd_per_hour == evaluate_shares(plain, shares).usd_per_hour


def test_caution_moves_load_to_where_it_was_seen(chain):
    """West is seen up to 50 % and would be at 70 %. More goes to east, and a note reports it."""
    plain = chain({"west": 450.0, "east": 50.0}, rtt=12.0, capacity=500.0)
    db = plain.layout.services.index("db")
    busy, notes = {}, {}
    for caution in (0.0, 2.0, 20.0):
        solution = Fast(FAST).route(_cautious(plain, caution, db=0.5))
        busy[caution] = solution.evaluation.utilisation[db, 0]
        notes[caution] = [note for note in solution.notes if "was seen up to 50.0%" in note]
        assert solution.relative_gap < 1e-3
    assert busy[0.0] > busy[2.0] + 0.02 > busy[20.0] + 0.03 > 0.5
    assert notes[0.0] == [] and "extrapolated counts 3 times" in notes[2.0][0]


@pytest.mark.parametrize(("seen", "said"), [(0.8, []), (0.7995, []), (0.798, ["80.0%", "79.8%"])])
def test_a_load_that_rounding_puts_beyond_the_range_is_not_mentioned(chain, seen, said):
    """The two percentages of a sentence differ."""
    problem = _cautious(chain({"west": 400.0, "east": 200.0}, capacity=500.0), db=seen)
    utilisation = evaluate_shares(problem, nearest_shares(problem)).utilisation
    sentences = [sentence for _, sentence in unseen(problem, utilisation * (1 + 1e-12))]
    assert [re.findall(r"[\d.]+%", sentence) for sentence in sentences] == ([said] if said else [])


@some
@given(seeds)
def test_fast_is_exact(seed):
    """On convex problems both values agree, and each bound lies below the other solver's value."""
    if (problem := _instance(seed, convex=True)) is None:
        return
    exact, fast = Exact(EXACT).route(problem), Fast(FAST).route(problem)
    best, found = penalised(problem, exact.flows), penalised(problem, fast.flows)
    ms = problem.usd_per_ms * 3600.0
    assert found <= best * (1 + 1e-3)
    assert fast.bound_usd_per_hour <= best * ms * (1 + 1e-7)
    assert exact.bound_usd_per_hour <= found * ms * (1 + 1e-7)


@settings(max_examples=6, derandomize=True, database=None)
@given(seeds)
def test_both_bounds_hold_where_it_is_not_convex(seed):
    """No bound is above what the other solver found."""
    if (problem := _instance(seed, convex=False)) is None:
        return
    exact, fast = Exact(SHORT).route(problem), Fast(FAST).route(problem)
    best = min(penalised(problem, s.flows) for s in (exact, fast)) * problem.usd_per_ms * 3600.0
    assert max(fast.bound_usd_per_hour, exact.bound_usd_per_hour) <= best * (1 + 1e-7)


@pytest.mark.parametrize("west", [200.0, 300.0, 350.0, 497.0, 700.0])
def test_marginal_costs_are_the_derivative(chain, west):
    """Below the range, beyond it and in overload; along shares and along the cheapest way."""
    problems = [
        _cautious(chain({"west": w, "east": 60.0}, rtt=1e6), db=0.6, web=0.5) for w in (west, west + 1e-4)
    ]
    shares = nearest_shares(problems[0])
    before, after = (evaluate_shares(problem, shares) for problem in problems)
    expected = (after.usd_per_hour - before.usd_per_hour) / 1e-4 / 3600 / 1e-7
    assert marginal_ms(problems[0], before.load)[0, 0] == pytest.approx(expected, rel=1e-3)
    costs = marginal(problems[0], shares)
    assert costs.total()[0, 0] == pytest.approx(expected, rel=1e-3)
    assert way(problems[0], 0).shape[1:] == (2, 2)


def _golden(caution: float):
    telemetry = model_file.read(GOLDEN / "3_model.json")
    return telemetry, topology.load(GOLDEN / "topology.yaml"), Guardrails(extrapolation_caution=caution)


def test_the_range_is_the_highest_of_the_services_curves():
    """It comes from the rows of the curves. Without caution the problem does not have it."""
    telemetry, declared, guardrails = _golden(2.0)
    at = model_file.as_of(telemetry)
    problem = model.build(telemetry, declared, at, guardrails=guardrails).problem
    assert problem.extrapolation_caution == 2.0
    assert problem.seen_utilisation["backend"] == pytest.approx(0.812712278)
    assert problem.seen_utilisation["frontend"] == pytest.approx(0.712541646)
    assert model.build(telemetry, declared, at).problem.seen_utilisation == {}
    unknown = tuple(dataclasses.replace(row, u_max=0.0) for row in telemetry.curves)
    rows = dataclasses.replace(telemetry, curves=unknown)
    assert model.build(rows, declared, at, guardrails=guardrails).problem.seen_utilisation == {}


def test_explain_says_where_queueing_is_extrapolated(data):
    """For the services that the class leads to, once, and only with a caution."""
    said = {}
    for caution in (0.0, 2.0):
        guarded = dataclasses.replace(data, guardrails=Guardrails(extrapolation_caution=caution))
        of = situation(guarded, WhatIf(scale=((None, 1.4),)))
        [route] = explained(of, "frontend GET /items/{id}", "west", "local", Progress())["routes"]
        said[caution] = [sentence for sentence in route["binding"] if "was seen up to" in sentence]
    assert said[0.0] == []
    assert any(sentence.startswith("backend in west is at ") for sentence in said[2.0])
    assert len(said[2.0]) == len(set(said[2.0]))
