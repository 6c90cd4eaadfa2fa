"""`round-robin`: every cluster that can serve a call gets the same share of it.

Source: what most surveyed operators of multi-cluster meshes use (SLATE appendix B: round robin
among "simple load balancing"), with clusters taking turns instead of replicas. Load, distance,
price and class play no part. Of the side constraints it keeps denials, pins and draining (where
calls may go at all) and ignores all others.
"""

from dataclasses import dataclass

from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.solution import Solution, from_shares


@dataclass(frozen=True)
class RoundRobin:
    def route(self, problem: Problem) -> Solution:
        usable = problem.layout.usable
        return from_shares(problem, usable / usable.sum(axis=2, keepdims=True).clip(min=1))
