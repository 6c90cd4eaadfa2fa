"""Random problems with limits on destinations."""

from dataclasses import dataclass, replace

from hypothesis import Phase, settings
from hypothesis import strategies as st
from instances import random_problem
from spillway_optimizer import OptimizerError
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.rules import TOTAL, largest_remainder
from spillway_optimizer.problem.solution import Solution
from spillway_optimizer.solvers.convex import Stop
from spillway_optimizer.solvers.fast import Fast

seeds = st.integers(0, 2**32 - 1)
many = settings(max_examples=30, derandomize=True, database=None, deadline=None, phases=[Phase.generate])
LIMITS = st.fixed_dictionaries(
    {
        "min_share": st.sampled_from([0.0, 0.01, 0.05, 0.2]),
        "max_destinations": st.sampled_from([None, 1, 2, 3]),
    }
)


def limited_instance(seed: int, limits: dict, share_of_whole: float = 0.0, **kind) -> Problem | None:
    """Returns a random problem with limits. None if it has no demand or cannot be served.

    `kind`: arguments of random_problem.
    """
    try:
        problem = random_problem(seed, **kind)
    except OptimizerError:
        return None
    if not problem.layout.demand.any():
        return None
    whole = frozenset(list(problem.classes)[: int(share_of_whole * len(problem.classes))])
    c = problem.constraints
    held = {
        route: {to: int(share * TOTAL) / TOTAL for to, share in row.items()} for route, row in c.held.items()
    }
    in_force = {
        route: {to: w / TOTAL for to, w in zip(row, largest_remainder(list(row.values())), strict=True)}
        for route, row in c.in_force.items()
    }
    max_shift = round(c.max_shift * TOTAL) / TOTAL
    if max_shift < 1 or c.min_local_share > 0:
        held = {}  # random holds contradict these
    c = replace(c, **limits, whole=whole, held=held, in_force=in_force, max_shift=max_shift)
    return replace(problem, constraints=c)


@dataclass
class Known:
    """A solver that knows the first answer, and solves every other problem."""

    first: Solution | None
    stop: Stop

    def route(self, problem: Problem) -> Solution:
        first, self.first = self.first, None
        return first or Fast(self.stop).route(problem)
