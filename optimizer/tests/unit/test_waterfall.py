"""Waterfall and its central form: calls above a threshold leave for the nearest room."""

import pytest
from on_a_line import THREE, on_a_line
from spillway_optimizer.policies import REGISTRY
from spillway_optimizer.policies.waterfall import Waterfall
from spillway_optimizer.policies.waterfall_central import WaterfallCentral
from spillway_optimizer.problem.problem import Curve, Edge, Problem


def test_waterfall_remembers_and_a_new_one_does_not(chain):
    """b's overflow takes c's room while a is idle.

    When a overflows too, an existing Waterfall leaves b's requests there. A new one activates a
    first and gives a the room.
    """
    rtt = on_a_line(a=0.0, b=25.0, c=10.0)
    limits = {("db", c): 100.0 for c in THREE}

    def at(a: float) -> Problem:
        demand = {"a": a, "b": 200.0}
        return chain(demand, clusters=THREE, rtt=rtt, capacity=5e3, thresholds=limits)

    kept = Waterfall()
    assert kept.route(at(0.0)).flows[0, 1].tolist() == pytest.approx([0.0, 100.0, 100.0])
    assert kept.route(at(200.0)).flows[0, 1, 2] == pytest.approx(100.0)
    assert Waterfall().route(at(200.0)).flows[0, 0, 2] == pytest.approx(100.0)


def test_waterfall_goes_on_when_clusters_come_and_go(chain):
    """Its memory is by cluster name.

    b keeps c's room although a has left and the indices moved.
    """
    rtt = on_a_line(a=0.0, b=25.0, c=10.0, d=26.0)
    limits = {("db", c): 100.0 for c in "abcd"}
    options = {"rtt": rtt, "capacity": 5e3, "thresholds": limits}
    kept = Waterfall()
    kept.route(chain({"b": 200.0}, clusters=THREE, **options))
    flows = kept.route(chain({"b": 200.0}, clusters=("d", "b", "c"), **options)).flows
    # d is nearer than c, so b's overflow moves there.
    assert flows[0, 1].tolist() == pytest.approx([100.0, 100.0, 0.0])
    flows = kept.route(chain({"b": 200.0}, clusters=("b", "c"), **options)).flows
    assert flows[0, 0].tolist() == pytest.approx([100.0, 100.0])


def test_waterfall_central_gives_room_to_the_nearest_whatever_the_order(chain):
    """c's room is 10 ms from a and 15 ms from b, so a gets it in either order of the clusters."""
    rtt = on_a_line(a=0.0, b=25.0, c=10.0)
    for clusters in (THREE, ("b", "c", "a")):
        problem = chain(
            {"a": 200.0, "b": 200.0},
            clusters=clusters,
            rtt=rtt,
            capacity=5e3,
            thresholds={("db", c): 100.0 for c in THREE},
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
