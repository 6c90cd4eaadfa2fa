"""Routes that the maximum shift keeps beyond a limit: each version moves them towards it."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from instances import random_problem
from mesh import NOW, Mesh
from spillway.v1.ruleset_pb2 import Origin
from spillway_contracts.guardrails import GuardrailFile
from spillway_optimizer import OptimizerError
from spillway_optimizer.discrete.limited import Limited
from spillway_optimizer.discrete.limits import rows
from spillway_optimizer.discrete.steps import steady
from spillway_optimizer.explain.holding import holding, limited
from spillway_optimizer.inputs.in_force import InForce
from spillway_optimizer.judging.memory import Memory, Thresholds
from spillway_optimizer.policies.projection import project
from spillway_optimizer.problem.constraints import Constraints
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.rules import (
    TOTAL,
    RuleKey,
    Rules,
    largest_remainder,
    max_difference,
    routes,
    to_shares,
)
from spillway_optimizer.rulesets.decide import Action, Decision, decide
from spillway_optimizer.rulesets.integer_weights import integer_rules
from spillway_optimizer.rulesets.verify import verify
from spillway_optimizer.solvers.convex import Stop
from spillway_optimizer.solvers.fast import Fast
from spillway_optimizer.solvers.hint import Hint, names_of
from spillway_optimizer.solving.routing import route_all
from spillway_optimizer.workers.solved import Solved
from two_clusters import renamed, two_clusters

X, Y = (RuleKey("west", "web", f"db GET /{k}") for k in "xy")
LOCAL = {RuleKey("east", "web", f"db GET /{k}"): {"east": TOTAL} for k in "xy"}
WHOLE = frozenset({X.class_id})
SHIFT = 0.2


def _versions(
    problem: Problem, rules: Rules, most: int, seconds: float = 5.0
) -> Iterator[tuple[Decision, Solved]]:
    """Yields the decision of each run. What is proposed is in force in the next run."""
    memory = Memory("spillway", rules, rules, 0.0)
    for version in range(1, most + 1):
        c = replace(problem.constraints, in_force=_shares(rules))
        problem = replace(problem, constraints=c)
        solved = route_all({"shop": problem}, lambda *_: Limited(Fast(Stop(1e-4, 60, seconds))))["shop"]
        assert isinstance(solved, Solved), solved
        best = project(solved.problem, solved.solution)
        candidate = integer_rules(solved.problem, best)
        published = InForce(
            rules, Origin.ORIGIN_OPTIMIZER, "spillway", dict.fromkeys(problem.clusters, 1), "id", {}
        )
        decision = decide(
            memory, "spillway", candidate, True, solved.problem, published, float(version), Thresholds()
        )
        assert verify(problem, decision.rules, best.evaluation) == []
        memory, rules = decision.memory, decision.rules
        yield decision, solved


def _shares(rules: Rules) -> dict[tuple[str, str, str], dict[str, float]]:
    return {key: {to: w / TOTAL for to, w in weights.items()} for key, weights in rules.items()}


def _rules(west: int) -> Rules:
    split = {"west": west, "east": TOTAL - west}
    return {**LOCAL, X: split, Y: {"west": TOTAL}}


@pytest.mark.parametrize("limit", [{"whole": WHOLE}, {"max_destinations": 1}])
def test_a_route_arrives_at_its_limit_in_steps_of_the_maximum_shift(limit):
    """Half of its calls take three versions. Then it stays, and no solve moves it again."""
    problem = two_clusters(Constraints(max_shift=SHIFT, **limit))
    decisions = [decision for decision, _ in _versions(problem, _rules(5000), 6)]
    assert [max(decision.rules[X].values()) for decision in decisions] == [7000, 9000, *[TOTAL] * 4]
    assert len({max(decision.rules[X], key=decision.rules[X].get) for decision in decisions}) == 1
    assert [decision.action for decision in decisions] == [Action.PROPOSE] * 3 + [Action.WAIT] * 3
    assert "rules in force break a limit" in decisions[0].reason


def test_a_note_counts_the_routes_that_step_until_they_have_arrived():
    found = list(_versions(two_clusters(Constraints(max_shift=SHIFT, whole=WHOLE)), _rules(7000), 3))
    said = "1 routes move by the maximum shift towards the destinations that limits allow"
    assert [said in solved.solution.notes for _, solved in found] == [True, False, False]


def test_explain_says_that_calls_leave_a_destination():
    """It is not held because it would be unknown."""
    ((_, solved),) = _versions(two_clusters(Constraints(max_shift=SHIFT, whole=WHOLE)), _rules(7000), 1)
    edges = [solved.problem.edges.index(e) for e in solved.problem.edges if e.target == X.class_id]
    row = solved.solution.shares[edges[0], 0]
    limits = limited(solved.problem, edges, 0, row)
    said = holding(solved.problem, edges, 0, row, limits, solved.solution.evaluation.utilisation)
    assert "east keeps 10.0% in this version: calls leave it by the maximum shift" in said
    assert not any("unknown" in sentence for sentence in said)


def test_a_route_does_not_step_to_where_it_would_overload():
    """West has most of the calls now, and no room for all of them."""
    problem = two_clusters(Constraints(max_shift=SHIFT, whole=WHOLE))
    problem = replace(problem, capacity_rps={**problem.capacity_rps, ("db", "west"): 300.0})
    *_, (last, _) = _versions(problem, {**_rules(6000), Y: {"east": TOTAL}}, 5)
    assert last.rules[X] == {"east": TOTAL}


@pytest.mark.parametrize("west", [4500, 5500])
def test_the_destination_with_most_calls_stays_where_others_gain_little(west):
    """The clusters are alike, and the calls from west are few."""
    problem = two_clusters(Constraints(max_shift=SHIFT, whole=WHOLE), 1.0)
    problem = replace(problem, rtt_ms=dict.fromkeys(problem.rtt_ms, 0.01))
    *_, (last, _) = _versions(problem, _rules(west), 4)
    assert last.rules[X] == {"west" if west > 5000 else "east": TOTAL}


def test_calls_leave_a_drained_cluster_at_once_also_on_the_way_to_a_limit():
    limits = Constraints(max_shift=SHIFT, whole=WHOLE, drained=frozenset({"east"}))
    first, _ = next(_versions(two_clusters(limits), _rules(5000), 1))
    assert first.rules[X] == {"west": TOTAL}


@pytest.mark.parametrize(("rtt_ms", "stays"), [(0.01, True), (30.0, False)])
def test_the_last_choice_stays_until_another_one_gains_enough(rtt_ms, stays):
    """The solver chooses west. Where the clusters are near each other, east is as good."""
    problem = two_clusters(Constraints(max_destinations=1), 1.0)
    problem = replace(problem, rtt_ms=dict.fromkeys(problem.rtt_ms, rtt_ms))
    layout, found = problem.layout, Limited(Fast(Stop(1e-4, 60, 5.0))).route(problem)
    shares = found.shares.copy()
    shares[:, 0] = [0.0, 1.0]  # from west to east
    last = Hint(names_of(layout), shares)
    assert found.shares[0, 0].tolist() == pytest.approx([1.0, 0.0])
    assert steady(problem, found, None) is found
    assert (steady(problem, found, last) is not found) == stays
    # One that breaks a limit is no choice.
    assert steady(problem, found, Hint(names_of(layout), np.full_like(shares, 0.5))) is found


@pytest.mark.parametrize("to", ["west", "east"])
def test_a_solver_remembers_what_routes_step_towards(to):
    """Both clusters have half of the calls and are as good. The last choice decides."""
    problem = two_clusters(Constraints(max_shift=SHIFT, whole=WHOLE, in_force=_shares(_rules(5000))), 1.0)
    problem = replace(problem, rtt_ms=dict.fromkeys(problem.rtt_ms, 0.01))
    router = Limited(Fast(Stop(1e-4, 60, 5.0)))
    first = np.eye(2)[[[problem.clusters.index(to), 1]] * 2]
    router._aimed = Hint(names_of(problem.layout), first)
    assert router.route(problem).destinations[X].keys() == {to}
    assert np.allclose(router._aimed.shares, first)


def test_a_route_steps_also_where_a_held_share_stays_beyond_its_limit():
    """East is held, because it is unknown. All other calls come together in west."""
    limits = Constraints(max_shift=SHIFT, whole=WHOLE, held={X: {"east": 0.3}})
    problem, south = two_clusters(limits), {("web", "south"): 5000.0, ("db", "south"): 1000.0}
    problem = replace(
        problem,
        clusters=(*problem.clusters, "south"),
        capacity_rps={**problem.capacity_rps, **south},
        placement=problem.placement | south.keys(),
        rtt_ms=dict.fromkeys(itertools.permutations((*problem.clusters, "south"), 2), 30.0),
    )
    ours = {RuleKey("south", "web", key.class_id): {"south": TOTAL} for key in (X, Y)}
    split = {"west": 3600, "south": 3400, "east": 3000}
    found = [decision.rules[X] for decision, _ in _versions(problem, {**_rules(5000), **ours, X: split}, 4)]
    assert found[0] == {"west": 5600, "south": 1400, "east": 3000}
    assert found[1:] == [{"west": 7000, "east": 3000}] * 3


def test_a_minimum_local_share_decides_where_a_route_steps():
    """Most calls go east, and east is cheaper."""
    limits = Constraints(max_shift=SHIFT, whole=WHOLE, min_local_share=0.3)
    *_, (last, _) = _versions(two_clusters(limits, 900.0), _rules(4000), 5)
    assert last.rules[X] == {"west": TOTAL}


def test_applications_under_one_budget_step_too():
    """They are solved together, and each application has the floors of its own steps."""
    limits = Constraints(max_shift=SHIFT, egress_usd_per_hour=1.0)
    problem = two_clusters(Constraints())
    route = RuleKey("west", "blog-web", f"blog-{X.class_id}")
    whole = replace(limits, whole=frozenset({route.class_id}), in_force={route: {"west": 0.5, "east": 0.5}})
    both = {name: replace(renamed(problem, name), constraints=whole) for name in ("shop", "blog")}
    solved = route_all(both, lambda *_: Limited(Fast(Stop(1e-4, 60, 5.0))))["blog"]
    assert isinstance(solved, Solved)
    rules = integer_rules(solved.problem, project(solved.problem, solved.solution))
    assert max(rules[route].values()) == 7000


@settings(max_examples=5, derandomize=True, database=None, deadline=None, phases=[Phase.generate])
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2]), st.sampled_from([0.2, 0.4]))
def test_every_route_arrives(seed, most, shift):
    """In random meshes no version moves more than the maximum shift, and the last keeps the limit.

    Floors of the minimum local share come before it.
    """
    try:
        problem = random_problem(seed, clusters=3)
    except OptimizerError:
        return
    if not problem.layout.demand.any():
        return
    c = replace(problem.constraints, held={}, max_shift=shift, max_destinations=most)
    problem = replace(problem, constraints=c)
    *_, (last, _) = _versions(problem, _spread(problem), int(1 / shift) + 4, 1.0)
    settled = replace(problem, constraints=replace(c, max_shift=1.0))
    for row in rows(settled, to_shares(settled, last.rules)):
        assert int(row.used.sum()) <= row.most, row


def _spread(problem: Problem) -> Rules:
    """Returns rules that spread the calls of every route over all its destinations."""
    layout = problem.layout
    return {
        RuleKey(source, layout.services[s], layout.classes[k]): {
            layout.clusters[j]: int(weight)
            for j, weight in zip(usable, largest_remainder(np.ones(len(usable))), strict=True)
        }
        for (s, k), edges in routes(problem).items()
        for i, source in enumerate(layout.clusters)
        if len(usable := np.flatnonzero(layout.usable[edges[0], i]))
    }


async def test_the_running_optimizer_takes_the_steps(settings, tmp_path):
    """Guardrails that change between two runs put a limit in force, version by version."""
    mesh = Mesh(settings, tmp_path)

    def busy(document):
        entries = document["demand"]["west"]
        for class_id in entries:
            entries[class_id]["rps"] *= 1.2

    await mesh.solve(NOW, busy)
    rules = [mesh.rules()]
    ((key, split),) = ((key, weights) for key, weights in rules[0].items() if len(weights) > 1)
    assert 2000 < min(split.values()) <= 4000
    file = tmp_path / "guardrails.yaml"
    file.write_text("maximum_shift: 2000\nmaximum_destinations: 1\n")
    mesh.solving.guardrails = GuardrailFile(file, mesh.topology)
    for version in range(1, 5):
        await mesh.solve(NOW + 5 * version, busy)
        rules.append(mesh.rules())
    least = min(split, key=split.__getitem__)
    assert [version[key].get(least, 0) for version in rules[1:]] == [split[least] - 2000, 0, 0, 0]
    assert all(max_difference(*pair) <= 2000 for pair in itertools.pairwise(rules))
