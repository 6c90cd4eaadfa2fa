"""`local`: every request stays in its cluster; where the service is not there, the nearest has it."""

from dataclasses import dataclass

from spillway_optimizer.policies.nearest import nearest_shares
from spillway_optimizer.problem import Problem
from spillway_optimizer.solution import Solution, from_shares


@dataclass(frozen=True)
class Local:
    def route(self, problem: Problem) -> Solution:
        return from_shares(problem, nearest_shares(problem))
