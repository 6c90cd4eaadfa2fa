"""What exceeding the utilisation ceiling and the egress budget counts: solvers keep to them by paying for it.

Both are exceeded only where every routing must, and then as little as can be.
"""

import numpy as np

from spillway_optimizer.problem.objective import utilisation
from spillway_optimizer.problem.problem import Problem

# Milliseconds per request for each part of the capacity above the ceiling: a tenth of a percent above it is
# dearer than any detour, and demand beyond every ceiling is spread as evenly as it can be.
CEILING_MS = 1e6
# What a dollar of egress beyond the budget counts, in dollars.
BUDGET_FACTOR = 1e6


def budget_ms(problem: Problem) -> float | None:
    """The egress budget as milliseconds of waiting per second at $/ms; None: no budget."""
    told = problem.constraints.egress_usd_per_hour
    return None if told is None else told / 3600.0 / problem.usd_per_ms


def egress_ms(problem: Problem, flows: np.ndarray) -> float:
    """What the egress of flows [E, C, C] is worth, ms of waiting per second."""
    return float((flows * problem.layout.egress).sum()) / problem.usd_per_ms


def beyond_budget(problem: Problem, flows: np.ndarray) -> float:
    """ms per second; 0 within the budget."""
    most = budget_ms(problem)
    return 0.0 if most is None else BUDGET_FACTOR * max(egress_ms(problem, flows) - most, 0.0)


def beyond(problem: Problem, flows: np.ndarray, load: np.ndarray) -> float:
    """Both, ms of waiting per second; 0 within both. flows [E, C, C] and load [K, C] in rps."""
    ceiling, layout = problem.constraints.utilisation_ceiling, problem.layout
    if ceiling is None:
        return beyond_budget(problem, flows)
    over = np.maximum(utilisation(layout, load) - ceiling, 0.0)
    return beyond_budget(problem, flows) + float((0.5 * CEILING_MS * layout.capacity * over**2).sum())
