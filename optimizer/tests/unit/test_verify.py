"""Every way in which integer rules can break a constraint is found and named."""

import dataclasses
import re

import pytest
from spillway_optimizer.problem.constraints import Constraints
from spillway_optimizer.problem.objective import evaluate_shares
from spillway_optimizer.problem.rules import RuleKey, to_shares
from spillway_optimizer.rulesets.verify import exceeded, verify

WEST, EAST = RuleKey("west", "web", "db GET /x"), RuleKey("east", "web", "db GET /x")
LOCAL = {WEST: {"west": 10_000}, EAST: {"east": 10_000}}


def _problem(chain, demand=400.0, absent=frozenset(), **constraints):
    return dataclasses.replace(chain({"west": demand}, absent=absent), constraints=Constraints(**constraints))


def test_sound_rules_pass(chain):
    """Sound rules have no findings."""
    assert verify(_problem(chain), LOCAL, None) == []


@pytest.mark.parametrize(
    ("weights", "constraints", "message"),
    [
        ({"west": 9999}, {}, "must be whole, at least 0, and sum to 10000"),
        ({"west": 10_001, "east": -1}, {}, "must be whole, at least 0"),
        ({"west": 5000, "moon": 5000}, {}, r"unknown clusters \['moon'\]; known: west, east"),
        (
            {"east": 10_000},
            {"denied": frozenset({("west", WEST.class_id, "east")})},
            "'east' is a denied destination",
        ),
        ({"west": 10_000}, {"pinned": {WEST: {"west": 0.5, "east": 0.5}}}, "differ from the pin"),
        (
            {"west": 999, "east": 9001},
            {"min_local_share": 0.1},
            "999 of 10000 stay local; minimum_local_share is 1000",
        ),
        (
            {"west": 7000, "east": 3000},
            {"max_shift": 0.2, "in_force": {WEST: {"west": 1.0}}},
            "3000 of 10000 move",
        ),
        (
            {"west": 9000, "east": 1000},
            {"drained": frozenset({"west"})},
            r"leads to \['west'\], which cannot serve it or is being drained",
        ),
    ],
)
def test_each_broken_constraint_of_a_rule_is_named(chain, weights, constraints, message):
    """The finding contains the rule, the value and what is allowed."""
    found = verify(_problem(chain, **constraints), {**LOCAL, WEST: weights}, None)
    assert any(finding.startswith("rule west/web -> db GET /x: ") for finding in found)
    assert re.search(message, "\n".join(found)), found


def test_missing_astray_and_closed_rules_are_named(chain):
    """Three cases are found.

    A route has no rule, a rule leads to a cluster that cannot serve, or denials close the route of
    a rule.
    """
    assert "no rule, though" in verify(_problem(chain), {EAST: LOCAL[EAST]}, None)[0]
    gone = _problem(chain, absent=frozenset({("db", "east")}))
    assert (
        "leads to ['east'], which cannot serve it or is being drained; allowed: ['west']"
        in verify(gone, {WEST: {"west": 5000, "east": 5000}, EAST: {"west": 10_000}}, None)[0]
    )
    closed = _problem(
        chain, denied=frozenset((WEST.source_cluster, WEST.class_id, c) for c in ("west", "east"))
    )
    assert any("denials close this route" in finding for finding in verify(closed, LOCAL, None))
    assert verify(closed, {EAST: LOCAL[EAST]}, None) == []


def test_limits_may_be_exceeded_as_far_as_the_least_bad_answer_does(chain):
    """Rules break a budget or ceiling only if they are worse than the policy's own answer.

    Rules that are as bad pass. What is exceeded is reported in both cases.
    """
    problem = _problem(chain, demand=480.0, egress_usd_per_hour=1e-6, utilisation_ceiling=0.5)
    away = {WEST: {"west": 5000, "east": 5000}, EAST: LOCAL[EAST]}
    found = verify(problem, away, None)
    assert any("above egress_budget_usd_per_hour 1e-06" in finding for finding in found)
    assert any(
        "web in west at 96.0% of its capacity is above utilisation_ceiling 50%" in finding
        for finding in found
    )
    as_bad = evaluate_shares(problem, to_shares(problem, away))
    assert verify(problem, away, as_bad) == []
    assert len(exceeded(problem, as_bad)) == len(found)
    local = verify(problem, LOCAL, as_bad)
    assert any("db in west at 96.0%" in finding for finding in local) and not any(
        "egress" in finding for finding in local
    )
