"""The reference solver: linear programmes of OR-Tools, refined down to the stated gap."""

from dataclasses import dataclass, field, replace

from ortools.math_opt.python import mathopt

from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.solution import Solution, from_flows
from spillway_optimizer.solvers import outer
from spillway_optimizer.solvers.convex import Convex, Minimum, Stop
from spillway_optimizer.solvers.descent import optimum


@dataclass(frozen=True)
class Exact:
    """Minimises each convex problem of the descent by linear programmes."""

    stop: Stop = field(default_factory=Stop)
    solver: mathopt.SolverType = mathopt.SolverType.GLOP

    def route(self, problem: Problem) -> Solution:
        """Returns a routing. Raises SolveError when a linear programme has no optimum."""
        began = self.stop.clock()

        def left() -> float:
            return self.stop.seconds - (self.stop.clock() - began)

        def minimise(convex: Convex) -> Minimum:
            return outer.minimise(convex, replace(self.stop, seconds=max(left(), 0.0)), self.solver)

        found = optimum(problem, minimise, self.stop.relative_gap, lambda: left() < 0)
        return from_flows(problem, found.flows, found.bound_ms * problem.usd_per_ms * 3600.0, found.notes)
