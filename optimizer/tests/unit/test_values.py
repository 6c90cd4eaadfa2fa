"""What a millisecond of each class is worth: in the objective, in routing, and in sentences."""

import dataclasses
import logging
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st
from instances import random_problem
from mesh import NOW, Mesh
from spillway.v1.ruleset_pb2 import Ruleset
from spillway_contracts import topology
from spillway_contracts.guardrails import GuardrailFile, Guardrails, LatencyValue
from spillway_contracts.hot_state import DemandEntry
from spillway_optimizer import ProblemError
from spillway_optimizer.commands import sentences
from spillway_optimizer.explain.explain import explain
from spillway_optimizer.inputs.in_force import InForce
from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.inputs.unknown import Unknown
from spillway_optimizer.judging.judging import sample
from spillway_optimizer.model import model
from spillway_optimizer.papa import observe
from spillway_optimizer.papa.mesh import Interrupted
from spillway_optimizer.papa.watch import Watch
from spillway_optimizer.policies import REGISTRY
from spillway_optimizer.policies.nearest import nearest_shares
from spillway_optimizer.policies.projection import project
from spillway_optimizer.problem.marginal import marginal, way
from spillway_optimizer.problem.objective import evaluate_shares, marginal_ms
from spillway_optimizer.problem.problem import Curve, Edge, Problem
from spillway_optimizer.problem.rules import of_ruleset
from spillway_optimizer.process.states import States
from spillway_optimizer.programmes.exact import Exact
from spillway_optimizer.rulesets.assemble import priced
from spillway_optimizer.rulesets.integer_weights import integer_rules
from spillway_optimizer.solvers.convex import Stop
from spillway_optimizer.solvers.descent import penalised
from spillway_optimizer.solvers.fast import Fast
from spillway_optimizer.solving.config import PapaTuning
from spillway_optimizer.sources import model_file

GOLDEN = Path(__file__).resolve().parents[3] / "contracts" / "golden"
CHECKOUT, PREFETCH = "web GET /checkout", "web GET /prefetch"
PAY, READ = "db POST /pay", "db GET /read"
CLUSTERS = ("west", "east")
FAST, EXACT = Stop(5e-4, 60, 30.0), Stop(1e-3, 300, 1.0)
# The instances are the same in every run.
some = settings(max_examples=30, derandomize=True, database=None)


@pytest.fixture
def shop() -> Problem:
    """Two classes of web call a class of db each. West cannot serve both."""
    return Problem(
        clusters=CLUSTERS,
        classes={CHECKOUT: "web", PREFETCH: "web", PAY: "db", READ: "db"},
        edges=(Edge(CHECKOUT, PAY, 1.0, 1e3, 1e4), Edge(PREFETCH, READ, 1.0, 1e3, 1e4)),
        demand_rps={("west", CHECKOUT): 200.0, ("west", PREFETCH): 200.0},
        curves={CHECKOUT: Curve(1.0, 1.0), PREFETCH: Curve(1.0, 1.0), PAY: Curve(3.0, 2.0), READ: Curve(3.0, 2.0)},
        capacity_rps={(s, c): rps for s, rps in (("web", 2000.0), ("db", 400.0)) for c in CLUSTERS},
        placement=frozenset((s, c) for s in ("web", "db") for c in CLUSTERS),
        rtt_ms={("west", "east"): 20.0, ("east", "west"): 20.0},
        egress_usd_per_gb={},
        usd_per_ms=1e-7,
        failure_ms={(PAY, "east"): 4.0},
    )  # fmt: skip


def _valued(problem: Problem, **values: float) -> Problem:
    return dataclasses.replace(
        problem,
        latency_values={{"checkout": CHECKOUT, "prefetch": PREFETCH}[k]: v for k, v in values.items()},
    )


