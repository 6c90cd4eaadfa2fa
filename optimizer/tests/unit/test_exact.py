import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from instances import random_problem
from spillway_optimizer.policies import REGISTRY
from spillway_optimizer.problem.constraints import Constraints
from spillway_optimizer.problem.objective import evaluate_shares
from spillway_optimizer.problem.problem import Curve, Edge, Problem
from spillway_optimizer.programmes import outer, piecewise
from spillway_optimizer.programmes.exact import Exact
from spillway_optimizer.solvers.convex import Stop
from spillway_optimizer.solvers.descent import penalised
from test_hint import two_basins

_CLUSTERS = ("c0", "c1", "c2")


@st.composite
def problems(draw, clusters=2, proportional=True):
    """Draws problems in which two classes of one entry service share a callee service.

    Some of the callee's calls lead to a third service.
    """
    number = lambda low, high: draw(st.floats(low, high, allow_nan=False))  # noqa: E731
    names = _CLUSTERS[:clusters]
    weights = {"light": 1.0, "heavy": number(1.5, 6.0)}
    classes, edges, curves = {}, [], {}
    for kind, weight in weights.items():
        a = 2.0 * weight if proportional else number(0.1, 8.0)
        for service, queue in (("in", 0.5 * weight), ("mid", a)):
            classes[f"{service} GET /{kind}"] = service
            curves[f"{service} GET /{kind}"] = Curve(queue, number(0.5, 10.0), weight)
        size = number(0, 1e5)
        edges.append(Edge(f"in GET /{kind}", f"mid GET /{kind}", number(0.2, 2.0), 500.0, size))
    classes["end GET /x"], curves["end GET /x"] = "end", Curve(number(0.0, 4.0), number(0.0, 4.0))
    edges.append(Edge("mid GET /heavy", "end GET /x", number(0.1, 1.5), 100.0, number(0, 1e5)))
    services = ("in", "mid", "end")
    return Problem(
        clusters=names,
        classes=classes,
        edges=tuple(edges),
        demand_rps={(c, f"in GET /{k}"): number(0.0, 120.0) + 1.0 for c in names for k in weights},
        curves=curves,
        capacity_rps={(s, c): number(150.0, 1500.0) for s in services for c in names},
        placement=frozenset(itertools.product(services, names)),
        rtt_ms={(i, j): 0.0 if i == j else number(1.0, 60.0) for i in names for j in names},
        egress_usd_per_gb={(i, j): number(0.0, 0.1) for i in names for j in names if i != j},
        usd_per_ms=1e-7,
    )


def _random_shares(problem: Problem, rng: np.random.Generator) -> np.ndarray:
    shares = rng.dirichlet(np.full(len(problem.clusters), 0.5), size=problem.layout.usable.shape[:2])
    return np.where(problem.layout.usable, shares, 0.0)


@settings(max_examples=40)
@given(problems(clusters=3), st.integers(0, 2**32 - 1))
def test_nothing_is_cheaper_than_the_exact_solution(problem, seed):
    """On convex problems, the gap closes.

    The bound holds for 60 random routings and for the baselines local and waterfall.
    """
    solution = Exact().route(problem)
    assert solution.relative_gap <= 1.01e-4
    rng = np.random.default_rng(seed)
    others = [evaluate_shares(problem, _random_shares(problem, rng)).usd_per_hour for _ in range(60)]
    others += [REGISTRY[name]().route(problem).evaluation.usd_per_hour for name in ("local", "waterfall")]
    assert solution.bound_usd_per_hour <= min(others) * (1 + 1e-9)
    assert solution.evaluation.usd_per_hour <= min(others) * (1 + 1.1e-4)


