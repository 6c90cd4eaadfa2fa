"""Every policy answers any problem within its constraints, and simple ones follow their rules."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from on_a_line import THREE, constrained, on_a_line
from spillway_optimizer.policies import MINIMISING, REGISTRY
from spillway_optimizer.policies.failover import Failover, priority_load
from spillway_optimizer.policies.nearest import nearest_first
from spillway_optimizer.policies.static import Static
from spillway_optimizer.problem.constraints import Constraints
from spillway_optimizer.problem.problem import Curve, Edge, Problem

_BASELINES = sorted(REGISTRY.keys() - MINIMISING)


@pytest.mark.parametrize("name", REGISTRY)
def test_no_policy_sends_where_calls_are_denied(chain, name):
    """West is overloaded five times and east is idle, but denied calls stay in west."""
    problem = chain({"west": 2500.0, "east": 10.0}, services=("gw", "web", "db"))
    denied = constrained(problem, denied=frozenset({("west", "db GET /x", "east")}))
    flows = REGISTRY[name]().route(denied).flows
    assert flows[1, 0, 1] == 0.0
    assert flows[1, 0, 0] > 0.0


@pytest.mark.parametrize("name", _BASELINES)
def test_every_baseline_fails_closed_and_routes_the_rest(chain, name):
    """Calls from west to db are denied everywhere, so they are not made. East's calls are."""
    problem = chain({"west": 100.0, "east": 100.0})
    denied = frozenset(("west", "db GET /x", c) for c in ("west", "east"))
    solution = REGISTRY[name]().route(constrained(problem, denied=denied))
    assert solution.flows[0, 0].sum() == 0.0
    assert solution.flows[0, 1].sum() == pytest.approx(100.0)


@pytest.mark.parametrize("name", REGISTRY)
def test_every_policy_keeps_to_a_pin(chain, name):
    """A route pinned to east goes only to east."""
    problem = chain({"west": 100.0, "east": 100.0})
    pinned = constrained(problem, pinned={("west", "web", "db GET /x"): {"east": 1.0}})
    assert REGISTRY[name]().route(pinned).shares[0, 0].tolist() == pytest.approx([0.0, 1.0], abs=1e-6)


@pytest.mark.parametrize("name", REGISTRY)
def test_every_policy_gives_idle_clusters_a_rule(chain, name):
    """Rows of clusters without load also sum to 1, so a first request finds a rule."""
    shares = REGISTRY[name]().route(chain({"west": 100.0}, clusters=("west", "east", "north"))).shares
    np.testing.assert_allclose(shares.sum(axis=2), 1.0)


def test_round_robin_gives_every_cluster_that_can_serve_the_same(chain):
    """db is absent in one of three clusters.

    The other two get half each from everywhere, whatever the load and distance.
    """
    problem = chain(
        {"a": 900.0},
        clusters=THREE,
        rtt=on_a_line(a=0.0, b=10.0, c=400.0),
        absent=frozenset({("db", "b")}),
    )
    assert REGISTRY["round-robin"]().route(problem).shares[0].tolist() == [[0.5, 0.0, 0.5]] * 3


def test_static_weights_are_what_the_operator_said_else_shares_of_capacity(chain):
    """West has weights of 3 : 1. East has none, so it follows the capacities of 100 and 400."""
    capacity = {("web", "west"): 1e3, ("web", "east"): 1e3, ("db", "west"): 100.0, ("db", "east"): 400.0}
    problem = chain({"west": 10.0, "east": 10.0}, capacity=capacity)
    shares = Static({("west", "web", "db GET /x"): {"west": 3.0, "east": 1.0}}).route(problem).shares
    assert shares[0].tolist() == pytest.approx(np.array([[0.75, 0.25], [0.2, 0.8]]))


