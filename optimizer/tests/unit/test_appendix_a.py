"""SLATE appendix A: Waterfall's three bad cases, replayed event by event, next to the optimum.

The text does not contain the figures. Each topology is derived from the distances in the text, as
docstrings explain.
"""

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog
from spillway_optimizer.policies import REGISTRY
from spillway_optimizer.policies.pool import Activation, LoadChange, Pool, RoomChange
from spillway_optimizer.problem.constraints import Constraints
from spillway_optimizer.problem.problem import Curve, Edge, Problem
from spillway_optimizer.programmes.exact import Exact
from spillway_optimizer.solvers.convex import Stop
from spillway_optimizer.solvers.fast import Fast

EPS = 0.01
SOLVERS = [Exact, Fast]


def _links(n: int, links: dict[tuple[int, int], float]) -> np.ndarray:
    """Returns the shortest paths, shape [n, n] (Floyd-Warshall)."""
    rtt = np.where(np.eye(n, dtype=bool), 0.0, np.inf)
    for (i, j), ms in links.items():
        rtt[i, j] = rtt[j, i] = ms
    for k in range(n):
        rtt = np.minimum(rtt, rtt[:, k, None] + rtt[None, k])
    return rtt


def _a1(n: int) -> tuple[np.ndarray, list[tuple[int, float]]]:
    """Returns network times and events of case A.1.

    C0 -(1+eps)- C1 -1- C2 -2- C3 ... Cn, as printed. C1 gets a load of 2, then C2..Cn get 1 each.
    """
    gaps = [1 + EPS, *(2.0**i for i in range(n - 1))]
    rtt = _links(n + 1, {(i, i + 1): gap for i, gap in enumerate(gaps)})
    return rtt, [(1, 2.0), *((i, 1.0) for i in range(2, n + 1))]


def _a2(eps: float = EPS) -> tuple[np.ndarray, list[tuple[int, float]]]:
    """Returns network times and events of case A.2. Indices 0..5 are C1..C6.

    In the final routing, C1 -> C5 and C2 -> C4 cost 1+eps each, while the optimum costs eps each.
    This gives C1 -eps- C4 -1- C5 -eps- C2. C3 is farther from C1 than C5 is, C6 is farther from C2
    than C4 is, and C5 is the nearest to C6. Links of 2 satisfy these conditions.
    """
    rtt = _links(6, {(0, 3): eps, (3, 4): 1.0, (4, 1): eps, (0, 2): 2.0, (4, 5): 2.0})
    return rtt, [(5, 2.0), (1, 2.0), (0, 2.0), (5, 0.0)]


def _a3() -> np.ndarray:
    """Returns the network times of case A.3.

    C1 -(1+eps)- C2 -1- C3 -(1+eps)- C4: the text's 1 from C2 to C3 and 2+eps from C3 to C1.
    """
    return _links(4, {(0, 1): 1 + EPS, (1, 2): 1.0, (2, 3): 1 + EPS})


def _pool(rtt: np.ndarray) -> Pool:
    n = len(rtt)
    orders = [sorted(range(n), key=lambda j, i=i: (j != i, rtt[i, j], j)) for i in range(n)]
    return Pool.idle(np.ones(n), orders)


def _total(routed: np.ndarray, rtt: np.ndarray) -> float:
    return float((routed * rtt).sum())


def _problem(rtt: np.ndarray, load: list[float], serves: list[int] | None = None) -> Problem:
    """Returns the appendix's model.

    Requests enter at a gateway that costs nothing. It calls one service that takes (almost) no time
    below its hard capacity of 1.
    """
    names = tuple(f"C{i:02}" for i in range(len(rtt)))
    serving = names if serves is None else tuple(names[i] for i in serves)
    places = {("gate", c): 1e6 for c in names} | {("app", c): 1.0 for c in serving}
    return Problem(
        clusters=names,
        classes={"gate GET /": "gate", "app GET /": "app"},
        edges=(Edge("gate GET /", "app GET /", 1.0, 0.0, 0.0),),
        demand_rps={(c, "gate GET /"): rps for c, rps in zip(names, load, strict=True)},
        curves={"gate GET /": Curve(0.0, 0.0), "app GET /": Curve(1e-9, 0.0)},
        capacity_rps=places,
        placement=frozenset(places),
        rtt_ms={
            (a, b): float(rtt[i, j])
            for (i, a), (j, b) in itertools.product(enumerate(names), enumerate(names))
        },
        egress_usd_per_gb={},
        usd_per_ms=1.0,
        constraints=Constraints(utilisation_ceiling=1.0),
    )


