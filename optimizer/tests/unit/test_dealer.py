"""Dealer: the fastest combination is filled up to its thresholds, a step at a time."""

from dataclasses import replace

import pytest
from on_a_line import THREE, constrained
from spillway_optimizer.policies.dealer import Dealer, target
from spillway_optimizer.policies.nearest import nearest_shares
from spillway_optimizer.policies.waterfall import Waterfall
from spillway_optimizer.problem.objective import propagate
from spillway_optimizer.problem.problem import Problem


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
    return constrained(problem, denied=frozenset((i, db, j) for i in denied_in for j in ("west", "east")))


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
        clusters=THREE,
        rtt={(i, j): 0.0 if i == j else (200.0 if "c" not in (i, j) else 20.0) for i in THREE for j in THREE},
        capacity=5e3,
        thresholds=limits,
    )
    assert Dealer().route(problem).flows[0, :, 2].sum() == pytest.approx(200.0, rel=1e-2)
    assert Waterfall().route(problem).flows[0, :, 2].sum() == pytest.approx(100.0)
