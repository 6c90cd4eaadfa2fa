"""Projection of a policy's shares to rules.

Rules have one split per route and satisfy pins, floors and budget, except for rounding.
"""

import pytest
from spillway_optimizer.policies import REGISTRY
from spillway_optimizer.policies.projection import project
from spillway_optimizer.problem.constraints import Constraints
from spillway_optimizer.problem.objective import evaluate_shares
from spillway_optimizer.problem.problem import Curve, Edge, Problem
from spillway_optimizer.problem.rules import TOTAL, RuleKey, to_shares
from spillway_optimizer.rulesets.integer_weights import integer_rules
from spillway_optimizer.rulesets.verify import verify

LIGHT, HEAVY, DB = "web GET /light", "web GET /heavy", "db GET /x"
WEST = RuleKey("west", "web", DB)


def _two_callers(**constraints):
    """Returns a problem with two caller classes on one route. west's database is nearly full.

    The sizes of their responses differ by a factor of a hundred.
    """
    clusters = ("west", "east")
    return Problem(
        clusters=clusters,
        classes={LIGHT: "web", HEAVY: "web", DB: "db"},
        edges=(Edge(LIGHT, DB, 1, 100, 1e3), Edge(HEAVY, DB, 1, 100, 1e5)),
        demand_rps={("west", LIGHT): 300.0, ("west", HEAVY): 300.0},
        curves={LIGHT: Curve(1, 1), HEAVY: Curve(1, 1), DB: Curve(5, 5)},
        capacity_rps={(s, c): rps for s, rps in (("web", 2000.0), ("db", 620.0)) for c in clusters},
        placement=frozenset((s, c) for s in ("web", "db") for c in clusters),
        rtt_ms={("west", "east"): 10.0, ("east", "west"): 10.0},
        egress_usd_per_gb={("west", "east"): 0.02, ("east", "west"): 0.02},
        usd_per_ms=1e-6,
        constraints=Constraints(**constraints),
    )


def _solved(problem, policy="spillway"):
    """Returns the best that rules can be, and the integer rules."""
    best = project(problem, REGISTRY[policy]().route(problem))
    return best, integer_rules(problem, best)


@pytest.mark.parametrize("budget", [0.02, 0.01, 0.006])
def test_routes_that_merge_keep_to_the_budget(budget):
    """Only the light calls may spill, but one rule for both classes also moves the heavy ones.

    That would exceed the budget. The rules spill less instead, and pass verification. They still
    use most of the budget.
    """
    problem = _two_callers(egress_usd_per_hour=budget)
    best, rules = _solved(problem)
    cost = evaluate_shares(problem, to_shares(problem, rules)).egress_usd_per_hour
    assert cost <= budget * 1.001 + 1e-12 and cost >= 0.8 * budget
    assert verify(problem, rules, best.evaluation) == []


def test_a_budget_moves_nothing_below_its_floors():
    """Local share and maximum shift are still satisfied if the budget cannot be."""
    before = {WEST: {"west": 0.5, "east": 0.5}}
    problem = _two_callers(egress_usd_per_hour=0.001, max_shift=0.1, in_force=before)
    best, rules = _solved(problem)
    assert verify(problem, rules, best.evaluation) == []
    assert rules[WEST] == {"west": 5500, "east": 4500}


@pytest.mark.parametrize("policy", sorted(REGISTRY))
@pytest.mark.parametrize(
    "constraints",
    [
        {"pinned": {WEST: {"west": 0.4, "east": 0.6}}},
        {"min_local_share": 0.7},
        {"max_shift": 0.05, "in_force": {WEST: {"west": 0.2, "east": 0.8}}},
        {"max_shift": 0.05, "in_force": {WEST: {"west": 0.2, "east": 0.8}}, "min_local_share": 0.9},
    ],
)
def test_no_policy_is_refused_for_what_guardrails_make_of_it(policy, constraints):
    """A baseline knows neither budget nor ceiling.

    Its rules may cost what its own shares cost within pins and floors. So an emergency switch to it
    succeeds with any guardrails.
    """
    problem = _two_callers(egress_usd_per_hour=0.001, utilisation_ceiling=0.5, **constraints)
    best, rules = _solved(problem, policy)
    assert verify(problem, rules, best.evaluation) == []


@pytest.mark.parametrize("rps", [3000.0, 10_000.7, 50_003.0])
def test_a_ceiling_is_kept_as_well_as_integers_can(rps):
    """One part of a large route is a percent of a small cluster.

    Rules are not refused for rounding, but for exceeding the ceiling by more than rounding.
    """
    problem = _spilling(rps)
    best, rules = _solved(problem)
    assert verify(problem, rules, best.evaluation) == []
    key = RuleKey("west", "web", DB)
    more = 2 + round(0.02 * 100.0 / rps * TOTAL)
    worse = {**rules, key: {"west": rules[key]["west"] - more, "east": rules[key]["east"] + more}}
    assert best.evaluation.utilisation[0, 1] > 0.78 and any(
        "above utilisation_ceiling" in f for f in verify(problem, worse, best.evaluation)
    )


def _spilling(rps):
    """Returns a large west at its ceiling next to an east that is a hundredth of its size."""
    clusters = ("west", "east")
    return Problem(
        clusters=clusters,
        classes={LIGHT: "web", DB: "db"},
        edges=(Edge(LIGHT, DB, 1, 100, 1e3),),
        demand_rps={("west", LIGHT): rps},
        curves={LIGHT: Curve(1, 1), DB: Curve(5, 5)},
        capacity_rps={
            **{("web", c): 2e5 for c in clusters},
            ("db", "west"): rps * 1.25 - 100.0 + 2.0,
            ("db", "east"): 100.0,
        },
        placement=frozenset((s, c) for s in ("web", "db") for c in clusters),
        rtt_ms={("west", "east"): 1.0, ("east", "west"): 1.0},
        egress_usd_per_gb={},
        usd_per_ms=1e-6,
        constraints=Constraints(utilisation_ceiling=0.8),
    )
