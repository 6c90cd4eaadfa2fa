import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spillway_optimizer.policies import REGISTRY, SPILLWAY
from spillway_optimizer.policies.dealer import Dealer, target
from spillway_optimizer.policies.failover import Failover, priority_load
from spillway_optimizer.policies.nearest import nearest_first, nearest_shares
from spillway_optimizer.policies.static import Static
from spillway_optimizer.policies.waterfall import Waterfall
from spillway_optimizer.policies.waterfall_central import WaterfallCentral
from spillway_optimizer.problem.constraints import Constraints
from spillway_optimizer.problem.objective import propagate
from spillway_optimizer.problem.problem import Curve, Edge, Problem

_BASELINES = sorted(REGISTRY.keys() - {SPILLWAY})
_THREE = ("a", "b", "c")


def _on_a_line(**at: float) -> dict[tuple[str, str], float]:
    return {(i, j): abs(x - y) for i, x in at.items() for j, y in at.items()}


def _with(problem: Problem, **constraints) -> Problem:
    return replace(problem, constraints=Constraints(**constraints))


@pytest.mark.parametrize("name", REGISTRY)
def test_no_policy_sends_where_calls_are_denied(chain, name):
    """West is overloaded five times and east is idle, but denied calls stay in west."""
    problem = chain({"west": 2500.0, "east": 10.0}, services=("gw", "web", "db"))
    denied = _with(problem, denied=frozenset({("west", "db GET /x", "east")}))
    flows = REGISTRY[name]().route(denied).flows
    assert flows[1, 0, 1] == 0.0
    assert flows[1, 0, 0] > 0.0


@pytest.mark.parametrize("name", _BASELINES)
def test_every_baseline_fails_closed_and_routes_the_rest(chain, name):
    """Calls from west to db are denied everywhere, so they are not made. East's calls are."""
    problem = chain({"west": 100.0, "east": 100.0})
    denied = frozenset(("west", "db GET /x", c) for c in ("west", "east"))
    solution = REGISTRY[name]().route(_with(problem, denied=denied))
    assert solution.flows[0, 0].sum() == 0.0
    assert solution.flows[0, 1].sum() == pytest.approx(100.0)


@pytest.mark.parametrize("name", REGISTRY)
def test_every_policy_keeps_to_a_pin(chain, name):
    """A route pinned to east goes only to east."""
    problem = chain({"west": 100.0, "east": 100.0})
    pinned = _with(problem, pinned={("west", "web", "db GET /x"): {"east": 1.0}})
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
        clusters=_THREE,
        rtt=_on_a_line(a=0.0, b=10.0, c=400.0),
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


def test_waterfall_remembers_and_a_new_one_does_not(chain):
    """b's overflow takes c's room while a is idle.

    When a overflows too, an existing Waterfall leaves b's requests there. A new one activates a
    first and gives a the room.
    """
    rtt = _on_a_line(a=0.0, b=25.0, c=10.0)
    limits = {("db", c): 100.0 for c in _THREE}

    def at(a: float) -> Problem:
        demand = {"a": a, "b": 200.0}
        return chain(demand, clusters=_THREE, rtt=rtt, capacity=5e3, thresholds=limits)

    kept = Waterfall()
    assert kept.route(at(0.0)).flows[0, 1].tolist() == pytest.approx([0.0, 100.0, 100.0])
    assert kept.route(at(200.0)).flows[0, 1, 2] == pytest.approx(100.0)
    assert Waterfall().route(at(200.0)).flows[0, 0, 2] == pytest.approx(100.0)


def test_waterfall_goes_on_when_clusters_come_and_go(chain):
    """Its memory is by cluster name.

    b keeps c's room although a has left and the indices moved.
    """
    rtt = _on_a_line(a=0.0, b=25.0, c=10.0, d=26.0)
    limits = {("db", c): 100.0 for c in "abcd"}
    options = {"rtt": rtt, "capacity": 5e3, "thresholds": limits}
    kept = Waterfall()
    kept.route(chain({"b": 200.0}, clusters=_THREE, **options))
    flows = kept.route(chain({"b": 200.0}, clusters=("d", "b", "c"), **options)).flows
    # d is nearer than c, so b's overflow moves there.
    assert flows[0, 1].tolist() == pytest.approx([100.0, 100.0, 0.0])
    flows = kept.route(chain({"b": 200.0}, clusters=("b", "c"), **options)).flows
    assert flows[0, 0].tolist() == pytest.approx([100.0, 100.0])