@settings(max_examples=6)
@given(west=st.floats(50, 900), east=st.floats(10, 500), rtt=st.floats(1, 60))
def test_brute_force_agrees(west, east, rtt):
    """No split on a grid beats the solver, and the best one is within 2 % of it.

    The problem is one hop between two clusters. The grid covers every pair of splits in steps of 2
    %, then of 0.2 % and 0.02 % around the best one. Near saturation, 2 % of the requests cost much.
    """
    problem = _one_hop(west, east, rtt)

    def cost(split: tuple[float, float]) -> float:
        p, q = split
        return evaluate_shares(problem, np.array([[[1 - p, p], [q, 1 - q]]])).usd_per_hour

    around, step = (0.5, 0.5), 0.02
    grids = [np.linspace(0, 1, 51)] * 2
    for _ in range(3):
        around = min(itertools.product(*grids), key=cost)
        grids = [np.clip(x + np.linspace(-step, step, 21), 0, 1) for x in around]
        step /= 10
    best = cost(around)
    value = Exact().route(problem).evaluation.usd_per_hour
    assert value <= best * (1 + 1e-4)
    assert best <= value * 1.02


def _one_hop(west: float, east: float, rtt: float) -> Problem:
    names = ("west", "east")
    classes = {"web GET /": "web", "db GET /": "db"}
    return Problem(
        clusters=names,
        classes=classes,
        edges=(Edge("web GET /", "db GET /", 1.0, 1000.0, 10_000.0),),
        demand_rps={("west", "web GET /"): west, ("east", "web GET /"): east},
        curves={"web GET /": Curve(0.5, 1.0), "db GET /": Curve(3.0, 7.0)},
        capacity_rps={(s, c): 2000.0 if s == "web" else 500.0 for s in ("web", "db") for c in names},
        placement=frozenset(itertools.product(("web", "db"), names)),
        rtt_ms={(i, j): 0.0 if i == j else rtt for i in names for j in names},
        egress_usd_per_gb={},
        usd_per_ms=1e-7,
    )


@settings(max_examples=10)
@given(problems(clusters=2, proportional=False), st.integers(0, 2**32 - 1))
def test_without_proportion_the_bound_is_still_a_bound(problem, seed):
    """On problems that are not convex, the bound lies below every routing tried.

    A note says that the problem is not convex, and the gap is reported.
    """
    solution = Exact(Stop(1e-3, 300, 1.0)).route(problem)
    rng = np.random.default_rng(seed)
    others = [evaluate_shares(problem, _random_shares(problem, rng)).usd_per_hour for _ in range(60)]
    assert solution.bound_usd_per_hour <= min([*others, solution.evaluation.usd_per_hour]) * (1 + 1e-9)
    assert any("not convex" in note for note in solution.notes)
    assert solution.relative_gap is not None


@settings(max_examples=6, derandomize=True, database=None)
@given(st.floats(50, 400), st.floats(50, 400), st.floats(0.2, 2.0), st.floats(3.0, 20.0), st.floats(1, 40))
def test_brute_force_agrees_without_proportion(light, heavy, slow, fast, rtt):
    """Two classes with different queueing terms share a service in two clusters.

    No split on a grid of 10 % is below the bound, or below the solver by more than its gap.
    """
    names, kinds = ("west", "east"), {"light": (slow, light), "heavy": (fast, heavy)}
    classes = {f"{s} GET /{kind}": s for s in ("web", "db") for kind in kinds}
    problem = Problem(
        clusters=names,
        classes=classes,
        edges=tuple(Edge(f"web GET /{kind}", f"db GET /{kind}", 1.0, 1e3, 1e4) for kind in kinds),
        demand_rps={
            (c, f"web GET /{kind}"): rps * (1.0 if c == "west" else 0.3)
            for c in names
            for kind, (_, rps) in kinds.items()
        },
        curves={
            k: Curve(0.5, 1.0) if s == "web" else Curve(kinds[k.rpartition("/")[2]][0], 5.0)
            for k, s in classes.items()
        },
        capacity_rps={(s, c): 2000.0 if s == "web" else 700.0 for s in ("web", "db") for c in names},
        placement=frozenset(itertools.product(("web", "db"), names)),
        rtt_ms={(i, j): 0.0 if i == j else rtt for i in names for j in names},
        egress_usd_per_gb={},
        usd_per_ms=1e-7,
    )
    grid = np.linspace(0, 1, 11)
    best = min(
        evaluate_shares(problem, np.array([[[1 - a, a], [b, 1 - b]], [[1 - c, c], [d, 1 - d]]])).usd_per_hour
        for a, b, c, d in itertools.product(grid, repeat=4)
    )
    solution = Exact(Stop(5e-3, 300, 60.0)).route(problem)  # far more time than it needs
    assert solution.bound_usd_per_hour <= best * (1 + 1e-7)
    assert solution.evaluation.usd_per_hour <= best * (1 + 1e-7 + solution.relative_gap)
    assert solution.relative_gap <= 0.006


