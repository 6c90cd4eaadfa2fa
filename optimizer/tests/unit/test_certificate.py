"""The bound that the prices of a routing give, and the detours that it counts."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from instances import random_problem
from spillway_optimizer.problem.objective import propagate
from spillway_optimizer.problem.penalties import budget_ms
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.solvers import budget, certificate
from spillway_optimizer.solvers.certificate import Known
from spillway_optimizer.solvers.convex import Convex, Stop
from spillway_optimizer.solvers.descent import _certified, descend, penalised, relaxation
from spillway_optimizer.solvers.fast import Fast
from spillway_optimizer.solvers.origins import Origins

seeds = st.integers(0, 2**32 - 1)


def _shares(problem: Problem, r: np.random.Generator) -> np.ndarray:
    """Returns random shares that keep the floors."""
    layout = problem.layout
    free = np.where(
        layout.free, r.dirichlet(np.full(layout.usable.shape[2], 0.4), layout.usable.shape[:2]), 0.0
    )
    total = free.sum(axis=2, keepdims=True)
    free = np.where(total > 0, free / np.where(total > 0, total, 1.0), 0.0)
    # A row without weight on what is free sends it to the first free destination.
    first = layout.free & (np.cumsum(layout.free, axis=2) == 1)
    free = np.where(total > 0, free, first)
    return layout.floor + np.maximum(1.0 - layout.floor.sum(axis=2), 0.0)[:, :, None] * free


def _flows(problem: Problem) -> np.ndarray:
    """Returns the flows of some routing."""
    return propagate(problem.layout, _shares(problem, np.random.default_rng(0)))[0]


def _prices(convex: Convex, r: np.random.Generator) -> np.ndarray:
    """Returns random ms [K, C] per request, of the size of what serving costs."""
    scale = 10 ** r.uniform(-1, 2)
    return convex.beta + convex.layout.weight[:, None] * scale * r.random(convex.beta.shape)


@settings(max_examples=60, deadline=None)
@given(seeds)
def test_detours_never_cost_more_than_the_routing(seed):
    """At any prices of serving, a routing costs at least the cheapest way and its detours.

    The loads of each entry cluster are those that its demand alone causes under the same shares.
    """
    r = np.random.default_rng(seed)
    problem = random_problem(seed, convex=False)
    layout, convex = problem.layout, relaxation(problem)
    serving, need = _prices(convex, r), r.uniform(0.01, 1.0, len(layout.classes))
    origins = Origins.of(layout, convex.hops, serving, need)
    shares, paid, detours = _shares(problem, r), 0.0, 0.0
    for o in range(len(layout.clusters)):
        load = np.where(np.arange(len(layout.clusters)) == o, layout.demand, 0.0)
        for k, edges in enumerate(layout.out_edges):
            for e in edges:
                flows = (layout.ratio[e] * load[k])[:, None] * shares[e]
                load[layout.edge_target[e]] += flows.sum(axis=0)
                paid += (np.where(flows > 0, convex.hops[e], 0.0) * flows).sum()
        assert (load.sum(axis=1) <= origins.volume[o] * (1 + 1e-9) + 1e-9).all()
        paid += (serving * load).sum()
        detours += (np.where(load > 0, origins.detour[o], 0.0) * load).sum()
    assert origins.cost + detours <= paid * (1 + 1e-9) + 1e-9


@settings(max_examples=15, deadline=None)
@given(seeds)
def test_no_routing_costs_less_than_the_bound_of_any_prices(seed):
    """Holds for random prices and needs, with ceilings, budgets, floors, denials and pins."""
    r = np.random.default_rng(seed)
    problem = random_problem(seed, convex=False)
    convex = relaxation(problem)
    need = r.uniform(0.0, 1.0, len(problem.layout.services))
    dear = 1.0 if budget_ms(problem) is None else float(r.choice([1.0, 1.5, 20.0]))
    bound = certificate.bound(convex, need, _prices(convex, r), dear)
    found = [Fast(Stop(relative_gap=1e-2)).route(problem).shares, *(_shares(problem, r) for _ in range(5))]
    for shares in found:
        flows, _ = propagate(problem.layout, shares)
        assert bound <= penalised(problem, flows) * (1 + 1e-9)


@settings(max_examples=15, deadline=None)
@given(seeds)
def test_a_known_bound_makes_the_other_cheaper_and_little_lower(seed):
    """The higher of both misses at most a hundredth of what the known one had left to prove.

    The bound without a known one is exact up to a small part of the stations' peaks.
    """
    r = np.random.default_rng(seed)
    problem = random_problem(seed, convex=False)
    convex, layout = relaxation(problem), problem.layout
    prices, need = _prices(convex, r), r.uniform(0.0, 1.0, len(layout.services))
    exact = certificate.bound(convex, need, prices, 1.0)
    flows, _ = propagate(layout, _shares(problem, r))
    value = penalised(problem, flows)
    known = value - float(r.uniform(0.0, 2.0)) * (value - exact)
    bound = certificate.bound(convex, need, prices, 1.0, Known(value, known))
    paid = np.where(convex.priced[layout.class_service], prices, convex.beta)
    peaks = Origins.of(layout, convex.hops, paid, np.ones(len(layout.classes))).cost - exact
    assert max(bound, known) >= exact - 0.01 * (value - known) - 1e-4 * peaks - 1e-9 * value
    assert bound <= value * (1 + 1e-9)


def test_only_a_small_problem_has_a_bound_when_the_time_is_over(monkeypatch):
    """A small one takes less time than anybody would notice."""
    problem = random_problem(3, convex=False)
    convex, r = relaxation(problem), np.random.default_rng(3)
    need, prices = np.ones(len(problem.layout.services)), _prices(relaxation(problem), r)
    assert np.isfinite(certificate.bound(convex, need, prices, 1.0, late=lambda: True))
    monkeypatch.setattr(certificate, "_QUICK", 0)
    assert np.isfinite(certificate.bound(convex, need, prices, 1.0, late=lambda: False))
    looks = iter([False, True])
    assert certificate.bound(convex, need, prices, 1.0, late=lambda: next(looks)) == -np.inf
    # When the time was over before, not even the call graph is walked.
    monkeypatch.setattr(certificate.Origins, "of", None)
    assert certificate.bound(convex, need, prices, 1.0, late=lambda: True) == -np.inf


def test_a_large_problem_leaves_time_for_further_descents(monkeypatch):
    """Its bound is given up when a tenth of the time left is over. Each look takes a second."""
    given, clock = [], iter(range(1000))
    monkeypatch.setattr(certificate, "bound", lambda *values: given.append(values[-1]) or -np.inf)
    problem = random_problem(3, convex=False)
    stop = Stop(relative_gap=1e-3)
    end = descend(
        problem, lambda convex: budget.minimise(convex, stop).minimum, _flows(problem), lambda: False
    )
    _certified(relaxation(problem), end, 0.0, lambda: 100.0 - next(clock))
    over = [given[0]() for _ in range(20)]
    assert over.index(True) == 10 and all(over[10:])
