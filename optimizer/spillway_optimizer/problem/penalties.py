"""Penalties for exceeding the utilisation ceiling and the egress budget.

Solvers keep to these limits because exceeding them costs. An answer exceeds a limit only where
every routing must, and then by as little as possible.
"""

import numpy as np

from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.objective import utilisation
from spillway_optimizer.problem.problem import Problem

# Milliseconds per request for each unit of utilisation above the ceiling. A tenth of a percent
# above the ceiling already costs more than any detour. Demand beyond all ceilings is spread as
# evenly as possible.
CEILING_MS = 1e6
# Dollars that one dollar of egress beyond the budget counts as.
BUDGET_FACTOR = 1e6
_RESOLUTION = 1e-6
_LEAST = 1e-9


def relative(difference: float, objective: float, beyond: float) -> float:
    """Returns a difference of costs relative to the objective, all in one unit.

    `beyond` is the penalty that comes on top of the objective. It is left out of the denominator,
    because an unavoidable penalty would make the gap of a bad routing look small. The denominator
    is never so small that arithmetic could not tell the difference. So the result is finite, and
    large, where an objective of 0 has a penalty.
    """
    return difference / max(abs(objective), _RESOLUTION * abs(objective + beyond), _LEAST)


def budget_ms(problem: Problem) -> float | None:
    """Returns the egress budget, converted at $/ms to ms of waiting per second; None: no budget."""
    budget = problem.constraints.egress_usd_per_hour
    return None if budget is None else budget / 3600.0 / problem.usd_per_ms


def egress_ms(problem: Problem, flows: Floats) -> float:
    """Returns the worth of the egress of flows [E, C, C], in ms of waiting per second."""
    return float((flows * problem.layout.egress).sum()) / problem.usd_per_ms


def beyond_budget(problem: Problem, flows: Floats) -> float:
    """Returns the penalty for exceeding the budget, in ms of waiting per second; 0 within it."""
    most = budget_ms(problem)
    return 0.0 if most is None else BUDGET_FACTOR * max(egress_ms(problem, flows) - most, 0.0)


def beyond(problem: Problem, flows: Floats, load: Floats) -> float:
    """Returns the penalties for exceeding ceiling and budget, in ms of waiting per second.

    `flows` [E, C, C] and `load` [K, C] are in rps. The result is 0 within both limits.
    """
    ceiling, layout = problem.constraints.utilisation_ceiling, problem.layout
    if ceiling is None:
        return beyond_budget(problem, flows)
    over = np.maximum(utilisation(layout, load) - ceiling, 0.0)
    return beyond_budget(problem, flows) + float((0.5 * CEILING_MS * layout.capacity * over**2).sum())
