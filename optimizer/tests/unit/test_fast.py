"""The fast solver compared with the exact one, with brute force, and with its own certificate."""

import dataclasses
import itertools
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from instances import random_problem
from spillway_optimizer import ProblemError
from spillway_optimizer.policies import MINIMISING, REGISTRY
from spillway_optimizer.problem.constraints import Constraints
from spillway_optimizer.problem.objective import evaluate_shares
from spillway_optimizer.problem.problem import Curve, Edge, Problem
from spillway_optimizer.problem.solution import Solution, shares_of
from spillway_optimizer.programmes.exact import Exact
from spillway_optimizer.solvers import budget
from spillway_optimizer.solvers.convex import Stop
from spillway_optimizer.solvers.descent import penalised, relaxation
from spillway_optimizer.solvers.fast import Fast
from spillway_optimizer.solvers.newton import Newton

# The instances are the same in every run. SPILLWAY_INSTANCES=5000 tries more.
INSTANCES = int(os.environ.get("SPILLWAY_INSTANCES", "280"))
# All instances in one test take minutes where the machine is busy, which is pytest's time limit.
PARTS = 4
in_parts = pytest.mark.parametrize("part", range(PARTS))
many = settings(max_examples=max(INSTANCES // PARTS, 1), derandomize=True, database=None)
some = settings(max_examples=max(INSTANCES // 8, 1), derandomize=True, database=None)
few = settings(max_examples=max(INSTANCES // 16, 1), derandomize=True, database=None)
seeds = st.integers(0, 2**32 - 1)
SHORT = Stop(1e-3, 300, 1.0)
EXACT, FAST = Stop(1e-5, 300, 30.0), Stop(5e-4, 60, 30.0)


def _instance(seed: int, **kind) -> Problem | None:
    """Returns a random problem. None if it would be invalid, or if it has no demand."""
    try:
        problem = random_problem(seed, **kind)
        return problem if problem.layout.demand.any() else None
    except ProblemError:
        return None


def _value(problem: Problem, solution: Solution) -> float:
    return penalised(problem, solution.flows)


def _agree(problem: Problem) -> None:
    exact, fast = Exact(EXACT).route(problem), Fast(FAST).route(problem)
    best, found = _value(problem, exact), _value(problem, fast)
    ms = problem.usd_per_ms * 3600.0
    assert found <= best * (1 + 1e-3)
    # If ceiling or budget cannot be satisfied, the gap also covers the cost of exceeding them.
    missing = found * ms - fast.bound_usd_per_hour
    assert missing <= 1e-3 * (found * ms if fast.beyond_usd_per_hour > 0 else fast.evaluation.usd_per_hour)
    assert fast.bound_usd_per_hour <= best * ms * (1 + 1e-7)
    assert exact.bound_usd_per_hour <= found * ms * (1 + 1e-7)


@in_parts
@many
@given(seed=seeds)
def test_fast_is_exact(part, seed):
    """On convex problems, from idle to overloaded, both values agree to 0.1 %.

    Each bound lies below the other solver's value.
    """
    if problem := _instance(seed * PARTS + part, constrained=False):
        _agree(problem)


@in_parts
@many
@given(seed=seeds)
def test_fast_is_exact_under_side_constraints(part, seed):
    """The same with local shares, limited shifts, denials, draining, ceilings and budgets.

    Some of these constraints cannot be satisfied.
    """
    if problem := _instance(seed * PARTS + part):
        _agree(problem)


@some
@given(seeds)
def test_side_constraints_hold(seed):
    """Every row keeps its floor and uses only allowed destinations. Closed rows carry nothing."""
    if problem := _instance(seed):
        layout, flows = problem.layout, Fast(FAST).route(problem).flows
        calls = flows.sum(axis=2)
        assert (flows >= layout.floor * calls[:, :, None] * (1 - 1e-6) - 1e-9).all()
        assert not flows[~layout.usable].any()
        assert not calls[layout.closed].any()


@few
@given(seeds)
def test_without_proportion_both_bounds_hold(seed):
    """On problems that are not convex, with and without side constraints.

    No bound is below that of the least queueing terms. A note states how much is not proven.
    """
    problem = _instance(seed, constrained=seed % 2 > 0, convex=False)
    if problem is None:
        return
    exact, fast = Exact(SHORT).route(problem), Fast(FAST).route(problem)
    best = min(_value(problem, exact), _value(problem, fast)) * problem.usd_per_ms * 3600.0
    assert max(fast.bound_usd_per_hour, exact.bound_usd_per_hour) <= best * (1 + 1e-7)
    loose = budget.minimise(relaxation(problem, least=True), FAST).minimum.bound
    for bound in (exact.bound_usd_per_hour, fast.bound_usd_per_hour):
        assert bound >= loose * problem.usd_per_ms * 3600.0 * (1 - 1e-3)
    if any("not convex" in note for note in exact.notes):
        assert any("proven to be at most" in note for note in fast.notes)


@pytest.mark.parametrize("seed", [7, 31, 55, 59, 61, 64, 82])
def test_the_relaxation_is_solved_in_overload(seed):
    """The demand exceeds capacities or ceilings, so prices lie where the curves have kinks."""
    problem = random_problem(seed, constrained=seed % 2 > 0, convex=False)
    found = budget.minimise(relaxation(problem), Stop(1e-3, 60, 30.0)).minimum
    assert found.value - found.bound <= 2e-3 * found.value


@few
@given(seeds)
def test_the_registrys_exact_routes_as_spillway_does(seed):
    """Neither policy costs more than the other by more than its own gap, convex or not."""
    problem = _instance(seed, constrained=seed % 2 > 0, convex=seed % 3 > 0)
    if problem is None:
        return
    policies = {name: REGISTRY[name]() for name in MINIMISING}
    for policy in policies.values():
        policy.stop = SHORT
    found = {name: policy.route(problem) for name, policy in policies.items()}
    cost = {name: s.evaluation.usd_per_hour + s.beyond_usd_per_hour for name, s in found.items()}
    for name, solution in found.items():
        gap = solution.relative_gap * solution.evaluation.usd_per_hour
        assert cost[name] - gap <= min(cost.values()) * (1 + 1e-7), name


def test_a_row_that_floors_decide_goes_nowhere_else():
    """The floors' sum is one but for rounding. The rest is not sent where no call may go."""
    problem = random_problem(197, constrained=True, convex=False)
    layout = problem.layout
    idle = shares_of(problem, np.zeros_like(layout.floor), np.zeros_like(layout.demand))
    assert not idle[~layout.usable].any()


@settings(max_examples=8, derandomize=True, database=None)
@given(st.floats(20, 900), st.floats(0, 500), st.floats(1, 60), st.floats(0, 0.1))
def test_brute_force_agrees(first, other, rtt, price):
    """No split on a grid beats the solver on two hops between two clusters.

    The grid covers all splits of the rows that carry calls, in steps of 6.25 %.
    """
    problem = _two_hops(first, other, rtt, price)
    grid = np.linspace(0, 1, 17)
    rows = [[[p, 1 - p] for p in grid]] * 4
    best = min(
        evaluate_shares(problem, np.array([[a, b], [c, d]])).usd_per_hour
        for a, b, c, d in itertools.product(rows[0], [[0.0, 1.0]], rows[2], rows[3])
    )
    value = Fast(FAST).route(problem).evaluation.usd_per_hour
    assert value <= best * (1 + 1e-3)


def _two_hops(first: float, other: float, rtt: float, price: float) -> Problem:
    names, services = ("a", "b"), ("web", "app", "db")
    ids = {s: f"{s} GET /" for s in services}
    return Problem(
        clusters=names,
        classes={ids[s]: s for s in services},
        edges=(Edge(ids["web"], ids["app"], 1.0, 1e3, 1e4), Edge(ids["app"], ids["db"], 2.0, 1e3, 1e4)),
        demand_rps={("a", ids["web"]): first, ("b", ids["web"]): other},
        curves={ids[s]: Curve(2.0, 5.0) for s in services},
        capacity_rps={(s, c): 600.0 * (1 + (s == "db")) for s in services for c in names},
        placement=frozenset(itertools.product(services, names)),
        rtt_ms={("a", "b"): rtt, ("b", "a"): 2 * rtt},
        egress_usd_per_gb={("a", "b"): price, ("b", "a"): price},
        usd_per_ms=1e-7,
    )


def test_a_warm_start_saves_steps_also_at_a_small_gap(monkeypatch):
    """Every demand changes by up to 10 %, and the gap is that of the service's default.

    Over the instances, Newton's method takes at most 0.3 times the steps of cold solves.
    """
    steps: list[int] = []
    monkeypatch.setattr(Newton, "_system", _counted(Newton._system, steps))
    warm = cold = 0
    for seed in range(16):
        base = _instance(seed, constrained=False, clusters=8)
        if base is None:
            continue
        r = np.random.default_rng(seed)
        changed = {key: rps * float(r.uniform(0.9, 1.1)) for key, rps in base.demand_rps.items()}
        problem = dataclasses.replace(base, demand_rps=changed)
        solver = Fast(Stop(1e-4, 60, 30.0))
        solver.route(base)
        steps.clear()
        assert solver.route(problem).relative_gap <= 1.01e-4
        warm += len(steps)
        steps.clear()
        Fast(Stop(1e-4, 60, 30.0)).route(problem)
        cold += len(steps)
    assert warm <= 0.3 * cold


def _counted(method, calls):
    """Returns the method, which adds 1 to `calls` at each call."""

    def counting(*arguments):
        calls.append(1)
        return method(*arguments)

    return counting


def test_a_warm_start_ends_where_a_cold_one_does():
    """Holds after a change of load, and after a change of the call graph.

    The latter resets the prices.
    """
    solver = Fast(FAST)
    for seed in (11, 11, 12):
        problem = random_problem(seed, constrained=False)
        solver.route(problem)
        busier = {key: 1.1 * rps for key, rps in problem.demand_rps.items()}
        problem = dataclasses.replace(problem, demand_rps=busier)
        warm, cold = solver.route(problem), Fast(FAST).route(problem)
        assert _value(problem, warm) == pytest.approx(_value(problem, cold), rel=1e-3)


def test_time_that_ran_out_still_gives_a_routing_and_a_true_bound():
    """The result is the best routing so far, with its gap."""
    problem = random_problem(3, constrained=False)
    late = Fast(Stop(relative_gap=1e-9, seconds=0.0)).route(problem)
    exact = Exact(EXACT).route(problem)
    assert late.bound_usd_per_hour <= exact.evaluation.usd_per_hour * (1 + 1e-7)
    assert late.relative_gap is not None
    assert late.evaluation.usd_per_hour >= exact.bound_usd_per_hour * (1 - 1e-7)


def test_a_budget_is_kept_at_the_least_cost(chain):
    """The budget is half of the egress that the optimum would cost.

    Exactly that much is paid, and the budget is reported as binding.
    """
    free = chain({"west": 900.0, "east": 10.0})
    paid = Fast().route(free).evaluation.egress_usd_per_hour
    problem = dataclasses.replace(free, constraints=Constraints(egress_usd_per_hour=paid / 2))
    solution = Fast(FAST).route(problem)
    assert solution.evaluation.egress_usd_per_hour == pytest.approx(paid / 2, rel=1e-3)
    assert any("egress budget" in words for words in solution.binding)


def test_a_broken_ceiling_is_no_gap_of_nothing(chain):
    """Demand exceeds every ceiling.

    A note says so, and the gap includes the cost of exceeding the ceiling.
    """
    problem = dataclasses.replace(
        chain({"west": 900.0, "east": 700.0}), constraints=Constraints(utilisation_ceiling=0.5)
    )
    solution = Fast(FAST).route(problem)
    assert any("ceiling" in note for note in solution.notes)
    assert solution.beyond_usd_per_hour > 0
    assert 0.0 <= solution.relative_gap <= 1e-3


def test_a_shift_of_nothing_keeps_what_is_in_force(chain):
    """With a maximum shift of 0, every route stays unchanged, even if another split is cheaper."""
    free = chain({"west": 900.0, "east": 10.0})
    before = {(source, "web", "db GET /x"): {"west": 0.25, "east": 0.75} for source in ("west", "east")}
    problem = dataclasses.replace(free, constraints=Constraints(max_shift=0.0, in_force=before))
    solution = Fast(FAST).route(problem)
    assert np.allclose(solution.shares[0], [[0.25, 0.75], [0.25, 0.75]])
