"""Rounds the shares of a solution to integer weights, and says what that costs. Pure."""

from dataclasses import dataclass

from spillway_optimizer.policies.projection import Projected
from spillway_optimizer.problem.objective import evaluate_shares
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.rules import Rules, rounded, to_shares
from spillway_optimizer.problem.solution import Solution


@dataclass(frozen=True)
class Loss:
    """What extraction costs, relative to the objective of the solution. Negative: a gain."""

    # Loss from one split for all caller classes that share an outbound route, within all limits.
    merging: float
    rounding: float  # loss from integer weights
    limits: float = 0.0  # loss from limits on destinations; the solution's objective contains it

    @property
    def total(self) -> float:
        """What is lost after the solution."""
        return self.merging + self.rounding


def integer_rules(problem: Problem, best: Projected) -> Rules:
    """Rounds shares to integer rules.

    Weights are rounded to the nearest integer. If that would exceed the egress that the solution
    may cost, leftover parts go to the destinations with the cheapest egress instead.
    """
    rules, most = rounded(problem, best.shares), best.most_egress
    if most is None or evaluate_shares(problem, to_shares(problem, rules)).egress_usd_per_hour <= most:
        return rules
    return rounded(problem, best.shares, thrifty=True)


def loss(problem: Problem, solution: Solution, best: Projected, rules: Rules) -> Loss:
    """Returns the loss of `rules`, which were made from `best`, the projection of `solution`."""
    ideal = solution.evaluation.usd_per_hour
    if ideal <= 0:
        return Loss(0.0, 0.0)
    merged = best.evaluation.usd_per_hour
    rounded_off = evaluate_shares(problem, to_shares(problem, rules)).usd_per_hour
    return Loss((merged - ideal) / ideal, (rounded_off - merged) / ideal, solution.limits_loss)
