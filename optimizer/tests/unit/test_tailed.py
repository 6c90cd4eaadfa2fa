"""Solving with tail targets: against grids of all splits, within limits, and what is reported."""

import dataclasses
import time

import brute_force
import numpy as np
import pytest
from brute_force import Choices
from spillway_optimizer.discrete.limited import Limited
from spillway_optimizer.policies import REGISTRY
from spillway_optimizer.problem.constraints import Constraints
from spillway_optimizer.problem.objective import evaluate_shares, propagate
from spillway_optimizer.problem.problem import Curve, Edge, Problem, TailTarget
from spillway_optimizer.problem.rules import RuleKey
from spillway_optimizer.problem.solution import of_solver
from spillway_optimizer.programmes.exact import Exact
from spillway_optimizer.rulesets.noise import without_noise
from spillway_optimizer.solvers.convex import Stop
from spillway_optimizer.solvers.descent import penalised
from spillway_optimizer.solvers.fast import Fast
from spillway_optimizer.solvers.hint import Hint, names_of
from spillway_optimizer.solving.audits import CONFIRMED, Proof, verdict
from spillway_optimizer.tails import tailed as search
from spillway_optimizer.tails.tailed import Tailed
from tiny import tiny_problem

WEB, READ = "web GET /", "db GET /"
# CPU time, so that a busy machine gives the same answers.
STOP = Stop(1e-4, 300, 5.0, time.process_time)
FARTHEST = 0.01  # how far above the best split of a grid an answer may be, relative to its cost
GRID = {1: 129, 2: 25}


@pytest.fixture
def shop() -> Problem:
    """Requests enter in west, and db is in near, which is busy, and in far, 35 ms further away."""
    return Problem(
        clusters=("west", "near", "far"),
        classes={WEB: "web", READ: "db"},
        edges=(Edge(WEB, READ, 1.0, 1e3, 1e4),),
        demand_rps={("west", WEB): 100.0},
        curves={WEB: Curve(1.0, 1.0, 1.0, 1.0, 0.0), READ: Curve(10.0, 0.0, 1.0, 10.0, 0.0)},
        capacity_rps={("web", "west"): 1000.0, ("db", "near"): 115.0, ("db", "far"): 200.0},
        placement=frozenset({("web", "west"), ("db", "near"), ("db", "far")}),
        rtt_ms={
            (a, b): 5.0 if {a, b} == {"west", "near"} else 40.0
            for a in ("west", "near", "far")
            for b in ("west", "near", "far")
            if a != b
        },
        egress_usd_per_gb={},
        usd_per_ms=1e-7,
    )


def _targeted(problem: Problem, p99_ms: float, value: float = 5.0) -> Problem:
    return dataclasses.replace(problem, tail_targets={WEB: TailTarget(p99_ms, value)})


def _random(seed: int) -> Problem:
    """Returns a tiny problem with targets of 60 to 100 % of the p99s of routing without them."""
    problem, r = tiny_problem(seed), np.random.default_rng([seed, 3])
    curves = {
        k: dataclasses.replace(c, sd_a_ms=c.a_ms * float(r.uniform(0.3, 1.5)), sd_b_ms=max(c.b_ms, 0.0) * 0.2)
        for k, c in problem.curves.items()
    }
    entries = sorted({k for _, k in problem.demand_rps})
    spread = dataclasses.replace(
        problem, curves=curves, tail_targets={k: TailTarget(1e-3, 1.0) for k in entries}
    )
    free = Fast(STOP).route(dataclasses.replace(spread, tail_targets={}))
    highest: dict[str, float] = {}
    for tail in evaluate_shares(spread, free.shares).tails:
        name = spread.layout.classes[tail.k]
        highest[name] = max(highest.get(name, 0.0), tail.p99_ms)
    targets = {
        k: TailTarget(max(ms, 1e-3) * float(r.uniform(0.6, 1.0)), float(10 ** r.uniform(-1, 1)))
        for k, ms in highest.items()
    }
    return dataclasses.replace(spread, tail_targets=targets)


