"""Solves each application by itself, or all together if an egress budget couples them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from spillway_optimizer.model.building import union
from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.destinations import in_steps
from spillway_optimizer.problem.objective import evaluate
from spillway_optimizer.problem.penalties import beyond
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.solution import Policy, Solution
from spillway_optimizer.solvers.hint import Hint, names_of
from spillway_optimizer.workers.attempt import Routers, attempt, concluded
from spillway_optimizer.workers.parallel import Parallel
from spillway_optimizer.workers.solved import Failed, Solved

_TOGETHER = ""  # name under which the union of all applications is solved


def route_all(
    problems: Mapping[str, Problem], routers: Routers, parallel: Parallel | None = None
) -> Mapping[str, Solved | Failed]:
    """Returns the solution of each application. A failure of one does not affect the others.

    Applications are coupled only by an egress budget. In that case they are solved together, and
    each gets as its budget the egress that it has in that solution. Otherwise they are solved one
    after the other, or at the same time if `parallel` finds that this is quicker.
    """
    # Where latencies are unknown, nothing can be traded between applications.
    alone = {name: problem for name, problem in problems.items() if problem.unmodelled}
    problems = {name: problem for name, problem in problems.items() if name not in alone}
    solve = _within if _coupled(problems) else _apart
    return {**solve(problems, routers, parallel), **_apart(alone, routers, None)}


def start_of(application: str, shares: Floats, solved: Mapping[str, Solved]) -> tuple[str, Hint]:
    """Returns a better routing as a start, and the name of the solve that can start from it.

    `shares`: of the application. `solved`: the last solve of all. Where applications are solved
    together, the others keep the shares that they had.
    """
    problems = {name: solve.problem for name, solve in solved.items()}
    if not _coupled(problems):
        return application, Hint(names_of(problems[application].layout), shares)
    whole = union(list(problems.values()))
    assert whole is not None  # there are several problems
    parts = [shares if name == application else s.solution.shares for name, s in solved.items()]
    return _TOGETHER, Hint(names_of(whole.layout), np.concatenate(parts))


def _coupled(problems: Mapping[str, Problem]) -> bool:
    budgets = {problem.constraints.egress_usd_per_hour for problem in problems.values()} - {None}
    return bool(budgets) and len(problems) > 1


def _apart(
    problems: Mapping[str, Problem], routers: Routers, parallel: Parallel | None
) -> Mapping[str, Solved | Failed]:
    found = parallel.solve(problems, routers) if parallel else None
    if found is None:
        total = sum(problem.layout.demand.size for problem in problems.values())
        found = {
            name: _solved(problem, partial(routers, name, problem.layout.demand.size / total))
            for name, problem in problems.items()
        }
    if parallel:
        parallel.note(found)
    return found


def _solved(problem: Problem, router: Callable[[], Policy]) -> Solved | Failed:
    return concluded(problem, *attempt(problem, router))


def _within(
    problems: Mapping[str, Problem], routers: Routers, parallel: Parallel | None
) -> Mapping[str, Solved | Failed]:
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
        budgeted = {name: _budgeted(p, parts[name] * budget) for name, p in problems.items()}
        return _apart(budgeted, routers, parallel)
    return _parted(problems, solved, budget)


def _budgeted(problem: Problem, usd_per_hour: float) -> Problem:
    return replace(problem, constraints=replace(problem.constraints, egress_usd_per_hour=usd_per_hour))


def _parted(problems: Mapping[str, Problem], solved: Solved, budget: float) -> dict[str, Solved | Failed]:
    """Splits the solution of the union by application.

    The unused part of the budget, USD per hour, is distributed in proportion to egress.
    """
    shares, flows, first = {}, {}, 0
    for name, problem in problems.items():
        edges = slice(first, first + len(problem.edges))
        shares[name], flows[name] = solved.solution.shares[edges], solved.solution.flows[edges]
        first += len(problem.edges)
    egress = {name: evaluate(p, flows[name]).egress_usd_per_hour for name, p in problems.items()}
    paid = sum(egress.values())
    left = max(budget - paid, 0.0)
    found: dict[str, Solved | Failed] = {}
    for name, problem in problems.items():
        part = egress[name] / paid if paid > 0 else 1.0 / len(problems)
        budgeted = _budgeted(problem, egress[name] + left * part)
        size = problem.layout.demand.size / solved.problem.layout.demand.size
        routing = _part(budgeted, shares[name], flows[name], solved.solution)
        stepping = in_steps(budgeted, routing.destinations)
        found[name] = Solved(stepping, routing, solved.duration_ms * size)
    return found


def _part(problem: Problem, shares: Floats, flows: Floats, whole: Solution) -> Solution:
    """Returns one application's part of the common solution, with its own bound.

    Any routing of this application within its budget, together with the other applications' flows,
    is a routing of the whole. So the bound of the whole minus the costs of the others is a bound of
    this application. What limits on destinations cost is known of the whole alone.
    """
    load = problem.layout.demand.copy()
    np.add.at(load, problem.layout.edge_target, flows.sum(axis=1))
    evaluation = evaluate(problem, flows)
    over = beyond(problem, flows, load) * problem.usd_per_ms * 3600.0
    bound = whole.bound_usd_per_hour
    if bound is not None:
        total = whole.evaluation.usd_per_hour + whole.beyond_usd_per_hour
        bound = min(evaluation.usd_per_hour + over, bound - (total - evaluation.usd_per_hour - over))
    routes = {
        (source, problem.classes[e.source], e.target) for e in problem.edges for source in problem.clusters
    }
    return Solution(
        shares,
        flows,
        evaluation,
        bound,
        over,
        whole.notes,
        whole.binding,
        {route: to for route, to in whole.destinations.items() if route in routes},
        whole.limits_loss,
    )
