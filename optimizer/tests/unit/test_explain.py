"""Explanations: marginal costs, effects of shifts, and words for what binds.

Costs must be the evaluator's derivative, and effects its differences.
"""

import dataclasses

import numpy as np
import pytest
from spillway_optimizer.commands import sentences
from spillway_optimizer.explain.explain import STEP, explain
from spillway_optimizer.policies import REGISTRY, SPILLWAY
from spillway_optimizer.problem.constraints import Constraints
from spillway_optimizer.problem.marginal import marginal, way
from spillway_optimizer.problem.objective import evaluate_shares, marginal_ms
from spillway_optimizer.problem.problem import Curve, Edge, Problem
from spillway_optimizer.problem.solution import from_shares

CLUSTERS = ("west", "east", "south")
WEB, API, DB = "web GET /", "api GET /a", "db GET /d"


@pytest.fixture
def diamond() -> Problem:
    """web calls api and db in parallel, and waits for half of their time. api calls db twice."""
    pairs = [(i, j) for i in CLUSTERS for j in CLUSTERS]
    return Problem(
        clusters=CLUSTERS,
        classes={WEB: "web", API: "api", DB: "db"},
        edges=(
            Edge(WEB, API, 1.0, 500.0, 9000.0, 0.5),
            Edge(WEB, DB, 0.7, 300.0, 20_000.0, 0.5),
            Edge(API, DB, 2.0, 200.0, 4000.0),
        ),
        demand_rps={("west", WEB): 120.0, ("east", WEB): 40.0},
        curves={WEB: Curve(1.0, 2.0), API: Curve(3.0, 4.0), DB: Curve(5.0, -1.0, 1.5)},
        capacity_rps={(s, c): 400.0 for s in ("web", "api") for c in CLUSTERS} | {("db", c): 900.0 for c in CLUSTERS},
        placement=frozenset((s, c) for s in ("web", "api", "db") for c in CLUSTERS),
        rtt_ms={(i, j): 0.5 if i == j else 10.0 + 3 * CLUSTERS.index(i) for i, j in pairs},
        egress_usd_per_gb={(i, j): 0.02 + 0.01 * CLUSTERS.index(j) for i, j in pairs if i != j},
        usd_per_ms=1e-7,
    )  # fmt: skip


@pytest.fixture
def anyhow(diamond) -> np.ndarray:
    """Random shares, which no policy has chosen."""
    shares = np.random.default_rng(7).random(diamond.layout.usable.shape)
    return shares / shares.sum(axis=2, keepdims=True)


def test_marginal_costs_are_the_derivative_of_the_objective(diamond, anyhow):
    """Moving a few calls changes the objective by the difference of the marginal costs.

    The split is not optimal, and has parallel children and a service that two callers share. The
    evaluator computes the objective.
    """
    layout, costs = diamond.layout, marginal(diamond, anyhow)
    base, epsilon, checked = evaluate_shares(diamond, anyhow), 1e-6, 0
    for e, i in np.ndindex(len(diamond.edges), len(CLUSTERS)):
        calls = layout.ratio[e] * base.load[layout.edge_source[e], i]
        to = way(diamond, e)[:, i].sum(axis=0) + costs.total()[layout.edge_target[e]]
        for j in range(1, len(CLUSTERS)):
            moved = anyhow.copy()
            moved[e, i, 0] -= epsilon
            moved[e, i, j] += epsilon
            change = (evaluate_shares(diamond, moved).usd_per_hour - base.usd_per_hour) / epsilon
            expected = calls * (to[j] - to[0]) * diamond.usd_per_ms * 3600
            assert change == pytest.approx(expected, rel=1e-3, abs=1e-7)
            checked += calls > 0
    assert checked >= 12


def test_parts_add_up_to_the_marginal_cost(diamond, anyhow):
    """The parts, here and below, add up to the whole."""
    for route in explain(diamond, anyhow, DB, "west"):
        for d in route.destinations:
            assert d.marginal_ms == pytest.approx(sum(d.here.values()) + sum(d.below.values()))
            assert sum(d.below.values()) == 0, "db calls nothing"


