"""Where routes go whose maximum shift keeps more destinations than a limit allows.

Such a route cannot keep its limit at once. Its destinations are chosen as if all calls could move
at once, and each version moves as many calls there as the maximum shift allows.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from spillway_optimizer import OptimizerError
from spillway_optimizer.discrete.limits import Row, destinations, rows
from spillway_optimizer.problem.arrays import Bools, Floats
from spillway_optimizer.problem.destinations import in_steps
from spillway_optimizer.problem.objective import propagate
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.rules import RuleKey, merge
from spillway_optimizer.problem.solution import Solution, of_solver
from spillway_optimizer.solvers.descent import penalised
from spillway_optimizer.solvers.hint import Hint

# Relative. The last choice, and the destinations that have most calls now, stay where others gain
# less than this. Otherwise noise in the demand, or a choice that had little time, could turn a
# route round before it has arrived.
_LEAST_GAIN = 0.01
_TIE = 1e-6  # less than one part of a weight

Solve = Callable[[Problem], Solution]


def aimed(problem: Problem, limited: Solve, late: Callable[[], bool]) -> Problem:
    """Returns the problem in which routes step towards the destinations that limits allow them.

    `limited` solves a problem within its limits. When it is `late`, its choice stands. Routes that
    step already, and routes that would have as many destinations without the maximum shift, stay as
    they are.
    """
    c = problem.constraints
    if c.max_shift >= 1 or not (c.whole or c.max_destinations):
        return problem
    kept = {
        row.key: int(row.kept.sum())
        for row in _rows(problem)
        if row.limit < row.kept.sum() and not row.leaving.any()
    }
    aim = replace(problem, constraints=replace(c, max_shift=1.0))
    towards = [row for row in _rows(aim) if row.most < kept.get(row.key, 0)] if kept else []
    if not towards:
        return problem
    try:
        solution = limited(aim)
    except OptimizerError:
        return problem
    merged = merge(aim, solution.shares, solution.flows)
    goals = {row.key: row for row in rows(aim, merged)}
    present = [_present(problem, row, goals[row.key].used) for row in towards]
    moved = [row for row in present if not np.array_equal(row.largest(), goals[row.key].used)]
    stays = _near(aim, merged, moved, late)
    used = [row.largest() if row.key in stays else goals[row.key].used for row in present]
    return in_steps(problem, destinations(aim, towards, used))


def steady(aim: Problem, found: Solution, last: Hint | None) -> Solution:
    """Returns the routing chosen last, or `found` if that gains enough on it.

    Both are routings of the problem without the maximum shift. The last one follows the demand. It
    must still be possible within the limits.
    """
    shares = last.placed(aim.layout) if last else None
    if shares is None:
        return found
    merged = merge(aim, shares, propagate(aim.layout, shares)[0])
    kept = of_solver(aim, merged, found.bound_usd_per_hour)
    gains = kept.paid_usd_per_hour > (1.0 + _LEAST_GAIN) * found.paid_usd_per_hour
    return found if gains or any(row.breaks for row in rows(aim, merged)) else kept


def _near(aim: Problem, shares: Floats, tries: list[Row], late: Callable[[], bool]) -> set[RuleKey]:
    """Returns the routes that may keep the destinations that have most of their calls now.

    `shares`: [E, C, C], the best routing known. `tries`: routes with their present shares. All that
    are returned together cost at most _LEAST_GAIN more.
    """
    found: set[RuleKey] = set()
    most = _cost(aim, shares)
    most += _LEAST_GAIN * abs(most)
    groups = [tries] if tries else []
    while groups and not late():
        group = groups.pop()
        trial = shares.copy()
        for row in group:
            trial[list(row.edges), row.cluster] = row.over(row.largest())
        if _cost(aim, trial) <= most:
            shares = trial
            found |= {row.key for row in group}
        elif len(group) > 1:
            half = len(group) // 2
            groups += [group[half:], group[:half]]
    return found


def _cost(problem: Problem, shares: Floats) -> float:
    return penalised(problem, propagate(problem.layout, shares)[0])


def _rows(problem: Problem) -> list[Row]:
    """Returns the routes that a policy may split, with their floors as shares."""
    return list(rows(problem, problem.layout.floor))


def _present(problem: Problem, row: Row, goal: Bools) -> Row:
    """Returns the row of a route with its present shares. Ties go to the destinations `goal` [C].

    `row`: the route without the maximum shift.
    """
    clusters, before = problem.layout.clusters, problem.constraints.in_force[row.key]
    share = np.array([before.get(cluster, 0.0) for cluster in clusters])
    return replace(row, share=share + _TIE * goal)
