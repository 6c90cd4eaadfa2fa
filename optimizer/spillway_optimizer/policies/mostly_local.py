"""`mostly-local`: nearly everything goes to the nearest cluster, and a little to every other one.

Source: the start that SLATE gives PAPA without an optimizer (section 5.3.3): "mostly local routing,
and small percentages of traffic directed to every other remote cluster". The paper does not say how
small. Load and price play no part. Of the side constraints it keeps denials, pins and draining
(where calls may go at all) and ignores all others.
"""

from dataclasses import dataclass

from spillway_optimizer.policies.nearest import nearest_shares
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.solution import Solution, from_shares

REMOTE_SHARE = 0.02  # of each cluster but the nearest


@dataclass(frozen=True)
class MostlyLocal:
    def route(self, problem: Problem) -> Solution:
        nearest, usable = nearest_shares(problem), problem.layout.usable
        remote = REMOTE_SHARE * (usable & (nearest == 0))
        return from_shares(problem, remote + nearest * (1 - remote.sum(axis=2, keepdims=True)))