def test_at_the_optimum_what_is_used_costs_the_same_and_the_rest_more(diamond):
    """Wardrop's condition holds in the result of `explain`.

    The costs along the shares are those of the cheapest path.
    """
    problem = dataclasses.replace(diamond, demand_rps={("west", WEB): 330.0, ("east", WEB): 20.0})
    solution = REGISTRY[SPILLWAY]().route(problem)
    [route] = explain(problem, solution.shares, API, "west")
    used = [d.marginal_ms for d in route.destinations if d.share > 0.01]
    assert len(used) > 1 and max(used) / min(used) < 1.05
    assert all(d.marginal_ms > 0.95 * min(used) for d in route.destinations)
    cheapest = marginal_ms(problem, solution.evaluation.load)
    assert marginal(problem, solution.shares).total() == pytest.approx(cheapest, rel=0.02)


def test_effects_are_recomputed_not_linearised(diamond, anyhow):
    """An effect is one percent to a destination, taken from the others in proportion.

    The evaluator prices it. A destination with less than one percent gives all that it has.
    """
    anyhow[0, 0] = [0.004, 0.596, 0.4]
    [route] = explain(diamond, anyhow, API, "west")
    west, east, _ = route.destinations
    moved = anyhow.copy()
    moved[0, 0] = [0.014, 0.596 - STEP * 0.596 / 0.996, 0.4 - STEP * 0.4 / 0.996]
    before, after = evaluate_shares(diamond, anyhow), evaluate_shares(diamond, moved)
    assert west.more.moved == pytest.approx(STEP)
    assert west.more.objective_usd_per_hour == pytest.approx(after.usd_per_hour - before.usd_per_hour)
    assert west.more.mean_latency_ms == pytest.approx(after.mean_latency_ms - before.mean_latency_ms)
    assert west.more.egress_usd_per_hour == pytest.approx(
        after.egress_usd_per_hour - before.egress_usd_per_hour
    )
    assert west.less.moved == pytest.approx(-0.004)
    assert east.less.moved == pytest.approx(-STEP)


def test_a_destination_that_has_everything_gives_to_the_cheapest_other(diamond):
    """The effect of less is known for a destination that has all calls.

    It has no effect of more, and a destination without calls has no effect of less.
    """
    solution = REGISTRY["local"]().route(diamond)
    [route] = explain(diamond, solution.shares, API, "west")
    west, east, south = route.destinations
    assert west.more is None and west.less.moved == pytest.approx(-STEP)
    assert east.less is None and south.less is None
    assert west.less.objective_usd_per_hour == pytest.approx(
        min(d.more.objective_usd_per_hour for d in (east, south))
    )


def test_why_a_cluster_is_no_destination(diamond):
    """Each reason is stated: not placed, denied, drained, and without a link."""
    clusters = (*CLUSTERS, "north", "polar")
    rtt = {**diamond.rtt_ms, ("west", "north"): 5.0, ("north", "west"): 5.0, ("north", "north"): 0.0}
    problem = dataclasses.replace(
        diamond,
        clusters=clusters,
        rtt_ms=rtt,
        placement=(diamond.placement - {("api", "south")}) | {("api", "north"), ("api", "polar"), ("db", "polar")},
        capacity_rps={**diamond.capacity_rps, ("api", "north"): 400.0, ("api", "polar"): 400.0, ("db", "polar"): 400.0},
        constraints=Constraints(denied=frozenset({("west", API, "east")}), drained=frozenset({"north"})),
    )  # fmt: skip
    [route] = explain(problem, REGISTRY["local"]().route(problem).shares, API, "west")
    assert route.excluded == {
        "east": "denied",
        "south": "api is not placed there",
        "north": "drained",
        "polar": "the topology has no link from west to it",
    }
    assert [d.cluster for d in route.destinations] == ["west"]
    assert route.binding == (), "who is excluded is said once"


def test_floors_ceilings_and_budgets_are_named_where_a_shift_would_break_them(diamond):
    """A minimum local share binds, and shifts would break an egress budget or a ceiling."""
    constraints = Constraints(min_local_share=0.6, egress_usd_per_hour=0.0, utilisation_ceiling=0.25)
    problem = dataclasses.replace(diamond, constraints=constraints)
    shares = from_shares(problem, np.where(np.eye(3, dtype=bool), 0.6, 0.2)[None].repeat(3, axis=0)).shares
    [route] = explain(problem, shares, API, "west")
    west, east, _ = route.destinations
    assert "west has the least that it must have, 60.0%" in route.binding
    assert "the 60.0% that west must have" in west.less.breaks
    assert "the egress budget of $0/h" in west.less.breaks
    assert west.more.breaks and all("ceiling" in broken for broken in west.more.breaks)
    assert not any("must have" in broken for broken in east.less.breaks)


