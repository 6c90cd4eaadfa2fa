"""A row of `solves` contains the costs of the rules in question and of the routing in force.

Both are evaluated at the same demand.
"""

import math

import pytest
from mesh import NOW, Mesh
from spillway_optimizer.inputs import telemetry
from spillway_optimizer.model import model
from spillway_optimizer.policies.nearest import nearest_shares
from spillway_optimizer.problem.objective import evaluate_shares

TERMS = ("mean_latency_ms", "egress_usd_per_hour", "objective_usd_per_hour")


class Shadow(Mesh):
    """A mesh whose publisher accepts proposals and publishes none."""

    async def publish(self, ruleset):
        self.sent.append(ruleset)


def _now(row):
    return {term: row[f"now_{term}"] for term in TERMS}


def _rules(row):
    return {term: row[term] for term in TERMS}


async def test_in_shadow_mode_proposals_are_held_against_local_first(settings, tmp_path):
    """Proposals are compared with local-first, however often they are made.

    West is near its capacity, so they would save time for some egress. Earlier proposals are not in
    force.
    """
    mesh = Shadow(settings, tmp_path)
    for n in range(4):
        rows = await mesh.solve(NOW + 16 * n)
        for row in rows.values():
            assert row["outcome"] == ("renewed" if n else "proposed")
            assert row["now_mean_latency_ms"] > row["mean_latency_ms"] + 1
            assert row["now_objective_usd_per_hour"] > row["objective_usd_per_hour"]
            assert 0 == row["now_egress_usd_per_hour"] < row["egress_usd_per_hour"]
    problem = model.build(telemetry.from_document(mesh.document), mesh.topology, NOW).problem
    local = evaluate_shares(problem, nearest_shares(problem)).usd_per_hour
    assert sum(row["now_objective_usd_per_hour"] for row in rows.values()) == pytest.approx(local)


async def test_rules_in_force_that_stay_gain_nothing(settings, tmp_path):
    """They are both sides of the comparison."""
    mesh = Mesh(settings, tmp_path)
    first = await mesh.solve(NOW)
    rows = await mesh.solve(NOW + 16)
    for name, row in rows.items():
        assert row["outcome"] == "renewed" and _now(row) == pytest.approx(_rules(row))
        assert _now(first[name])["objective_usd_per_hour"] > _now(row)["objective_usd_per_hour"]


async def test_what_is_refused_has_neither_side(settings, tmp_path):
    """Its costs are unknown."""
    mesh = Mesh(settings, tmp_path)
    rows = await mesh.solve(NOW, lambda d: d["curves"].clear())
    assert rows and all(
        math.isnan(value) for row in rows.values() for value in (_now(row) | _rules(row)).values()
    )
