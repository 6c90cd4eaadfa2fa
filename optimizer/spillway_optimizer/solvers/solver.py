"""What solvers have in common."""

from dataclasses import dataclass
from typing import Protocol

from spillway_optimizer.problem.solution import Policy
from spillway_optimizer.solvers.convex import Stop
from spillway_optimizer.solvers.hint import Hint


class Solver(Policy, Protocol):
    """A policy that minimises the objective until `stop`.

    `hint`: a known routing, another start. The result is never worse. A solver may drop a hint that
    gains nothing.
    """

    stop: Stop
    hint: Hint | None


@dataclass
class Around:
    """A solver around another one, whose time it shares."""

    solver: Solver

    @property
    def stop(self) -> Stop:
        return self.solver.stop

    @stop.setter
    def stop(self, stop: Stop) -> None:
        self.solver.stop = stop