def test_a_full_service_below_is_what_binds(diamond):
    """db at its limit is named even for a class that only leads to it."""
    capacity = {**diamond.capacity_rps, ("db", "west"): 460.0}
    problem = dataclasses.replace(diamond, capacity_rps=capacity)
    [route] = explain(problem, REGISTRY["local"]().route(problem).shares, API, "west")
    assert any(sentence.startswith("db in west is at ") for sentence in route.binding)


def test_words_say_whether_a_shift_pays(diamond):
    """At the optimum no shift pays.

    For a split that sends nothing away from an overloaded cluster, one does.
    """
    problem = dataclasses.replace(diamond, demand_rps={("west", WEB): 390.0})
    optimum = REGISTRY[SPILLWAY]().route(problem)
    local = REGISTRY["local"]().route(problem)
    explained = {}
    for name, solution in (("optimum", optimum), ("local", local)):
        [route] = explain(problem, solution.shares, API, "west")
        explained[name] = " ".join(
            sentences.of_route(dataclasses.asdict(route), solution.evaluation.usd_per_hour)
        )
    assert (
        "A shift would pay: 1.00%" in explained["local"] and "that others wait longer" in explained["local"]
    )
    assert "No shift of one percent pays" in explained["optimum"]
    assert (
        "Everything goes to west" in explained["local"]
        and "390.0 such calls per second" in explained["local"]
    )


def _explained(problem: Problem, shares: np.ndarray) -> list[str]:
    [route] = explain(problem, shares, API, "west")
    usd = evaluate_shares(problem, shares).usd_per_hour
    return sentences.of_route(dataclasses.asdict(route), usd)


def test_allowed_shifts_are_judged_before_forbidden_ones(diamond):
    """An egress budget of zero holds an overloaded west: no shift is allowed.

    The gain that the budget prevents is stated. Without the budget, the same shift pays.
    """
    busy = dataclasses.replace(diamond, demand_rps={("west", WEB): 390.0})
    local = REGISTRY["local"]().route(busy).shares
    held = dataclasses.replace(busy, constraints=Constraints(egress_usd_per_hour=0.0))
    explained = _explained(held, local)
    assert "No shift is allowed." in explained
    [gain] = [sentence for sentence in explained if sentence.startswith("But for ")]
    assert gain.startswith("But for the egress budget of $0/h, 1.00% ") and " would gain: -" in gain
    assert not any("would pay" in sentence for sentence in explained)
    assert any(sentence.startswith("A shift would pay: ") for sentence in _explained(busy, local))


def _limited(diamond: Problem, row: list[float], **limits) -> dict:
    """Returns the route of API from west, which has the shares `row`, within limits."""
    problem = dataclasses.replace(diamond, constraints=Constraints(**limits))
    shares = REGISTRY["local"]().route(problem).shares.copy()
    shares[0, 0] = row
    [route] = explain(problem, shares, API, "west")
    return dataclasses.asdict(route)


def _breaks(route: dict, which: str) -> list[tuple[str, ...]]:
    return [d[which]["breaks"] if d[which] else None for d in route["destinations"]]


def test_a_shift_that_a_limit_on_destinations_forbids_is_not_allowed(diamond):
    """A whole class and a full number of destinations forbid any shift to one more destination.

    The overloaded west would gain by it.
    """
    busy = dataclasses.replace(diamond, demand_rps={("west", WEB): 390.0})
    for limits, limit in (
        ({"whole": frozenset({API})}, "the guardrail that keeps the class whole"),
        ({"max_destinations": 1}, "the limit of 1 destination"),
    ):
        route = _limited(busy, [1.0, 0.0, 0.0], **limits)
        assert _breaks(route, "more") == [None, (limit,), (limit,)]
        assert _breaks(route, "less") == [(limit,), None, None]
        explained = sentences.of_route(route, 1.0)
        assert "No shift is allowed." in explained
        assert any(sentence.startswith(f"But for {limit}, 1.00% ") for sentence in explained)
    route = _limited(busy, [0.6, 0.4, 0.0], max_destinations=2)
    assert _breaks(route, "more") == [(), (), ("the limit of 2 destinations",)]