def test_waterfall_central_gives_room_to_the_nearest_whatever_the_order(chain):
    """c's room is 10 ms from a and 15 ms from b, so a gets it in either order of the clusters."""
    rtt = _on_a_line(a=0.0, b=25.0, c=10.0)
    for clusters in (_THREE, ("b", "c", "a")):
        problem = chain(
            {"a": 200.0, "b": 200.0},
            clusters=clusters,
            rtt=rtt,
            capacity=5e3,
            thresholds={("db", c): 100.0 for c in _THREE},
        )
        flows = WaterfallCentral().route(problem).flows[0]
        assert flows[clusters.index("a"), clusters.index("c")] == pytest.approx(100.0)
        assert flows[clusters.index("b"), clusters.index("c")] == pytest.approx(0.0)


def test_waterfall_central_is_greedy_all_the_same(chain):
    """m is 1 ms from p and 2 ms from q, and its room goes to p.

    q then has to cross 100 ms, although p could have used n at 3 ms.
    """
    names = ("p", "q", "m", "n")
    far = {(i, j): 0.0 if i == j else 100.0 for i in names for j in names}
    for i, j, ms in (("p", "m", 1.0), ("q", "m", 2.0), ("p", "n", 3.0)):
        far[i, j] = far[j, i] = ms
    limits = {("db", c): 100.0 for c in names}
    problem = chain({"p": 200.0, "q": 200.0}, clusters=names, rtt=far, capacity=5e3, thresholds=limits)
    assert WaterfallCentral().route(problem).evaluation.network_ms_rps == pytest.approx(100 * (1 + 100))


def test_dealer_fills_the_fastest_combination_up_to_its_thresholds(chain):
    """Delays are idle, and db is limited to 100 in west: 100 of 300 requests stay.

    The rest cross once, at either hop, because both cost the same. Both services behind the
    crossing are then served in east.
    """
    problem = chain(
        {"west": 300.0},
        services=("gw", "web", "db"),
        capacity=5e3,
        thresholds={("db", "west"): 100.0},
    )
    shares = target(problem, nearest_shares(problem))
    flows, _ = propagate(problem.layout, shares)
    assert flows[1, 0, 0] == pytest.approx(100.0)
    assert flows[0, 0, 1] + flows[1, 0, 1] == pytest.approx(200.0)
    assert flows[0, 1, 0] + flows[1, 1, 0] == pytest.approx(0.0)


def _fan(chain, denied_in: tuple[str, ...]) -> Problem:
    """gw calls web and db.

    web in west spills from 100 requests on. db is denied to callers of some clusters.
    """
    problem = chain(
        {"west": 300.0, "east": 10.0},
        services=("gw", "web", "db"),
        capacity=5e3,
        thresholds={("web", "west"): 100.0},
    )
    gw, web, db = (f"{s} GET /x" for s in ("gw", "web", "db"))
    first, second = problem.edges
    problem = replace(problem, edges=(first, replace(second, source=gw)))
    assert [(e.source, e.target) for e in problem.edges] == [(gw, web), (gw, db)]
    return _with(problem, denied=frozenset((i, db, j) for i in denied_in for j in ("west", "east")))


@pytest.mark.parametrize("denied_in", [(), ("west",), ("west", "east")])
def test_dealer_spills_although_another_call_is_refused(chain, denied_in):
    """db is closed nowhere, in west, or everywhere.

    In each case, 100 of west's calls to web stay, and the others leave.
    """
    problem = _fan(chain, denied_in)
    shares = target(problem, nearest_shares(problem))
    flows, _ = propagate(problem.layout, shares)
    assert flows[0, 0].tolist() == pytest.approx([100.0, 200.0])
    calls = flows[1].sum(axis=1)
    for i, (cluster, rps) in enumerate((("west", 300.0), ("east", 10.0))):
        assert calls[i] == pytest.approx(0.0 if cluster in denied_in else rps)


def test_dealer_leaves_a_slow_component_although_it_is_under_its_threshold(chain):
    """West's db is slow at 480 of 500 requests.

    Waterfall stays, because its threshold is not reached. Dealer observes the delay and leaves.
    """
    problem = chain({"west": 480.0, "east": 20.0}, capacity={**_places(5e3), ("db", "west"): 500.0})
    assert Waterfall().route(problem).flows[0, 0, 1] == pytest.approx(0.0)
    dealer = Dealer().route(problem)
    # Oscillates around 3 / (1 - u) + 7 = 10 + 25.
    assert dealer.flows[0, 0, 1] == pytest.approx(34.0, abs=20.0)
    assert dealer.evaluation.mean_latency_ms < Waterfall().route(problem).evaluation.mean_latency_ms


def _places(rps: float) -> dict[tuple[str, str], float]:
    return {(s, c): rps for s in ("web", "db") for c in ("west", "east")}


