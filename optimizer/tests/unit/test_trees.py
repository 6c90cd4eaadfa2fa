"""What is kept of the call graph from solve to solve, and the Hessian that follows from it."""

import dataclasses
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from instances import random_problem
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.solvers import trees
from spillway_optimizer.solvers.application import Application
from spillway_optimizer.solvers.convex import Stop
from spillway_optimizer.solvers.descent import relaxation
from spillway_optimizer.solvers.fast import Fast
from spillway_optimizer.solvers.response import Calls
from spillway_optimizer.solvers.trees import Forest

STOP = Stop(relative_gap=1e-4)
seeds = st.integers(0, 2**32 - 1)


def _applications(problem: Problem) -> list[Application]:
    convex = relaxation(problem)
    return [Application.of(convex, own) for own in Forest().trees(problem.layout, convex.priced)]


def _attracted(application: Application, price: np.ndarray, tau: float) -> np.ndarray:
    """Returns the normalised load [D] that prices attract, counted by the pull of the prices."""
    load, _ = application.push(application.route(price, tau, application.trees.evenly).shares)
    envelope = application.envelope
    return envelope.total(envelope.pull(price) * application.normalised(load))


@settings(max_examples=40, deadline=None)
@given(seeds, st.booleans())
def test_the_response_is_the_derivative_of_attracted_load(seed, constrained):
    """Compared with difference quotients, on graphs with shared callees and partial placement.

    The queueing terms are in proportion to the weights, so the pull of prices is constant.
    """
    r = np.random.default_rng(seed)
    for application in _applications(random_problem(seed, constrained)):
        count = len(application.trees.places[0])
        price = application.envelope.stations.alpha + r.uniform(1.0, 20.0, count)
        tau, step = float(r.uniform(20.0, 60.0)), 1e-4
        routing = application.route(price, tau, application.trees.evenly)
        load, calls = application.push(routing.shares)
        serving = application.weight[:, None] * np.ones_like(load)
        free_rps = application.trees.rest * calls
        found = application.trees.response.matrix(Calls(routing.shares, routing.free, free_rps, serving))
        expected = np.zeros((count, count))
        for d in range(count):
            above, below = price.copy(), price.copy()
            above[d], below[d] = price[d] + step, price[d] - step
            fall = _attracted(application, below, tau) - _attracted(application, above, tau)
            expected[:, d] = fall / (2.0 * step)
        assert np.allclose(found / tau, expected, rtol=1e-4, atol=1e-6 * max(1.0, float(load.max())))


def _changed(problem: Problem, what: str) -> Problem:
    first = problem.edges[0]
    if what == "ratio":
        dearer = dataclasses.replace(first, calls_per_request=2.0 * first.calls_per_request)
        return dataclasses.replace(problem, edges=(dearer, *problem.edges[1:]))
    if what == "floors":
        floors = dataclasses.replace(problem.constraints, min_local_share=0.5)
        return dataclasses.replace(problem, constraints=floors)
    if what == "prices":
        service = problem.classes[first.target]
        free = {
            k: dataclasses.replace(problem.curves[k], a_ms=0.0)
            for k, s in problem.classes.items()
            if s == service
        }
        return dataclasses.replace(problem, curves={**problem.curves, **free})
    drained = dataclasses.replace(problem.constraints, drained=frozenset(problem.clusters[:1]))
    return dataclasses.replace(problem, constraints=drained)


@pytest.mark.parametrize("what", ["ratio", "floors", "prices", "drained"])
@pytest.mark.parametrize("seed", range(6))
def test_a_solver_notices_what_its_trees_depend_on(what, seed):
    """After the change, it answers as a solver that has solved nothing before."""
    problem = random_problem(seed, constrained=False)
    after, solver = _changed(problem, what), Fast(STOP)
    solver.route(problem)
    known, new = solver.route(after), Fast(STOP).route(after)
    assert known.evaluation.usd_per_hour == pytest.approx(new.evaluation.usd_per_hour, rel=1e-3)
    assert known.relative_gap <= 1.01e-4


def test_trees_are_kept_while_only_loads_and_capacities_change(monkeypatch):
    """They are made once for any number of such problems, and again for another graph."""
    made, of = [], trees.Trees.of
    monkeypatch.setattr(trees.Trees, "of", lambda *given: made.append(1) or of(*given))
    base, solver = random_problem(11, constrained=False), Fast(STOP)
    solver.route(base)
    count = len(made)
    busier = {key: 1.1 * rps for key, rps in base.demand_rps.items()}
    larger = {key: 1.2 * rps for key, rps in base.capacity_rps.items()}
    solver.route(dataclasses.replace(base, demand_rps=busier, capacity_rps=larger))
    assert len(made) == count
    solver.route(_changed(base, "ratio"))
    assert len(made) > count


def test_a_solver_that_is_sent_to_a_worker_leaves_its_trees_behind():
    """They would be most of what is sent, and the worker makes them again. Prices are kept."""
    problem, solver = random_problem(11, constrained=False), Fast(STOP)
    before = solver.route(problem)
    sent = pickle.loads(pickle.dumps(solver))
    assert sent._forest == Forest() != solver._forest
    assert np.array_equal(sent._start.price, solver._start.price)
    assert sent.route(problem).evaluation.usd_per_hour == pytest.approx(
        before.evaluation.usd_per_hour, rel=2e-4
    )