@pytest.mark.parametrize("seed", [5, 8, 11, 14, 22, 29, 37, 41, 50, 55])
def test_no_split_of_a_grid_costs_much_less(seed):
    """Neither does the answer without targets, and no routing costs less than the bound."""
    problem = _random(seed)
    choices = Choices(problem)
    if choices.count > max(GRID):
        pytest.skip("too many splits for a grid")
    points = brute_force._lattice(np.linspace(0, 1, GRID[choices.count]), choices.count)
    grid = choices.shares(points[:, choices._inside(points)])
    best = min(penalised(problem, propagate(problem.layout, grid[..., n])[0]) for n in range(grid.shape[3]))
    solution = Tailed(Fast(STOP)).route(problem)
    free = Fast(dataclasses.replace(STOP, seconds=2.5)).route(dataclasses.replace(problem, tail_targets={}))
    cost, ms = penalised(problem, solution.flows), problem.usd_per_ms * 3600.0
    assert cost <= best * (1 + FARTHEST)
    assert cost <= penalised(problem, free.flows) * (1 + 1e-9)
    assert solution.bound_usd_per_hour <= min(best, cost) * ms * (1 + 1e-7)


def test_a_target_moves_calls_to_the_cluster_that_is_less_loaded(shop):
    """The mean becomes longer, and the p99 shorter: down to the target, and not further."""
    free = Tailed(Fast(STOP)).route(shop)
    kept = Tailed(Fast(STOP)).route(_targeted(shop, 100.0))
    [before] = evaluate_shares(_targeted(shop, 100.0), free.shares).tails
    [after] = kept.evaluation.tails
    assert before.p99_ms > 105 and 99.5 < after.p99_ms <= 100.0
    assert kept.shares[0, 0, 2] > free.shares[0, 0, 2] + 0.05
    assert kept.evaluation.mean_latency_ms > free.evaluation.mean_latency_ms
    assert kept.evaluation.tail_usd_per_hour == 0.0
    assert "the p99 target of 100 ms of web GET / in west" in kept.binding
    assert any(note.startswith("tail targets cost 1.1") for note in kept.notes)


@pytest.mark.parametrize("value", [0.2, 1.0, 5.0])
def test_a_target_that_no_routing_keeps_is_exceeded_as_its_value_says(shop, value):
    """The answer is the best split of a fine grid. Notes name the estimate and the target."""
    problem = _targeted(shop, 60.0, value)
    rows = [np.array([[[0.0, 1.0 - x, x]] * 3]) for x in np.linspace(0.3, 0.6, 601)]
    best = min(evaluate_shares(problem, row).usd_per_hour for row in rows)
    solution = Tailed(Fast(STOP)).route(problem)
    assert solution.evaluation.usd_per_hour <= best * (1 + 1e-5)
    assert "each routing tried exceeds the p99 target of web GET / somewhere" in solution.notes
    [note] = [note for note in solution.notes if note.startswith("the p99 of web GET / is estimated at")]
    assert note.endswith("ms for requests that enter in west, above its target of 60 ms")


@pytest.mark.parametrize("value", [5.0, 100.0])
def test_a_target_does_not_exceed_the_ceiling(shop, value):
    """Nearly all p99s would be those of the cluster nearby, if 5 % more were allowed there."""
    capacity = {**shop.capacity_rps, ("db", "near"): 200.0}
    rtt = {pair: 150.0 if "far" in pair else ms for pair, ms in shop.rtt_ms.items()}
    limits = Constraints(utilisation_ceiling=0.5)
    demand = {("west", WEB): 105.0}
    full = dataclasses.replace(shop, capacity_rps=capacity, rtt_ms=rtt, constraints=limits, demand_rps=demand)
    found = Tailed(Fast(STOP)).route(_targeted(full, 20.0, value))
    assert found.evaluation.utilisation.max() < 0.5 * (1 + 1e-3)
    free = dataclasses.replace(full, constraints=Constraints())
    tempted = Tailed(Fast(STOP)).route(_targeted(free, 20.0, value))
    assert tempted.evaluation.utilisation.max() == pytest.approx(0.525)


