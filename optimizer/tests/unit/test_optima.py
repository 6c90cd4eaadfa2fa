"""No bound is above a tiny problem's optimum, and no answer is further above it than stated."""

import os
import time
from collections import Counter

import optima
import pytest
from brute_force import Choices, best
from spillway_optimizer.problem.objective import propagate
from spillway_optimizer.solvers.descent import penalised
from tiny import kinds, tiny_problem

FEW = range(100)
PROGRESS = 500


def test_the_solvers_claims_are_true():
    """Brute force finds no split below a bound, or below an answer by more than its stated gap.

    Answers keep floors and held shares, and use no denied destination.
    """
    assert [outcome for seed in FEW for outcome in optima.check(seed) if outcome.wrong] == []


def test_brute_force_costs_what_the_solvers_minimise():
    for seed in range(40):
        choices = Choices(tiny_problem(seed))
        point, cost = best(choices)
        flows, _ = propagate(choices.problem.layout, choices.shares(point[:, None])[..., 0])
        assert cost == pytest.approx(penalised(choices.problem, flows), rel=1e-12)


def test_brute_force_misses_no_optimum_that_the_solver_finds():
    """Its best split never costs over 0.1 % more than the answer of the solver."""
    outcomes = [outcome for seed in range(1000, 1040) for outcome in optima.check(seed)]
    assert min(outcome.missed for outcome in outcomes) > -1e-3


def test_tiny_problems_are_of_every_kind():
    """Each occurs at least five times among 400, with every number of choices."""
    problems = [tiny_problem(seed) for seed in range(400)]
    count = Counter(kind for problem in problems for kind in kinds(problem))
    count.update(f"{Choices(problem).count} choices" for problem in problems)
    expected = {
        "2 clusters", "3 clusters", "1 routed services", "2 routed services", "1 entry classes",
        "2 entry classes", "3 entry classes", "proportional", "not proportional", "two hops",
        "shared callee", "partial placement", "missing link", "waits for a part", "failures", "denied",
        "closed", "pinned", "local share", "max shift", "held", "egress budget", "ceiling", "drained", "slow",
        "values", "caution", "1 choices", "2 choices", "3 choices",
    }  # fmt: skip
    assert {kind for kind in expected if count[kind] < 5} == set()


@pytest.mark.optima
@pytest.mark.timeout(7200)
def test_the_solvers_claims_are_true_of_ten_thousand():
    """The same, for the seeds of SPILLWAY_SEEDS: FIRST-LAST."""
    first, last = map(int, os.environ.get("SPILLWAY_SEEDS", "0-9999").split("-"))
    began, outcomes = time.monotonic(), []
    for outcome in optima.check_all(range(first, last + 1)):
        outcomes.append(outcome)
        if outcome.wrong:
            print(f"seed {outcome.seed}, {outcome.solver}: {'; '.join(outcome.wrong)}", flush=True)
        if outcome.solver == "fast" and (outcome.seed - first + 1) % PROGRESS == 0:
            print(f"seed {outcome.seed}: {time.monotonic() - began:.0f} s", flush=True)
    for solver in ("fast", "exact"):
        if found := [outcome for outcome in outcomes if outcome.solver == solver]:
            print(optima.summary(found, began), flush=True)
    assert [outcome for outcome in outcomes if outcome.wrong] == []