def _instance(seed: int) -> Problem | None:
    """Returns a random problem whose classes have values; None if it would be invalid."""
    try:
        problem = random_problem(seed, constrained=seed % 2 > 0, convex=False)
    except ProblemError:
        return None
    chance = np.random.default_rng(seed)
    entries = sorted({class_id for _, class_id in problem.demand_rps})
    values = {class_id: float(10 ** chance.uniform(-1, 1)) for class_id in entries}
    return dataclasses.replace(problem, latency_values=values) if problem.layout.demand.any() else None


def test_time_counts_by_the_value_of_its_class(shop):
    """Each term of the objective, by hand: compute, network and failures of two classes."""
    shares = np.array([[[0.5, 0.5], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]])
    e = evaluate_shares(_valued(shop, checkout=5.0), shares)
    usd = 1e-7 * 3600
    web = 1 / (1 - 400 / 2000) + 1
    west, east = 3 / (1 - 300 / 400) + 2, 3 / (1 - 100 / 400) + 2
    assert e.compute_usd_per_hour == pytest.approx(
        usd * (5 * (200 * web + 100 * west + 100 * east) + 200 * web + 200 * west)
    )
    assert e.network_usd_per_hour == pytest.approx(usd * 5 * 100 * 20)
    assert e.failure_usd_per_hour == pytest.approx(usd * 5 * 100 * 4)
    total = e.compute_usd_per_hour + e.network_usd_per_hour + e.failure_usd_per_hour
    assert e.usd_per_hour == pytest.approx(total + e.egress_usd_per_hour)


@some
@given(st.integers(0, 2**32 - 1))
def test_latencies_are_those_of_the_requests(seed):
    """Values change no latency that is reported, and no rate of time."""
    if (problem := _instance(seed)) is None:
        return
    plain = dataclasses.replace(problem, latency_values={})
    shares = nearest_shares(problem)
    valued, without = evaluate_shares(problem, shares), evaluate_shares(plain, shares)
    for name in (
        "compute_ms_rps",
        "network_ms_rps",
        "failure_ms_rps",
        "egress_usd_per_hour",
        "mean_latency_ms",
    ):
        assert getattr(valued, name) == getattr(without, name)
    assert (valued.latency_ms == without.latency_ms).all()


@some
@given(st.integers(0, 2**32 - 1), st.floats(0.01, 100))
def test_one_value_for_all_is_another_price_of_time(seed, value):
    """If every entry class has the same value, the price of a millisecond is multiplied by it."""
    if (problem := _instance(seed)) is None:
        return
    valued = dataclasses.replace(problem, latency_values=dict.fromkeys(problem.latency_values, value))
    dearer = dataclasses.replace(problem, latency_values={}, usd_per_ms=problem.usd_per_ms * value)
    shares = nearest_shares(problem)
    assert evaluate_shares(valued, shares).usd_per_hour == pytest.approx(
        evaluate_shares(dearer, shares).usd_per_hour
    )


def test_a_value_of_one_changes_nothing(shop):
    """It is the default: the problem's arrays and its costs are equal to the last bit."""
    one, shares = _valued(shop, checkout=1.0, prefetch=1.0), nearest_shares(shop)
    assert (one.layout.worth == shop.layout.wait).all() and (
        one.layout.hop_worth == shop.layout.hop_wait
    ).all()
    assert evaluate_shares(one, shares).usd_per_hour == evaluate_shares(shop, shares).usd_per_hour


def test_the_value_of_an_inner_class_is_the_mean_of_its_callers(shop):
    """The mean is weighted by volume, and by the share of the calls that users wait for."""
    both = (Edge(CHECKOUT, READ, 1.0, 1e3, 1e4), Edge(PREFETCH, READ, 2.0, 1e3, 1e4, 0.5))
    demand = {("west", CHECKOUT): 30.0, ("west", PREFETCH): 70.0}
    shared = dataclasses.replace(shop, edges=both, demand_rps=demand, latency_values={CHECKOUT: 5.0})
    layout = shared.layout
    assert layout.value[layout.classes.index(READ)] == pytest.approx((30 * 5 + 70) / (30 + 70))
    assert layout.hop_worth.tolist() == pytest.approx([5.0, 0.5])


