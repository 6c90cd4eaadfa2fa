"""What a solve of an application ends with. Pure."""

from dataclasses import dataclass

from spillway_optimizer.problem.objective import Evaluation
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.solution import Solution
from spillway_optimizer.rulesets.integer_weights import Loss


@dataclass(frozen=True)
class Solved:
    """A problem with its solution and the costs around it."""

    problem: Problem
    solution: Solution
    duration_ms: float
    least_bad: Evaluation | None = None  # evaluation of the best rules, before rounding
    loss: Loss | None = None
    # Evaluation of the routing in force at the same demand. None: it cannot be priced.
    now: Evaluation | None = None

    @property
    def quality(self) -> str:
        """The solution's gap and what extraction loses, as far as it was computed, for the log."""
        gap = f"gap {self.solution.relative_gap}"
        if self.loss is None:
            return gap
        return f"{gap}, lost {self.loss.merging:.2e} by merging and {self.loss.rounding:.2e} by rounding"


class Failed(str):
    """Why an application has no solution.

    `internal`: whether the cause is a mistake of ours. `out_of_memory`: whether the process that
    solved had too little memory.
    """

    internal = False
    out_of_memory = False

    @classmethod
    def internally(cls, text: str) -> "Failed":
        """Returns a failure whose cause is a mistake of ours."""
        failed = cls(f"internal error: {text}")
        failed.internal = True
        return failed