def _sequence(rtt: np.ndarray, events: list[tuple[int, float]]) -> list[Problem]:
    """Returns the problem after each event."""
    load, problems = [0.0] * len(rtt), []
    for i, rps in events:
        load[i] = rps
        problems.append(_problem(rtt, load))
    return problems


def _waterfall(problems: list[Problem]) -> float:
    """Returns the total RTT after one policy instance has routed all problems in order."""
    policy = REGISTRY["waterfall"]()
    return [policy.route(problem).evaluation.network_ms_rps for problem in problems][-1]


def _matching(problem: Problem) -> float:
    """Computes the minimum cost matching from the problem's plain values.

    Uses an independent LP (scipy's HiGHS).
    """
    names = problem.clusters
    cost = [problem.rtt_ms[i, j] for i in names for j in names]
    row = np.kron(np.eye(len(names)), np.ones(len(names)))
    column = np.kron(np.ones(len(names)), np.eye(len(names)))
    demand = [problem.demand_rps[c, "gate GET /"] for c in names]
    room = [1.0 if ("app", c) in problem.placement else 0.0 for c in names]
    answer = linprog(cost, A_ub=column, b_ub=room, A_eq=row, b_eq=demand)
    assert answer.status == 0, answer.message
    return float(answer.fun)


def _optimum_is(solver, problem: Problem, closed_form: float) -> None:
    assert _matching(problem) == pytest.approx(closed_form, rel=1e-9)
    solution = solver(Stop(seconds=250)).route(problem)  # the default is too short on a busy machine
    assert solution.evaluation.network_ms_rps == pytest.approx(closed_form, rel=1e-3)
    assert solution.evaluation.utilisation.max() <= 1.0 + 1e-3


@pytest.mark.parametrize("n", range(2, 21))
def test_a1_waterfall_is_exponentially_worse(n):
    """Load that arrives cluster by cluster makes Waterfall exponentially worse than the optimum.

    The factor is (2^n + eps - 1) / (1 + eps), both in the appendix's model and for the live policy
    on problems.
    """
    rtt, events = _a1(n)
    pool = _pool(rtt)
    for i, rps in events:
        pool = pool.after(LoadChange(i, rps), Activation(i))
    assert _total(pool.routed, rtt) == pytest.approx(2**n + EPS - 1)
    problems = _sequence(rtt, events)
    ratio = _waterfall(problems) / _matching(problems[-1])
    assert ratio == pytest.approx((2**n + EPS - 1) / (1 + EPS), rel=1e-9)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("n", range(2, 21))
def test_a1_our_optimum_is_the_closed_form(n, solver):
    """One request goes from C1 to C0 at 1 + eps, for any number of clusters."""
    _optimum_is(solver, _sequence(*_a1(n))[-1], 1 + EPS)


def test_a1_priority_for_local_load_does_not_save_waterfall():
    """The factor is the same if the load arises beside each cluster, at 0 ms.

    Then no request is local.
    """
    n = 6
    line, _ = _a1(n)
    rtt = np.block([[line, line], [line, line]])  # index of C'i is n + 1 + i, index of Ci is i
    policy, load = REGISTRY["waterfall"](), [0.0] * (2 * n + 2)
    for i in range(1, n + 1):
        load[n + 1 + i] = 2.0 if i == 1 else 1.0
        problem = _problem(rtt, load, serves=list(range(n + 1)))
        total = policy.route(problem).evaluation.network_ms_rps
    assert total == pytest.approx(2**n + EPS - 1)
    assert _matching(problem) == pytest.approx(1 + EPS)


