import numpy as np
import pytest
from ortools.graph.python import min_cost_flow
from spillway_optimizer.policies import REGISTRY
from spillway_optimizer.policies.failover import Failover, priority_load
from spillway_optimizer.policies.nearest import nearest_first
from spillway_optimizer.policies.waterfall import activate
from spillway_optimizer.problem import Curve, Edge, Problem


def _nearest(rtt: np.ndarray, i: int) -> list[int]:
    return sorted(range(len(rtt)), key=lambda j: (j != i, rtt[i, j], j))


def _line(gaps: list[float]) -> np.ndarray:
    at = np.cumsum([0.0, *gaps])
    return np.abs(at[:, None] - at[None, :])


def _links(n: int, links: dict[tuple[int, int], float]) -> np.ndarray:
    """Shortest paths (Floyd and Warshall)."""
    rtt = np.where(np.eye(n, dtype=bool), 0.0, np.inf)
    for (i, j), ms in links.items():
        rtt[i, j] = rtt[j, i] = ms
    for k in range(n):
        rtt = np.minimum(rtt, rtt[:, k, None] + rtt[None, k])
    return rtt


def _total(routed: np.ndarray, rtt: np.ndarray) -> float:
    return float((routed * rtt).sum())


def _optimum(load: list[int], rtt: np.ndarray) -> float:
    """Minimum cost matching, capacity 1 each, RTT in thousandths."""
    n, flow = len(load), min_cost_flow.SimpleMinCostFlow()
    for i in range(n):
        for j in range(n):
            flow.add_arc_with_capacity_and_unit_cost(i, n + j, 10, round(rtt[i, j] * 1000))
        flow.add_arc_with_capacity_and_unit_cost(n + i, 2 * n, 1, 0)
        flow.set_node_supply(i, load[i])
    flow.set_node_supply(2 * n, -sum(load))
    assert flow.solve() == flow.OPTIMAL
    return flow.optimal_cost() / 1000


@pytest.mark.parametrize("n", [2, 5, 10, 20])
def test_appendix_a1_waterfall_is_exponentially_worse(n):
    """Workload arriving cluster by cluster: total RTT 2^n + eps - 1 against 1 + eps."""
    eps = 0.01
    rtt = _line([1 + eps, *(2.0**i for i in range(n - 1))])
    load = [0, 2, *([1] * (n - 1))]
    routed = np.zeros_like(rtt)
    for i in range(1, n + 1):
        routed = activate(routed, i, load[i], np.ones(n + 1), _nearest(rtt, i))
    assert _total(routed, rtt) == pytest.approx(2**n + eps - 1)
    assert _optimum(load, rtt) == pytest.approx(1 + eps)


def test_appendix_a2_waterfall_stays_in_a_metastable_state():
    """After the trigger at C6 is gone, C1 takes the room at C5 first, and re-activating anyone changes
    nothing: 2 (1 + eps) against 2 eps."""
    # The paper's figure did not survive; these links give the distances that its text implies.
    # Indices 0..5 are C1..C6.
    eps = 0.01
    rtt = _links(6, {(0, 3): eps, (1, 4): eps, (1, 3): 1 + eps, (0, 4): 1 + eps, (0, 2): 2.0, (4, 5): 5.0})
    room, routed = np.ones(6), np.zeros((6, 6))
    for i in (5, 1, 0):
        routed = activate(routed, i, 2.0, room, _nearest(rtt, i))
    assert (routed[5, 4], routed[1, 3], routed[0, 2]) == (1, 1, 1)
    for i, load in ((5, 0.0), (0, 2.0)):
        routed = activate(routed, i, load, room, _nearest(rtt, i))
    assert routed[0, 4] == 1
    for i in (1, 0, 1):
        again = activate(routed, i, 2.0, room, _nearest(rtt, i))
        np.testing.assert_array_equal(again, routed)
    assert _total(routed, rtt) == pytest.approx(2 * (1 + eps))
    assert _optimum([2, 2, 0, 0, 0, 0], rtt) == pytest.approx(2 * eps)


def test_appendix_a3_waterfall_is_twice_as_bad_in_any_order():
    """Total RTT 4 + 2 eps against 2 + 2 eps, whichever of the two loads comes first."""
    eps = 0.01
    rtt = _line([1 + eps, 1.0, 1 + eps])
    for order in ([1, 2], [2, 1]):
        routed = np.zeros_like(rtt)
        for i in order:
            routed = activate(routed, i, 2.0, np.ones(4), _nearest(rtt, i))
        assert _total(routed, rtt) == pytest.approx(4 + 2 * eps)
    assert _optimum([0, 2, 2, 0], rtt) == pytest.approx(2 + 2 * eps)


def test_waterfall_spills_at_the_declared_threshold_hop_by_hop(chain):
    """Only what exceeds db's threshold leaves west, at db's hop; nothing else moves."""
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
    """Without a declared threshold, capacity 400 and a class of weight 4 leave room for 100 requests."""
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
    assert shares[:, 0].tolist() == [[0.5, 0.5], [0.5, 0.5]]  # 100 of 200, both classes alike


def test_beyond_all_capacity_waterfall_keeps_the_rest_local(chain):
    """1 000 requests, 400 fit in each cluster: 600 stay."""
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
    """The table of Envoy's documentation on priority levels, before its rounding to whole per cent."""
    assert priority_load(healthy) == pytest.approx(loads)


def test_failover_uses_the_next_cluster_by_round_trip(chain):
    """An absent service is served next door; one half healthy keeps 70 %."""
    clusters = ("a", "b", "c")
    at = {"a": 0.0, "b": 40.0, "c": 10.0}
    rtt = {(i, j): abs(at[i] - at[j]) for i in clusters for j in clusters}
    problem = chain({"a": 10.0}, clusters=clusters, rtt=rtt, absent=frozenset({("db", "a")}))
    assert Failover().route(problem).shares[0, 0].tolist() == [0.0, 0.0, 1.0]
    problem = chain({"a": 10.0}, clusters=clusters, rtt=rtt)
    half = Failover(healthy={("db", "a"): 0.5})
    assert half.route(problem).shares[0, 0].tolist() == pytest.approx([0.7, 0.0, 0.3])
    assert nearest_first(problem.layout, np.ones(3, dtype=bool), 0) == [0, 2, 1]


def test_slate_figure_4a_the_cut_is_made_where_it_is_cheap(chain):
    """DB is absent in west and its answers are ten times larger: baselines cross at MP to DB, Spillway at
    FR to MP, for a tenth of the egress (section 3.3)."""
    problem = chain(
        {"west": 100.0, "east": 100.0},
        services=("fr", "mp", "db"),
        capacity=2000.0,
        absent=frozenset({("db", "west")}),
        response_bytes={"mp": 100_000.0, "db": 1_000_000.0},
    )
    baseline = REGISTRY["waterfall"]().route(problem)
    assert baseline.shares[:, 0].tolist() == [[1.0, 0.0], [0.0, 1.0]]
    ours = REGISTRY["spillway"]().route(problem)
    assert ours.shares[0, 0].tolist() == pytest.approx([0.0, 1.0])
    assert baseline.evaluation.egress_usd_per_hour > 9.5 * ours.evaluation.egress_usd_per_hour
    assert ours.evaluation.usd_per_hour < baseline.evaluation.usd_per_hour