def test_overload_beyond_all_capacity_is_least_bad_not_infeasible(chain):
    """Twice the total capacity still gets a routing.

    It is spread over both clusters, with a note for each.
    """
    solution = Exact().route(
        chain({"west": 1000.0}, capacity={**_capacity("web", 3000.0), **_capacity("db", 250.0)})
    )
    west, east = solution.evaluation.utilisation[0]
    assert west == pytest.approx(east, rel=0.05)
    assert sum("db" in note and "of its capacity" in note for note in solution.notes) == 2


def _capacity(service: str, rps: float) -> dict[tuple[str, str], float]:
    return {(service, c): rps for c in ("west", "east")}


def test_a_first_request_of_an_idle_cluster_goes_where_it_costs_least(chain):
    """East has no demand of its own, but its row exists and stays local."""
    solution = Exact().route(chain({"west": 100.0}))
    assert solution.flows[0, 1].sum() == pytest.approx(0.0)
    assert solution.shares[0, 1].tolist() == [0.0, 1.0]


@pytest.mark.parametrize(("seed", "budget"), [(1, None), (7, 0.07)])
def test_the_answer_does_not_depend_on_the_unit_of_rates(seed, budget):
    """From a tenth of a request to a million per second, the gap closes at the same cost.

    The problems are not convex. All rates, capacities and the budget are multiplied by the same
    factor, which multiplies the cost too.
    """
    base, costs = random_problem(seed, constrained=False, convex=False, clusters=2), []
    for factor in (1e-3, 1.0, 1e4):
        limit = None if budget is None else budget * factor
        problem = replace(
            base,
            demand_rps={key: rps * factor for key, rps in base.demand_rps.items()},
            capacity_rps={key: rps * factor for key, rps in base.capacity_rps.items()},
            constraints=Constraints(egress_usd_per_hour=limit),
        )
        solution = Exact(Stop(1e-2, 300, 30.0)).route(problem)
        evaluation = solution.evaluation
        assert solution.relative_gap <= 1e-2
        assert limit is None or evaluation.egress_usd_per_hour <= limit * (1 + 1e-3)
        costs.append(evaluation.usd_per_hour / factor)
    assert costs == pytest.approx([costs[0]] * 3, rel=1e-3)


@pytest.mark.parametrize(("times", "wrong"), [(1.0 + 1e-9, False), (2.0, True)])
def test_a_bound_above_the_cost_of_a_routing_is_not_used(monkeypatch, times, wrong):
    """It would be a mistake of ours or of the solver. A note says so, and the gap stays.

    What rounding can do is no mistake: the bound is then the cost.
    """
    problem, solve = two_basins(), piecewise._Pieces.solve
    scaled, unit = outer.in_unit(problem)
    best = penalised(scaled, Exact(Stop(1e-6, 60, 5.0)).route(problem).flows / unit)

    def beyond(self, *given):
        flows, load, _ = solve(self, *given)
        return flows, load, times * best

    monkeypatch.setattr(piecewise._Pieces, "solve", beyond)
    solution = Exact(Stop(1e-6, 60, 5.0)).route(problem)
    assert any("bound is wrong" in note for note in solution.notes) == wrong
    assert solution.relative_gap > 0.01 if wrong else solution.relative_gap <= 1e-6
