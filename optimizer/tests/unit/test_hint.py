"""A known routing as a start of both solvers: it wins where it is better, else it is dropped."""

import dataclasses
import logging

import numpy as np
import pytest
from spillway_optimizer.problem.constraints import Constraints
from spillway_optimizer.problem.problem import Curve, Edge, Problem
from spillway_optimizer.process.states import States
from spillway_optimizer.programmes.exact import Exact
from spillway_optimizer.service.following import Following
from spillway_optimizer.solvers.convex import Stop
from spillway_optimizer.solvers.descent import penalised
from spillway_optimizer.solvers.fast import Fast
from spillway_optimizer.solvers.hint import Hint, names_of

CLUSTERS, KINDS = ("west", "east"), ("a", "b")
LONG = Stop(seconds=60.0)


def two_basins(a_rps=(40.0, 90.0), queueing=(50.0, 1.0)) -> Problem:
    """Two kinds of requests, of which `a` queues fifty times as long, share a database.

    It pays to keep the kinds apart. The descent ends where `b` is in west.
    """
    edges = tuple(Edge(f"web GET /{k}", f"db GET /{k}", 1.0, 100.0, 100.0) for k in KINDS)
    demand = {"a": a_rps, "b": (10.0, 60.0)}
    return Problem(
        clusters=CLUSTERS,
        classes={f"{s} GET /{k}": s for s in ("web", "db") for k in KINDS},
        edges=edges,
        demand_rps={
            (c, f"web GET /{k}"): rps for k in KINDS for c, rps in zip(CLUSTERS, demand[k], strict=True)
        },
        curves={f"web GET /{k}": Curve(0.0, 1.0) for k in KINDS}
        | {f"db GET /{k}": Curve(ms, 0.0) for k, ms in zip(KINDS, queueing, strict=True)},
        capacity_rps={
            ("web", "west"): 1e4, ("web", "east"): 1e4, ("db", "west"): 230.0, ("db", "east"): 260.0
        },
        placement=frozenset((s, c) for s in ("web", "db") for c in CLUSTERS),
        rtt_ms={(i, j): 0.0 if i == j else 1.0 for i in CLUSTERS for j in CLUSTERS},
        egress_usd_per_gb={},
        usd_per_ms=1e-7,
    )  # fmt: skip


def apart(problem: Problem, first: str = "west") -> Hint:
    """Returns the routing of all requests `a` to the first cluster, and of all `b` to the other."""
    shares = np.zeros(problem.layout.usable.shape)
    for edge in problem.edges:
        to = CLUSTERS.index(first) if edge.source.endswith("/a") else 1 - CLUSTERS.index(first)
        shares[problem.edges.index(edge), :, to] = 1.0
    return Hint(names_of(problem.layout), shares)


def test_a_start_in_a_better_basin_wins_and_is_kept_while_the_demand_moves():
    """The solve is better than without the hint, and so is the next one at another demand."""
    problem, moved = two_basins(), two_basins(a_rps=(45.0, 85.0))
    fast = Fast(LONG, hint=apart(problem))
    for given in (problem, moved):
        alone, hinted = Fast(LONG).route(given), fast.route(given)
        assert penalised(given, hinted.flows) < penalised(given, alone.flows) * (1 - 2e-3)
        assert hinted.bound_usd_per_hour <= hinted.evaluation.usd_per_hour * (1 + 1e-9)
        assert fast.hint is not None


def test_a_start_in_a_worse_basin_is_dropped():
    """The answer is that of a solve without it."""
    problem = two_basins()
    fast = Fast(LONG, hint=apart(problem, "east"))
    found, alone = fast.route(problem), Fast(LONG).route(problem)
    assert fast.hint is None
    assert found.evaluation.usd_per_hour <= alone.evaluation.usd_per_hour * (1 + 1e-9)


def test_a_better_routing_wins_over_a_solver_that_is_wrong_about_a_convex_problem():
    """The solver stops at once, far from the optimum.

    The known optimum is the answer, and the bound is at most its cost. Without the limit the solver
    finds the optimum itself, and drops the hint.
    """
    problem = two_basins(queueing=(5.0, 5.0))
    best = Exact(Stop(1e-6, seconds=60.0)).route(problem)
    known = Hint(names_of(problem.layout), best.shares)
    short = Stop(relative_gap=0.9, rounds=1, seconds=0.0)
    wrong, right = Fast(short).route(problem), Fast(short, hint=known)
    if penalised(problem, wrong.flows) <= penalised(problem, best.flows) * (1 + 1e-4):
        pytest.fail("the solver that should stop early did not")
    found = right.route(problem)
    assert penalised(problem, found.flows) == pytest.approx(penalised(problem, best.flows))
    assert found.bound_usd_per_hour <= found.evaluation.usd_per_hour * (1 + 1e-9)
    fast = Fast(LONG, hint=known)
    fast.route(problem)
    assert fast.hint is None


def test_the_reference_solver_is_never_worse_than_its_hint():
    """Without any time for programmes of pieces, its routing costs at most what the hint costs."""
    problem = two_basins()
    hint = apart(problem)
    found = Exact(Stop(seconds=0.0), hint=hint).route(problem)
    assert penalised(problem, found.flows) <= penalised(problem, hint.flows(problem.layout)) * (1 + 1e-9)


def test_a_hint_of_another_call_graph_is_not_used():
    """The same shape with another class name has no flows by it."""
    problem = two_basins()
    other = dataclasses.replace(apart(problem), names=())
    assert other.flows(problem.layout) is None
    fast = Fast(LONG, hint=other)
    fast.route(problem)
    assert fast.hint is None


def test_shares_move_to_where_constraints_allow_them():
    """A quarter stays local, and a denied destination gets nothing.

    A row whose only destination of the hint is denied has no answer.
    """
    problem = two_basins()
    local = dataclasses.replace(problem, constraints=Constraints(min_local_share=0.25))
    flows = apart(problem).flows(local.layout)
    assert flows[1] / flows[1].sum(axis=1, keepdims=True) == pytest.approx(np.array([[0.25, 0.75], [0, 1]]))
    denied = frozenset({("west", "db GET /b", "east")})
    without = dataclasses.replace(problem, constraints=Constraints(denied=denied))
    assert apart(problem).flows(without.layout) is None
    both = dataclasses.replace(apart(problem), shares=np.full((2, 2, 2), 0.5))
    assert both.flows(without.layout)[1] == pytest.approx(np.array([[10.0, 0.0], [30.0, 30.0]]))


def test_a_better_routing_reaches_the_next_solve_of_its_application():
    """It is handed over once, and dropped with its application."""
    following = Following(None, "spillway", LONG, States(logging.getLogger("test")))
    hint = apart(two_basins())
    following.suggest("shop", hint)
    assert following.router("blog").hint is None
    assert following.router("shop").hint is hint
    following.router("shop").hint = None
    assert following.router("shop").hint is None
    following.suggest("gone", hint)
    following.forget_all_but(["shop"])
    assert following.router("gone").hint is None