def test_a_class_without_demand_inherits_value_and_wait(shop):
    """It does so by call ratio, over two hops and from two callers.

    Callers with demand count alone: a class with volume takes nothing from idle ones.
    """
    deep = "cache GET /read"
    shared = dataclasses.replace(
        shop,
        classes={**shop.classes, deep: "cache"},
        edges=(
            Edge(CHECKOUT, READ, 1.0, 1e3, 1e4),
            Edge(PREFETCH, READ, 2.0, 1e3, 1e4, 0.5),
            Edge(READ, deep, 3.0, 1e3, 1e4, 0.5),
        ),
        curves={**shop.curves, deep: Curve(1.0, 1.0)},
        capacity_rps={**shop.capacity_rps, ("cache", "west"): 1e3, ("cache", "east"): 1e3},
        placement=shop.placement | {("cache", "west"), ("cache", "east")},
        latency_values={CHECKOUT: 10.0},
    )

    def inherited(checkout: float, prefetch: float) -> list[float]:
        demand = {("west", CHECKOUT): checkout, ("west", PREFETCH): prefetch}
        layout = dataclasses.replace(shared, demand_rps=demand).layout
        read, below = layout.classes.index(READ), layout.classes.index(deep)
        return [layout.value[read], layout.value[below], layout.wait[below], *layout.hop_worth]

    # Of three calls to read, one is worth 10; users wait for it, and for half of each other one.
    wait = (1 + 2 * 0.5) / 3
    worth = [10.0, 0.5, wait * 0.5 * 5.5]
    assert inherited(0.0, 0.0) == pytest.approx([(10 + 1) / 2, (10 + 1) / 2, wait * 0.5, *worth])
    assert inherited(0.0, 0.0) == pytest.approx(inherited(1e-9, 1e-9))
    assert inherited(1e-9, 0.0)[:3] == pytest.approx([10.0, 10.0, 0.5])


@some
@given(st.integers(0, 2**32 - 1))
def test_marginal_costs_are_the_derivative_of_the_objective(seed):
    """With values too: moving a few calls changes the objective by the difference of the costs."""
    if (problem := _instance(seed)) is None:
        return
    layout, chance = problem.layout, np.random.default_rng(seed)
    shares = chance.random(layout.usable.shape) * layout.usable
    shares /= np.maximum(shares.sum(axis=2, keepdims=True), 1e-300)
    base, costs = evaluate_shares(problem, shares), marginal(problem, shares).total()
    rows = (layout.usable.sum(axis=2) > 1) & (base.load[layout.edge_source] > 1.0)
    for e, i in list(zip(*np.nonzero(rows), strict=True))[:4]:
        here, there = np.flatnonzero(layout.usable[e, i])[:2]
        to = way(problem, int(e))[:, i].sum(axis=0) + costs[layout.edge_target[e]]
        step = 1e-5 * np.sign(0.5 - shares[e, i, there])
        ends = []
        for sign in (1, -1):
            moved = shares.copy()
            moved[e, i, here] -= sign * step
            moved[e, i, there] += sign * step
            ends.append(evaluate_shares(problem, moved).usd_per_hour)
        calls = layout.ratio[e] * base.load[layout.edge_source[e], i]
        expected = calls * (to[there] - to[here]) * problem.usd_per_ms * 3600
        scale = calls * (abs(to[there]) + abs(to[here])) * problem.usd_per_ms * 3600
        assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(expected, rel=1e-3, abs=1e-3 * scale)