def test_exact_and_fast_agree(shop):
    """The search works around any solver. Here the problem is convex without the target."""
    problem = _targeted(shop, 90.0)
    fast, exact = (Tailed(solver).route(problem) for solver in (Fast(STOP), Exact(STOP)))
    assert fast.evaluation.usd_per_hour == pytest.approx(exact.evaluation.usd_per_hour, rel=1e-4)
    assert fast.bound_usd_per_hour == pytest.approx(exact.bound_usd_per_hour, rel=2e-4)


class Counting(Fast):
    """A solver that counts its solves."""

    solves = 0

    def route(self, problem):
        self.solves += 1
        return super().route(problem)


def test_without_an_exceeded_target_there_is_one_solve(shop):
    """Without targets, with one that is kept anyway, and with one that cannot be enforced."""
    blind = dataclasses.replace(shop, curves={**shop.curves, READ: Curve(10.0, 0.0)})
    free = Fast(STOP).route(shop)
    for problem in (shop, _targeted(shop, 200.0), _targeted(blind, 60.0)):
        solver = Counting(STOP)
        found = Tailed(solver).route(problem)
        assert solver.solves == 1
        assert found.shares == pytest.approx(free.shares)
        assert found.evaluation.usd_per_hour == pytest.approx(free.evaluation.usd_per_hour)
    [note] = [note for note in found.notes if note.startswith("tail_targets")]
    assert "the spread of 'db GET /' is unknown" in note


class Slow(Fast):
    """A solver that always takes all its time, on a clock that only solves move on."""

    at = 0.0

    def route(self, problem):
        seconds = self.stop.seconds
        self.stop = dataclasses.replace(STOP, seconds=5.0)
        found = super().route(problem)
        self.at += seconds
        return found


def test_the_time_of_the_solver_is_kept_and_restored(shop):
    """All solves together end within the time, and later ones have as much as earlier ones."""
    solver = Slow()
    solver.stop = stop = Stop(1e-4, 300, 1.0, lambda: solver.at)
    tailed = Tailed(solver)
    found = tailed.route(_targeted(shop, 100.0))
    assert tailed.stop is stop
    assert 0.5 < solver.at <= 0.9 and found.evaluation.tail_usd_per_hour == 0.0
    tailed.route(shop)
    assert solver.at <= 1.9


def test_targets_that_nothing_exceeds_leave_the_solver_its_time(shop):
    """A solve after one that exceeded none has 90 % of the time, any other one has half."""
    solver = Slow()
    solver.stop = Stop(1e-4, 300, 1.0, lambda: solver.at)
    tailed, had = Tailed(solver), []
    for target in (200.0, 200.0, 100.0, 100.0):
        began = solver.at
        found = tailed.route(_targeted(shop, target))
        had.append((round(solver.at - began, 2), found.evaluation.tail_usd_per_hour > 0.0))
    assert had[:3] == [(0.5, False), (0.9, False), (0.9, True)]
    assert 0.5 < had[3][0] <= 0.9 and not had[3][1]


def test_a_search_leaves_no_trace_in_later_solves(shop):
    """Solves with tail prices are of other problems: the next one does not start from theirs."""
    found = []
    for first in (shop, _targeted(shop, 100.0)):
        solver = Fast(STOP)
        Tailed(solver).route(first)
        found.append(solver.route(shop).shares)
    assert np.array_equal(*found)


class Broken(Fast):
    """A solver with a mistake that tail prices bring to light."""

    def route(self, problem):
        return super().route(problem) if not problem.tail_prices else 1 / 0


