"""Limits on destinations: least shares, at most so many, one for a whole class."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from limited_instances import LIMITS, Known, limited_instance, many, seeds
from spillway_optimizer import ProblemError
from spillway_optimizer.discrete.limited import Limited
from spillway_optimizer.discrete.limits import rows
from spillway_optimizer.judging.memory import Memory, Thresholds
from spillway_optimizer.policies.projection import Projected, project
from spillway_optimizer.problem.constraints import Constraints
from spillway_optimizer.problem.destinations import in_steps
from spillway_optimizer.problem.problem import Curve, Edge, Problem
from spillway_optimizer.problem.problem_json import from_document, to_document
from spillway_optimizer.problem.rules import TOTAL, RuleKey, Rules, merge, to_shares
from spillway_optimizer.problem.solution import Policy, of_solver
from spillway_optimizer.rulesets.integer_weights import integer_rules
from spillway_optimizer.rulesets.verify import verify
from spillway_optimizer.solvers.convex import Stop
from spillway_optimizer.solvers.descent import penalised
from spillway_optimizer.solvers.fast import Fast
from spillway_optimizer.solving.application_result import Circumstances, rolled_back
from spillway_optimizer.solving.routing import route_all
from spillway_optimizer.workers.solved import Solved
from test_hint import two_basins
from two_clusters import renamed, two_clusters


def _rules(problem: Problem, policy: Policy) -> tuple[Problem, Projected, Rules]:
    solution = policy.route(problem)
    problem = in_steps(problem, solution.destinations)
    best = project(problem, solution)
    return problem, best, integer_rules(problem, best)


@many
@given(seeds, LIMITS, st.sampled_from([0.0, 0.5]), st.booleans())
def test_rules_keep_the_limits(seed, limits, whole, convex):
    """Every weight is 0 or at least the least share, and no route has too many destinations.

    Floors come first. Merging, the egress budget and rounding do not undo it, and the rules satisfy
    all other constraints.
    """
    problem = limited_instance(seed, limits, whole, convex=convex)
    if problem is None:
        return
    stop = Stop(1e-3, 60, 0.5)
    stepping, best, rules = _rules(problem, Limited(Fast(stop)))
    assert verify(problem, rules, best.evaluation) == []
    problem = stepping
    for row in rows(problem, to_shares(problem, rules)):
        used = (row.share > 0) & ~row.held
        assert int((row.share > 0).sum()) <= row.most, row
        least = row.least[used] - 1.5 / TOTAL if row.kept.any() else problem.constraints.min_share
        assert (row.share[used] >= least - 1e-9).all(), row


@many
@given(seeds, LIMITS, st.booleans())
def test_what_limits_cost_is_stated(seed, limits, convex):
    """The bound stays below the routing, and the stated loss is the difference that limits make."""
    problem = limited_instance(seed, limits, convex=convex)
    if problem is None:
        return
    stop = Stop(1e-3, 60, 0.5)
    if problem.constraints.max_shift < 1:
        # Steps towards a limit are part of the problem.
        problem = in_steps(problem, Limited(Fast(stop)).route(problem).destinations)
    free = Fast(stop).route(problem)
    kept = Limited(Known(free, stop)).route(problem)
    assert kept.bound_usd_per_hour == free.bound_usd_per_hour
    if not kept.limits_loss:
        return  # nothing had to change
    base = of_solver(problem, merge(problem, free.shares, free.flows), None)
    before, after = penalised(problem, base.flows), penalised(problem, kept.flows)
    stated = kept.limits_loss * base.evaluation.usd_per_hour / 3600.0 / problem.usd_per_ms
    assert abs(after - before - stated) <= 1e-9 * max(abs(after), abs(before))


def test_a_sound_route_that_two_edges_share_stays_sound_when_it_is_merged_again():
    """Class `b` has to stay whole, which doubles its calls in west.

    `a` sends 2 % of its queries east and `b` none, so the common route sends 1.19 % before, and
    would send 0.86 % after.
    """
    edges = [Edge(f"gw GET /{k}", f"web GET /{k}", 1.0, 1e3, 1e3) for k in "ab"]
    edges += [Edge(f"web GET /{k}", "db GET /q", 1.0, 1e3, 1e3) for k in "ab"]
    classes = {f"{s} GET /{k}": s for s in ("gw", "web") for k in "ab"} | {"db GET /q": "db"}
    services, clusters = ("gw", "web", "db"), ("west", "east")
    problem = Problem(
        clusters=clusters,
        classes=classes,
        edges=tuple(edges),
        demand_rps={("west", "gw GET /a"): 60.0, ("west", "gw GET /b"): 80.0},
        curves=dict.fromkeys(classes, Curve(1.0, 1.0)),
        capacity_rps=dict.fromkeys(itertools.product(services, clusters), 1000.0),
        placement=frozenset(itertools.product(services, clusters)),
        rtt_ms={("west", "east"): 30.0, ("east", "west"): 30.0},
        egress_usd_per_gb={},
        usd_per_ms=1e-7,
        constraints=Constraints(min_share=0.01, whole=frozenset({"web GET /b"})),
    )
    shares = np.tile(np.eye(2), (4, 1, 1))
    for edge, east in {edges[1]: 0.49, edges[2]: 0.02}.items():
        shares[problem.edges.index(edge), 0] = 1.0 - east, east
    free = of_solver(problem, shares, 0.0)
    solution = Limited(Known(free, Stop(relative_gap=1e9))).route(problem)
    again = merge(problem, solution.shares, solution.flows)
    assert again == pytest.approx(solution.shares)
    assert again[problem.edges.index(edges[2]), 0, 1] == pytest.approx(1.2 / 100.8)
    assert not any(row.breaks for row in rows(problem, again))


def test_the_proof_in_the_notes_is_of_the_routing_without_limits():
    """The note names it, and `unproven` is that routing's gap where the limits cost more."""
    problem = two_basins()
    problem = replace(problem, constraints=Constraints(max_destinations=1))
    free = Fast().route(replace(problem, constraints=Constraints()))
    solution = Limited(Fast()).route(problem)
    (note,) = (note for note in solution.notes if "not convex" in note)
    assert note.startswith("without limits on destinations: not convex")
    assert solution.free_gap == pytest.approx(free.relative_gap, rel=1e-3)
    assert solution.unproven == min(solution.free_gap, solution.relative_gap)