def _a2_replayed(first: int, second: int, trigger: bool = True) -> Pool:
    """Replays the appendix's events.

    After the trigger is gone, `first` is notified of the free room before `second`.
    """
    rtt, events = _a2()
    pool = _pool(rtt)
    for i, rps in events[:3] if trigger else events[1:3]:
        pool = pool.after(LoadChange(i, rps), Activation(i))
    return pool.after(LoadChange(5, 0.0), Activation(first), Activation(second))


def test_a2_waterfall_goes_through_the_states_of_the_text():
    """C6 goes to C5, C2 to C4 and C1 to C3. Once C6's load is gone, C1 takes C5: 2 (1 + eps)."""
    rtt, events = _a2()
    pool = _pool(rtt)
    for i, rps in events[:3]:
        pool = pool.after(LoadChange(i, rps), Activation(i))
    assert (pool.routed[5, 4], pool.routed[1, 3], pool.routed[0, 2]) == (1.0, 1.0, 1.0)
    after = _a2_replayed(first=0, second=1)
    assert (after.routed[0, 4], after.routed[1, 3]) == (1.0, 1.0)
    assert _total(after.routed, rtt) == pytest.approx(2 * (1 + EPS))


def test_a2_the_bad_state_is_metastable():
    """No order of activations leaves the bad state, although its trigger is gone."""
    stuck = _a2_replayed(first=0, second=1)
    for order in itertools.permutations(range(6)):
        again = stuck.after(*(Activation(i) for i in order))
        np.testing.assert_array_equal(again.routed, stuck.routed)


@pytest.mark.parametrize(("first", "trigger"), [(1, True), (1, False), (0, False)])
def test_a2_another_order_or_no_trigger_ends_well(first, trigger):
    """Waterfall reaches the optimum 2 eps if C2 is notified first, or if C6 is never overloaded."""
    pool = _a2_replayed(first, second=1 - first, trigger=trigger)
    assert _total(pool.routed, _a2()[0]) == pytest.approx(2 * EPS)


@pytest.mark.parametrize("eps", [0.1, 0.01, 0.001])
@pytest.mark.parametrize("solver", SOLVERS)
def test_a2_the_factor_grows_without_bound_as_eps_shrinks(eps, solver):
    """The live policy ends (1 + eps) / eps times above our optimum.

    One instance routes all four problems.
    """
    problems = _sequence(*_a2(eps))
    assert _waterfall(problems) / _matching(problems[-1]) == pytest.approx((1 + eps) / eps)
    _optimum_is(solver, problems[-1], 2 * eps)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_a3_the_factor_two_needs_no_bad_order(order, solver):
    """The factor is (4 + 2 eps) / (2 + 2 eps).

    It holds for either order of the loads, and for any later activations.
    """
    rtt = _a3()
    pool = _pool(rtt)
    for i in order:
        pool = pool.after(LoadChange(i, 2.0), Activation(i))
    assert _total(pool.settled().routed, rtt) == pytest.approx(4 + 2 * EPS)
    problems = _sequence(rtt, [(i, 2.0) for i in order])
    ratio = _waterfall(problems) / _matching(problems[-1])
    assert ratio == pytest.approx((4 + 2 * EPS) / (2 + 2 * EPS))
    _optimum_is(solver, problems[-1], 2 + 2 * EPS)


def test_room_that_shrinks_is_noticed_by_who_is_activated_next():
    """C2 sends 1 to C3 until C3 has no room left. At its next activation, C2 sends it to C1."""
    pool = _pool(_a3()).after(LoadChange(1, 2.0), Activation(1))
    assert pool.routed[1].tolist() == [0.0, 1.0, 1.0, 0.0]
    pool = pool.after(RoomChange(2, 0.0))
    assert pool.routed[1, 2] == 1.0
    assert pool.after(Activation(1)).routed[1].tolist() == [1.0, 1.0, 0.0, 0.0]
