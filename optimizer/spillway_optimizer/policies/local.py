"""`local`: every request stays in its cluster, or goes to the nearest that has the service.

Source: the default of every mesh without failover rules, and SLATE's "100 % local" (section 5.1).
Only distance counts. Of the side constraints it keeps denials, pins and draining (where calls may
go at all), and by its nature a minimum local share. It ignores all others.
"""

from dataclasses import dataclass

from spillway_optimizer.policies.nearest import nearest_shares
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.solution import Solution, from_shares


@dataclass(frozen=True)
class Local:
    def route(self, problem: Problem) -> Solution:
        return from_shares(problem, nearest_shares(problem))
