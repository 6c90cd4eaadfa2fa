"""Solves each application by itself, or all together if an egress budget couples them.

Pure except for the time that it measures.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from spillway_optimizer import OptimizerError
from spillway_optimizer.model.building import union
from spillway_optimizer.problem.objective import evaluate
from spillway_optimizer.problem.penalties import beyond
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.solution import Policy, Solution, shares_of
from spillway_optimizer.service.solves_table import Solved

_LOG = logging.getLogger(__name__)
_TOGETHER = ""  # name under which the union of all applications is solved
# Returns the router of an application, given its share of the time for solving.
Routers = Callable[[str, float], Policy]


class Failed(str):
    """Why an application has no solution. `internal`: whether the cause is a mistake of ours."""

    internal = False


def route_all(problems: Mapping[str, Problem], routers: Routers) -> Mapping[str, Solved | Failed]:
    """Returns the solution of each application. A failure of one does not affect the others.

    Applications are coupled only by an egress budget. In that case they are solved together, and
    each gets as its budget the egress that it has in that solution.
    """
    budgets = {problem.constraints.egress_usd_per_hour for problem in problems.values()} - {None}
    if budgets and len(problems) > 1:
        return _within(problems, routers)
    return _apart(problems, routers)


def _apart(problems: Mapping[str, Problem], routers: Routers) -> dict[str, Solved | Failed]:
    total = sum(problem.layout.demand.size for problem in problems.values())
    return {
        name: _solved(problem, partial(routers, name, problem.layout.demand.size / total))
        for name, problem in problems.items()
    }


def _solved(problem: Problem, router: Callable[[], Policy]) -> Solved | Failed:
    started = time.monotonic()
    try:
        solution = router().route(problem)
    except OptimizerError as error:
        return Failed(f"{type(error).__name__}: {error}")
    except Exception as error:
        # A mistake of ours for one input must not end the loop or affect other applications.
        _LOG.exception("this solve failed")
        failed = Failed(f"internal error: {type(error).__name__}: {error}")
        failed.internal = True
        return failed
    return Solved(problem, solution, (time.monotonic() - started) * 1000)


def _within(problems: Mapping[str, Problem], routers: Routers) -> dict[str, Solved | Failed]:
    """Solves all applications together within their common egress budget."""
    whole = union(list(problems.values()))
    assert whole is not None  # there are several problems
    budget = whole.constraints.egress_usd_per_hour
    assert budget is not None  # the budget is the mesh's, so every problem has it
    solved = _solved(whole, partial(routers, _TOGETHER, 1.0))
    if isinstance(solved, Failed):
        # Solve each by itself, within a part of the budget in proportion to its demand.
        total = sum(float(problem.layout.demand.sum()) for problem in problems.values())
        parts = {name: float(p.layout.demand.sum()) / max(total, 1e-9) for name, p in problems.items()}
        return _apart({name: _budgeted(p, parts[name] * budget) for name, p in problems.items()}, routers)
    return _parted(problems, solved, budget)


def _budgeted(problem: Problem, usd_per_hour: float) -> Problem:
    return replace(problem, constraints=replace(problem.constraints, egress_usd_per_hour=usd_per_hour))


def _parted(problems: Mapping[str, Problem], solved: Solved, budget: float) -> dict[str, Solved | Failed]:
    """Splits the solution of the union by application.

    The unused part of the budget, USD per hour, is distributed in proportion to egress.
    """
    flows, first = {}, 0
    for name, problem in problems.items():
        flows[name] = solved.solution.flows[first : first + len(problem.edges)]
        first += len(problem.edges)
    egress = {name: evaluate(p, flows[name]).egress_usd_per_hour for name, p in problems.items()}
    paid = sum(egress.values())
    left = max(budget - paid, 0.0)
    found: dict[str, Solved | Failed] = {}
    for name, problem in problems.items():
        part = egress[name] / paid if paid > 0 else 1.0 / len(problems)
        budgeted = _budgeted(problem, egress[name] + left * part)
        size = problem.layout.demand.size / solved.problem.layout.demand.size
        found[name] = Solved(
            budgeted, _part(budgeted, flows[name], solved.solution), solved.duration_ms * size
        )
    return found


def _part(problem: Problem, flows: np.ndarray, whole: Solution) -> Solution:
    """Returns one application's part of the common solution, with its own bound.

    Any routing of this application within its budget, together with the other applications' flows,
    is a routing of the whole. So the bound of the whole minus the costs of the others is a bound of
    this application.
    """
    load = problem.layout.demand.copy()
    np.add.at(load, problem.layout.edge_target, flows.sum(axis=1))
    evaluation = evaluate(problem, flows)
    over = beyond(problem, flows, load) * problem.usd_per_ms * 3600.0
    bound = whole.bound_usd_per_hour
    if bound is not None:
        total = whole.evaluation.usd_per_hour + whole.beyond_usd_per_hour
        bound = min(evaluation.usd_per_hour + over, bound - (total - evaluation.usd_per_hour - over))
    return Solution(
        shares_of(problem, flows, load), flows, evaluation, bound, over, whole.notes, whole.binding
    )
