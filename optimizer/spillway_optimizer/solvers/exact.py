"""The reference solver: programmes of OR-Tools, refined down to the stated gap.

Linear programmes minimise the convex problems. Where the objective is not convex, mixed-integer
programmes then prove how far the routing is from the global optimum, and find better ones.
"""

from dataclasses import dataclass, field, replace

from ortools.math_opt.python import mathopt

from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.solution import Solution, from_flows
from spillway_optimizer.solvers import outer, piecewise
from spillway_optimizer.solvers.convex import Convex, Minimum, Stop, seconds_for
from spillway_optimizer.solvers.descent import descend, not_convex, optimum, relaxation


@dataclass(frozen=True)
class Exact:
    """Linear programmes for convex problems, mixed-integer programmes for the rest of the gap."""

    stop: Stop = field(default_factory=Stop)
    solver: mathopt.SolverType = mathopt.SolverType.GLOP

    def route(self, problem: Problem) -> Solution:
        """Returns a routing after `stop.seconds`, or a little more. One programme is always solved.

        Raises SolveError when a linear programme has no optimum.
        """
        began = self.stop.clock()

        def left() -> float:
            return self.stop.seconds - (self.stop.clock() - began)

        def late() -> bool:
            return left() < 0

        def minimise(convex: Convex) -> Minimum:
            stop = replace(self.stop, seconds=seconds_for(convex, left()))
            return outer.minimise(convex, stop, self.solver)

        def improve(flows: Floats) -> Floats:
            return descend(problem, minimise, flows, late)[0]

        found = optimum(problem, minimise, self.stop.relative_gap, late)
        flows, bound, notes = found.flows, found.bound_ms, found.notes
        convex = relaxation(problem)
        if not convex.envelope.even:
            rest = replace(self.stop, seconds=max(left(), 0.0))
            flows, bound = piecewise.certify(convex, flows, bound, improve, rest)
            notes = not_convex(problem, flows, bound)
        return from_flows(problem, flows, bound * problem.usd_per_ms * 3600.0, notes)