def test_a_shift_to_or_into_less_than_the_least_share_is_not_allowed(diamond):
    """A destination may be left or grow, but not have less than the least share.

    What is too little already may grow. Without a least share, nothing is too little. One percent
    is enough for the default.
    """
    route, small = (
        _limited(diamond, [0.97, 0.03, 0.0], min_share=0.03),
        "the 3.0% that {} must have if it has any",
    )
    assert _breaks(route, "more") == [
        (small.format("east"),),
        (),
        tuple(map(small.format, ("east", "south"))),
    ]
    assert _breaks(route, "less") == [(), (small.format("east"),), None]
    assert _breaks(_limited(diamond, [0.99, 0.01, 0.0], min_share=0.03), "more")[1] == ()
    assert _breaks(_limited(diamond, [0.99, 0.01, 0.0], min_share=0.03), "less")[1] == ()
    assert _breaks(_limited(diamond, [0.97, 0.03, 0.0]), "more") == [(), (), ()]
    assert _breaks(_limited(diamond, [0.97, 0.03, 0.0], min_share=0.01), "more") == [(), (), ()]


def test_floors_and_pins_come_before_limits_on_destinations(diamond):
    """Neither a pinned split over two clusters nor a floor below the least share breaks a limit."""
    pinned = {("west", "web", API): {"west": 0.5, "east": 0.5}}
    route = _limited(diamond, [0.5, 0.5, 0.0], pinned=pinned, max_destinations=1, min_share=0.4)
    assert route["binding"] == ("the route is pinned: its split is the operator's",)
    assert not any("destination" in text for row in _breaks(route, "more") for text in row)
    route = _limited(diamond, [0.3, 0.7, 0.0], min_local_share=0.3, max_destinations=1, min_share=0.2)
    assert not any("destination" in text for text in _breaks(route, "more")[1])
    assert _breaks(route, "more")[1] == ("the 30.0% that west must have",)


def test_limits_on_destinations_are_named_where_the_shares_are_at_them(diamond):
    """Without a least share none is named. A class that has several destinations is not whole."""
    assert _limited(diamond, [0.9999, 0.0001, 0.0])["binding"] == ()
    least = "east has the least share that a destination may have, 3.0%"
    assert _limited(diamond, [0.97, 0.03, 0.0], min_share=0.03)["binding"] == (least,)
    assert _limited(diamond, [0.98, 0.02, 0.0], min_share=0.03)["binding"] == (), "less is not the least"
    one = "it has 1 destination, and the guardrails allow 1"
    assert _limited(diamond, [1.0, 0.0, 0.0], max_destinations=1)["binding"] == (one,)
    two = "it has 2 destinations, and the guardrails allow 2"
    assert _limited(diamond, [0.5, 0.5, 0.0], max_destinations=2)["binding"] == (two,)
    whole = "the guardrails keep the class whole: one destination gets all of it"
    assert _limited(diamond, [0.0, 1.0, 0.0], whole=frozenset({API}))["binding"] == (whole,)
    assert _limited(diamond, [0.5, 0.5, 0.0], whole=frozenset({API}))["binding"] == ()


def test_a_pin_is_no_reason_against_where_it_leads(diamond):
    """The pin names east and polar.

    polar has another reason, because it cannot be reached. south is excluded because of the pin.
    """
    problem = dataclasses.replace(
        diamond,
        clusters=(*CLUSTERS, "polar"),
        rtt_ms={**diamond.rtt_ms, ("west", "polar"): 5.0},
        placement=diamond.placement | {("api", "polar")},
        capacity_rps={**diamond.capacity_rps, ("api", "polar"): 400.0},
        constraints=Constraints(pinned={("west", "web", API): {"east": 0.5, "polar": 0.5}}),
    )
    [route] = explain(problem, REGISTRY["local"]().route(problem).shares, API, "west")
    assert route.excluded == {
        "west": "the route is pinned elsewhere",
        "south": "the route is pinned elsewhere",
        "polar": "the calls it makes there cannot be completed",
    }