def test_dealer_rebalances_gradually_once_it_runs(chain):
    """A jump in load moves no route by more than one step towards its target."""
    dealer, limits = Dealer(step=0.2), {("db", "west"): 100.0}
    before = dealer.route(chain({"west": 50.0}, capacity=5e3, thresholds=limits)).shares
    after = dealer.route(chain({"west": 400.0}, capacity=5e3, thresholds=limits)).shares
    assert before[0, 0].tolist() == pytest.approx([1.0, 0.0], abs=1e-3)
    assert after[0, 0].tolist() == pytest.approx([0.85, 0.15], abs=1e-3)


def test_dealer_clusters_do_not_coordinate(chain):
    """a and b count only their own requests against c's threshold of 100 and exceed it together."""
    limits = {("db", "a"): 100.0, ("db", "b"): 100.0, ("db", "c"): 100.0}
    problem = chain(
        {"a": 200.0, "b": 200.0},
        clusters=_THREE,
        rtt={
            (i, j): 0.0 if i == j else (200.0 if "c" not in (i, j) else 20.0) for i in _THREE for j in _THREE
        },
        capacity=5e3,
        thresholds=limits,
    )
    assert Dealer().route(problem).flows[0, :, 2].sum() == pytest.approx(200.0, rel=1e-2)
    assert Waterfall().route(problem).flows[0, :, 2].sum() == pytest.approx(100.0)


def test_waterfall_spills_at_the_declared_threshold_hop_by_hop(chain):
    """Only calls above db's threshold leave west, at db's hop. Nothing else moves."""
    problem = chain(
        {"west": 450.0, "east": 100.0},
        services=("gw", "web", "db"),
        capacity=600.0,
        thresholds={("db", "west"): 400.0, ("db", "east"): 400.0},
    )
    shares = REGISTRY["waterfall"]().route(problem).shares
    assert shares[0].tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert shares[1, 0].tolist() == pytest.approx([400 / 450, 50 / 450])


def test_waterfall_counts_every_class_as_the_heaviest():
    """Capacity 400 and a class of weight 4 leave room for 100 requests.

    No threshold is declared.
    """
    classes = {f"{s} GET /{k}": s for s in ("web", "db") for k in ("light", "heavy")}
    names = ("west", "east")
    problem = Problem(
        clusters=names,
        classes=classes,
        edges=tuple(Edge(f"web GET /{k}", f"db GET /{k}", 1.0, 1.0, 1.0) for k in ("light", "heavy")),
        demand_rps={("west", "web GET /light"): 150.0, ("west", "web GET /heavy"): 50.0},
        curves={
            k: Curve(1.0, 1.0, 4.0 if k.endswith("heavy") and s == "db" else 1.0) for k, s in classes.items()
        },
        capacity_rps={(s, c): 1000.0 if s == "web" else 400.0 for s in ("web", "db") for c in names},
        placement=frozenset((s, c) for s in ("web", "db") for c in names),
        rtt_ms={(i, j): 0.0 if i == j else 20.0 for i in names for j in names},
        egress_usd_per_gb={},
        usd_per_ms=1e-7,
    )
    shares = REGISTRY["waterfall"]().route(problem).shares
    # 100 of 200, the same for both classes.
    assert shares[:, 0].tolist() == [[0.5, 0.5], [0.5, 0.5]]


def test_beyond_all_capacity_waterfall_keeps_the_rest_local(chain):
    """400 of 1 000 requests fit in each cluster, so 600 stay."""
    problem = chain(
        {"west": 1000.0}, capacity=5000.0, thresholds={("db", c): 400.0 for c in ("west", "east")}
    )
    assert REGISTRY["waterfall"]().route(problem).shares[0, 0].tolist() == pytest.approx([0.6, 0.4])


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
    places = set(itertools.product("abc", _THREE))
    # Everything can be completed in c, unless denials and gaps prevent it.
    absent = some((s, c) for s, c in places if c != "c" and s != "a")
    return Problem(
        clusters=_THREE,
        classes=services,
        edges=tuple(Edge(a, b, number(0.1, 2.0), 100.0, 100.0) for a, b in edges),
        demand_rps={(c, "a GET /"): number(0.0, 300.0) for c in _THREE},
        curves={k: Curve(number(0.1, 4.0), 1.0, number(0.5, 3.0)) for k in services},
        capacity_rps={place: number(50.0, 900.0) for place in places},
        placement=frozenset(places - absent),
        rtt_ms={(i, j): 0.0 if i == j else number(0.0, 90.0) for i in _THREE for j in _THREE},
        egress_usd_per_gb={},
        usd_per_ms=1e-7,
        constraints=Constraints(denied=some(itertools.product(_THREE, services, _THREE))),
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
