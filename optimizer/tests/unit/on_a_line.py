"""Three clusters on a line, and problems with constraints."""

from dataclasses import replace

from spillway_optimizer.problem.constraints import Constraints
from spillway_optimizer.problem.problem import Problem

THREE = ("a", "b", "c")


def on_a_line(**at: float) -> dict[tuple[str, str], float]:
    """Returns the distances between clusters at these positions."""
    return {(i, j): abs(x - y) for i, x in at.items() for j, y in at.items()}


def constrained(problem: Problem, **constraints) -> Problem:
    return replace(problem, constraints=Constraints(**constraints))