@settings(max_examples=8, derandomize=True, database=None)
@given(st.integers(0, 2**32 - 1))
def test_both_bounds_hold(seed):
    """Values make the objective less convex. No bound is above what the other solver found."""
    if (problem := _instance(seed)) is None:
        return
    exact, fast = Exact(EXACT).route(problem), Fast(FAST).route(problem)
    best = min(penalised(problem, s.flows) for s in (exact, fast)) * problem.usd_per_ms * 3600.0
    assert max(fast.bound_usd_per_hour, exact.bound_usd_per_hour) <= best * (1 + 1e-7)


def test_what_is_worth_more_stays_near(shop):
    """Without values both classes are alike. With one, more of checkout stays in west."""
    home = {}  # shares of pay and read that west serves
    for name, problem in (("alike", shop), ("dear", _valued(shop, checkout=5.0))):
        solution = Fast(FAST).route(dataclasses.replace(problem, failure_ms={}))
        home[name] = solution.shares[:, 0, 0]
        assert solution.relative_gap < 0.01
    assert home["alike"][0] == pytest.approx(home["alike"][1], abs=0.01)
    assert home["dear"][0] > 0.99 and home["dear"][1] < home["alike"][1] - 0.3


def test_baselines_route_as_before_and_cost_by_values(shop):
    """A baseline does not know values: its shares are the same, and its cost is not."""
    for name in ("local", "failover", "waterfall", "round-robin"):
        plain, valued = (REGISTRY[name]().route(p) for p in (shop, _valued(shop, checkout=5.0)))
        assert (plain.shares == valued.shares).all()
        assert valued.evaluation.usd_per_hour > 2 * plain.evaluation.usd_per_hour
        assert valued.evaluation.mean_latency_ms == plain.evaluation.mean_latency_ms


def test_one_more_costs_what_rules_say(shop):
    """The reason of a rule names the value. Its predictions are latencies of requests."""
    problem = _valued(shop, checkout=5.0)
    solution = project(problem, Fast(FAST).route(problem))
    rules = {rule.traffic_class.path_template: rule for rule in priced(problem, integer_rules(problem, solution)).rules
             if rule.source_cluster == "west"}  # fmt: skip
    assert rules["/pay"].reason.endswith("; each ms that users wait counts as 5 ms")
    assert "counts as" not in rules["/read"].reason
    layout, cost = problem.layout, marginal_ms(problem, solution.evaluation.load)
    assert f"one more costs {cost[layout.classes.index(PAY), 0]:.1f} ms in west" in rules["/pay"].reason
    [west] = [d for d in rules["/pay"].destinations if d.cluster == "west"]
    assert west.predicted_compute_ms == pytest.approx(
        solution.evaluation.latency_ms[layout.classes.index(PAY), 0], rel=0.05
    )


def test_explain_names_values_that_are_not_one(shop):
    """The callers' value and the class's own, by class. Without values there are none."""
    said = {}
    for name, problem in (("plain", shop), ("valued", _valued(shop, checkout=5.0))):
        [route] = explain(problem, nearest_shares(problem), PAY, "west")
        said[name] = route.values, " ".join(sentences.of_route(dataclasses.asdict(route), 1.0))
    assert said["plain"][0] == {} and "counts as" not in said["plain"][1]
    assert said["valued"][0] == {CHECKOUT: 5.0, PAY: 5.0}
    assert f"One ms that users wait counts as 5 ms in {CHECKOUT} and 5 ms in {PAY}." in said["valued"][1]


def _guardrails(**values: float) -> Guardrails:
    return Guardrails(
        latency_values=[
            LatencyValue(traffic_class=f"{s} GET /items/{{id}}", value=v) for s, v in values.items()
        ]
    )


def test_the_file_gives_the_values_of_classes_that_users_call():
    """A value of an inner class has no effect, and a note says why."""
    telemetry = model_file.read(GOLDEN / "3_model.json")
    built = model.build(
        telemetry,
        topology.load(GOLDEN / "topology.yaml"),
        model_file.as_of(telemetry),
        guardrails=_guardrails(gateway=3.0, backend=9.0),
    )
    assert built.problem.latency_values == {"gateway GET /items/{id}": 3.0}
    [note] = [note for note in built.notes if note.startswith("latency_values")]
    assert "users make no requests of 'backend GET /items/{id}' now; its value has no effect" in note