def test_a_mistake_in_the_search_does_not_cost_the_answer(shop, caplog):
    """The answer is that without targets, and the mistake is logged."""
    found = Tailed(Broken(STOP)).route(_targeted(shop, 100.0))
    assert found.shares == pytest.approx(Fast(STOP).route(shop).shares)
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("seed", [132, 294, 477])
def test_a_line_may_end_where_a_cluster_has_no_calls(seed):
    """Arithmetic leaves some of them, which are no shares: they need not sum to 1."""
    clusters, classes, r = ("a", "b", "c"), (WEB, READ, "log POST /"), np.random.default_rng(seed)
    services = [k.split()[0] for k in classes]
    problem = Problem(
        clusters=clusters,
        classes=dict(zip(classes, services, strict=True)),
        edges=(Edge(WEB, READ, 1.0, 1e3, 1e3), Edge(READ, classes[2], 1.0, 1e3, 1e3)),
        demand_rps={("a", WEB): 100.0},
        curves={k: Curve(ms, 0.0, 1.0, ms, 0.0) for k, ms in zip(classes, (1.0, 10.0, 5.0), strict=True)},
        capacity_rps={(s, c): 1000.0 for s in services for c in clusters},
        placement=frozenset((s, c) for s in services for c in clusters),
        rtt_ms={(a, b): 500.0 if "b" in (a, b) else 1.0 for a in clusters for b in clusters if a != b},
        egress_usd_per_gb={},
        usd_per_ms=1e-7,
        tail_targets={WEB: TailTarget(1.0, 5.0)},
    )
    more = r.dirichlet(np.ones(3), size=(2, 3))
    less = more.copy()
    less[0, :, 1] /= 2
    less[0] /= less[0].sum(axis=1, keepdims=True)
    less, more = (of_solver(problem, shares, None) for shares in (less, more))
    best = search._mixed(search._Costs(problem, 0.0), less, [more], lambda: False)
    assert best.flows[0, 0, 1] < 1e-9 and best.paid_usd_per_hour < less.paid_usd_per_hour
    assert best.shares.sum(axis=2) == pytest.approx(1.0)


def test_a_hint_that_is_better_is_the_answer_and_stays(shop):
    """A solver without time for prices returns the hint's routing, and keeps it."""
    problem = _targeted(shop, 100.0)
    best = Tailed(Fast(STOP)).route(problem)
    hasty = Tailed(Fast(dataclasses.replace(STOP, seconds=0.0)))
    hasty.hint = Hint(names_of(problem.layout), best.shares)
    found = hasty.route(problem)
    assert found.evaluation.usd_per_hour <= best.evaluation.usd_per_hour * (1 + 1e-9)
    assert hasty.hint is not None
    unhurried = Tailed(Fast(STOP))
    unhurried.hint = Hint(names_of(problem.layout), best.shares)
    unhurried.route(problem)
    assert unhurried.hint is None, "it gains nothing"


def test_limits_on_destinations_are_kept_with_targets(shop):
    """One destination only: the one with the lower cost including what exceeds the target."""
    limits = Constraints(max_destinations=1)
    for capacity, expected in ((260.0, 1), (112.0, 2)):
        problem = _targeted(
            dataclasses.replace(
                shop, constraints=limits, capacity_rps={**shop.capacity_rps, ("db", "near"): capacity}
            ),
            80.0,
        )
        solution = Limited(Tailed(Fast(STOP))).route(problem)
        assert solution.shares[0, 0].tolist() == [float(n == expected) for n in range(3)]


def test_an_audit_with_an_exceeded_target_is_complete(shop):
    """The gap contains the penalty, which no bound contains. What is proven is the rest."""
    problem = _targeted(shop, 60.0)
    audited, proof = (REGISTRY[name]().route(problem) for name in ("spillway", "exact"))
    assert audited.relative_gap > 0.1 and audited.unproven < 1e-3
    proven = Proof(
        proof.evaluation.usd_per_hour, 0.0, proof.bound_usd_per_hour, proof.relative_gap, proof.unproven, 0.0,
        1.0, (), proof.shares,
    )  # fmt: skip
    found = verdict(audited, proven, 1e-3)
    assert found.outcome == CONFIRMED
    assert found.reason.endswith("apart from tail targets, which no bound contains")


def test_rules_that_keep_a_target_are_not_noise(shop):
    """By marginal costs alone, moving to the far cluster gains nothing, and doubt would undo it.

    A move that lowers the p99 by very little is noise.
    """
    noisy = dataclasses.replace(shop, rtt_noise_ms={("west", "far"): 50.0, ("west", "near"): 50.0})
    key = RuleKey("west", "web", READ)
    before, after = {key: {"near": 6400, "far": 3600}}, {key: {"near": 5600, "far": 4400}}
    assert without_noise(noisy, before, after, None) == before
    assert without_noise(_targeted(noisy, 100.0), before, after, None) == after
    nearly = {key: {"near": 6399, "far": 3601}}
    assert without_noise(_targeted(noisy, 100.0), before, nearly, None) == before