def test_static_weights_of_a_cluster_that_cannot_serve_go_to_the_others(chain):
    """All of west's weight is on a cluster without db. It goes to the cluster that has db."""
    problem = chain({"west": 10.0}, absent=frozenset({("db", "west")}))
    shares = Static({("west", "web", "db GET /x"): {"west": 1.0}}).route(problem).shares
    assert shares[0, 0].tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("healthy", "loads"),
    [
        ([1.0, 1.0], [1.0, 0.0]),
        ([0.72, 1.0], [1.0, 0.0]),
        ([0.71, 1.0], [0.994, 0.006]),
        ([0.5, 0.5], [0.7, 0.3]),
        ([0.25, 0.25], [0.5, 0.5]),
        ([0.0, 1.0], [0.0, 1.0]),
        ([0.0, 0.0], [1.0, 0.0]),
    ],
)
def test_failover_follows_envoys_priority_load(healthy, loads):
    """The values are from the table in Envoy's documentation on priority levels.

    They are not rounded to whole percent.
    """
    assert priority_load(healthy) == pytest.approx(loads)


def test_failover_uses_the_next_cluster_by_round_trip(chain):
    """A missing service is served in the nearest other cluster. A half-healthy one keeps 70 %."""
    clusters = ("a", "b", "c")
    at = {"a": 0.0, "b": 40.0, "c": 10.0}
    rtt = {(i, j): abs(at[i] - at[j]) for i in clusters for j in clusters}
    problem = chain({"a": 10.0}, clusters=clusters, rtt=rtt, absent=frozenset({("db", "a")}))
    assert Failover().route(problem).shares[0, 0].tolist() == [0.0, 0.0, 1.0]
    problem = chain({"a": 10.0}, clusters=clusters, rtt=rtt)
    half = Failover(healthy={("db", "a"): 0.5})
    assert half.route(problem).shares[0, 0].tolist() == pytest.approx([0.7, 0.0, 0.3])
    assert nearest_first(problem.layout, np.ones(3, dtype=bool), 0) == [0, 2, 1]


@st.composite
def _applications(draw) -> Problem:
    """Draws applications in which b calls a back, and c is shared by both.

    Placement, denials and round trips are random.
    """
    services = {"a GET /": "a", "b GET /": "b", "a GET /back": "a", "c GET /": "c"}
    edges = [
        ("a GET /", "b GET /"),
        ("b GET /", "a GET /back"),
        ("a GET /back", "c GET /"),
        ("b GET /", "c GET /"),
    ]
    some = lambda items: draw(st.frozensets(st.sampled_from(sorted(items)), max_size=4))  # noqa: E731
    number = lambda low, high: draw(st.floats(low, high))  # noqa: E731
    places = set(itertools.product("abc", THREE))
    # Everything can be completed in c, unless denials and gaps prevent it.
    absent = some((s, c) for s, c in places if c != "c" and s != "a")
    return Problem(
        clusters=THREE,
        classes=services,
        edges=tuple(Edge(a, b, number(0.1, 2.0), 100.0, 100.0) for a, b in edges),
        demand_rps={(c, "a GET /"): number(0.0, 300.0) for c in THREE},
        curves={k: Curve(number(0.1, 4.0), 1.0, number(0.5, 3.0)) for k in services},
        capacity_rps={place: number(50.0, 900.0) for place in places},
        placement=frozenset(places - absent),
        rtt_ms={(i, j): 0.0 if i == j else number(0.0, 90.0) for i in THREE for j in THREE},
        egress_usd_per_gb={},
        usd_per_ms=1e-7,
        constraints=Constraints(denied=some(itertools.product(THREE, services, THREE))),
    )


@settings(max_examples=60)
@given(_applications(), st.floats(0.0, 3.0))
def test_baselines_answer_any_application_wholly_and_lawfully(problem, growth):
    """Rows with an allowed destination sum to 1 over these, and other rows sum to 0.

    This holds for a first answer, and for a second one after demand has changed.
    """
    grown = replace(problem, demand_rps={k: rps * growth for k, rps in problem.demand_rps.items()})
    for name in _BASELINES:
        policy = REGISTRY[name]()
        for seen in (problem, grown):
            shares, usable = policy.route(seen).shares, seen.layout.usable
            np.testing.assert_allclose(shares.sum(axis=2), usable.any(axis=2), atol=1e-9, err_msg=name)
            assert not shares[~usable].any(), name