def test_a_value_of_another_class_is_no_problem(shop):
    """Values of unknown classes, and values that are not above 0, are errors with their key."""
    with pytest.raises(ProblemError, match=r"latency_values: unknown 'x'.*latency_values\[x\]: 0.0 must be"):
        dataclasses.replace(shop, latency_values={"x": 0.0})


def test_what_was_observed_counts_by_the_same_values(shop):
    """Observed and predicted cost of a change are compared in the same unit."""
    problem = _valued(shop, checkout=5.0)
    board = {
        CHECKOUT: DemandEntry(at=0.0, rps=100.0, duration_ms=30.0, failed_share=0.1),
        PREFETCH: DemandEntry(at=0.0, rps=300.0, duration_ms=10.0, failed_share=0.0),
    }
    predicted = evaluate_shares(problem, nearest_shares(problem))
    seen = sample(Telemetry(demand={"west": board}), Unknown(), problem, predicted, 0.0, 600.0)
    failed = 500 * 0.1 / 800
    failures = 800 / 400 * 600.0 * (1 / (1 - failed) - 1)
    assert seen.observed_ms == pytest.approx((500 * 30 + 300 * 10) / 400 + failures)
    assert seen.predicted_ms == pytest.approx(predicted.usd_per_hour / 3600 / 1e-7 / 400)


async def test_costs_at_other_values_are_not_compared(tmp_path, settings):
    """Samples from before a change of values are dropped, because their unit is another."""
    mesh = Mesh(settings, tmp_path)
    for n in range(4):
        await mesh.solve(NOW + 10 * n)
    assert any(watch.recent for watch in mesh.solving.applications.watches.values())
    mesh.solving.guardrails.current = _guardrails(gateway=3.0)
    await mesh.solve(NOW + 40)
    assert all(len(watch.recent) <= 1 for watch in mesh.solving.applications.watches.values())


def test_papa_measures_by_the_same_values():
    """Otherwise its steps would take back what the optimizer has done for a dear class."""
    telemetry, declared = model_file.read(GOLDEN / "3_model.json"), topology.load(GOLDEN / "topology.yaml")
    ruleset = json_format.Parse((GOLDEN / "5_ruleset.json").read_text(), Ruleset())
    rules = InForce(of_ruleset(ruleset), ruleset.origin, ruleset.policy, {"west": 9}, "r", {"west": ruleset})
    at = model_file.as_of(telemetry)
    plain, valued = (
        observe.sample(telemetry, rules, declared, at, 15.0, g)
        for g in (Guardrails(), _guardrails(gateway=3.0))
    )
    entries = [entry for board in telemetry.demand.values() for entry in board.values()]
    latency = sum(e.rps * e.duration_ms for e in entries) / sum(e.rps for e in entries)
    assert valued.objective_ms - plain.objective_ms == pytest.approx(2 * latency)
    assert valued.latency_ms == plain.latency_ms


async def test_papa_ends_a_measurement_when_the_guardrails_change(tmp_path):
    """Samples before and after the change have different units."""
    path = tmp_path / "guardrails.yaml"
    path.write_text("{}")
    declared, states = topology.load(GOLDEN / "topology.yaml"), States(logging.getLogger("test"))
    file = GuardrailFile(path, declared)
    watch = Watch(PapaTuning(), declared, None, file, states)
    assert watch._guardrails() == Guardrails()
    path.write_text("latency_values: [{traffic_class: 'gateway GET /items/{id}', value: 3}]")
    assert watch._guardrails() == Guardrails(), "it may still be being written"
    with pytest.raises(Interrupted, match="the guardrails have changed"):
        watch._guardrails()
    assert watch._guardrails().latency_values[0].value == 3