def test_a_class_that_stays_whole_goes_to_one_destination():
    """The other class of the service is still split."""
    problem = two_clusters(Constraints(whole=frozenset({"db GET /x"})), 500.0)
    solution = Limited(Fast()).route(problem)
    assert sorted(solution.shares[0, 0].tolist()) == pytest.approx([0.0, 1.0])
    assert 0 < solution.shares[1, 0, 1] < 1


def test_floors_that_keep_too_many_destinations_are_noted():
    """A held share comes first, and a note says why the limit is not kept."""
    route = ("west", "web", "db GET /x")
    limits = Constraints(max_destinations=1, held={route: {"east": 0.5}})
    solution = Limited(Fast()).route(two_clusters(limits))
    assert solution.shares[0, 0].tolist() == pytest.approx([0.5, 0.5])
    assert any("floors keep more destinations than allowed on 1 routes" in note for note in solution.notes)


def test_a_rollback_may_pass_through_a_small_share():
    """Both ends keep the least share of 1 %, and a step of 20 % on the way leaves 0.9 %.

    To rules that break the limit themselves, there is no way back.
    """
    problem, names = two_clusters(Constraints(min_share=0.01, max_shift=0.2)), ("west", "east")
    clusters = (*names, "north")
    problem = replace(
        problem,
        clusters=clusters,
        placement=frozenset(itertools.product(("web", "db"), clusters)),
        capacity_rps={(s, c): 5000.0 for s in ("web", "db") for c in clusters},
        rtt_ms={(a, b): 30.0 for a in clusters for b in clusters if a != b},
    )
    local = {RuleKey(c, "web", f"db GET /{k}"): {c: TOTAL} for c in clusters for k in ("x", "y")}
    key = RuleKey("west", "web", "db GET /x")
    decided = {**local, key: {"west": 9850, "east": 150}}
    solved = SimpleNamespace(problem=problem, least_bad=None, solution=SimpleNamespace(notes=()))
    model = SimpleNamespace(name="shop", notes=(), kept=frozenset())
    around = Circumstances("spillway", 1.0, False, Memory(), None, {}, Thresholds(200, 0.001, 15.0))
    back = rolled_back(decided, solved, model, around, {key: {"west": 5000, "north": 5000}}, "worse")
    assert not isinstance(back, str), back
    assert 0 < back.decision.rules[key]["east"] < 100
    never = rolled_back(decided, solved, model, around, {key: {"west": 9950, "north": 50}}, "worse")
    assert "50 of 10000 to 'north'; minimum_share is 100" in never


def test_limits_survive_the_document():
    problem = two_clusters(
        Constraints(
            min_share=0.01,
            max_destinations=2,
            whole=frozenset({"db GET /x"}),
            destinations={("west", "web", "db GET /x"): {"west": 0.01}},
        )
    )
    assert from_document(to_document(problem)) == problem


@pytest.mark.parametrize(
    ("limits", "wrong"),
    [
        ({"min_share": 1.5}, "constraints.min_share: 1.5 must be from 0 to 1"),
        ({"max_destinations": 0}, "constraints.max_destinations: 0 must be at least 1"),
        ({"destinations": {("west", "web", "db GET /x"): {"west": 1.2}}}, "must be shares of at least 0"),
    ],
)
def test_wrong_limits_are_named(limits, wrong):
    with pytest.raises(ProblemError, match=wrong):
        two_clusters(Constraints(**limits))


@settings(max_examples=15, derandomize=True, database=None, deadline=None, phases=[Phase.generate])
@given(seeds, LIMITS)
def test_applications_under_one_budget_keep_their_limits(seed, limits):
    """They are solved together. The part of each has the destinations and shares of the whole."""
    problem = limited_instance(seed, limits, constrained=False)
    if problem is None:
        return
    limited = replace(problem.constraints, egress_usd_per_hour=1e-3)
    both = {name: replace(renamed(problem, name), constraints=limited) for name in ("shop", "blog")}
    solved = route_all(both, lambda name, share: Limited(Fast(Stop(1e-3, 60, 0.5))))
    for found in solved.values():
        assert isinstance(found, Solved)
        solution = found.solution
        changed = any("limits on destinations" in note for note in solution.notes)
        assert solution.destinations or not changed
        callers = found.problem.classes
        for (source, service, class_id), to in solution.destinations.items():
            ends = [(callers[edge.source], edge.target) for edge in found.problem.edges]
            e = ends.index((service, class_id))
            used = solution.shares[e, found.problem.clusters.index(source)] > 0
            assert set(np.array(found.problem.clusters)[used]) <= to.keys()
        rules = integer_rules(found.problem, project(found.problem, found.solution))
        for row in rows(found.problem, to_shares(found.problem, rules)):
            assert int(row.used.sum()) <= row.most
            assert (row.share[row.used] >= limited.min_share - 1e-9).all()
