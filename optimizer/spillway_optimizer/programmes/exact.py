"""The policy `exact` for small meshes, and the reference: programmes of OR-Tools.

Linear programmes, refined down to the stated gap, minimise the convex problems. Where the objective
is not convex, mixed-integer programmes then prove how far the routing is from the global optimum,
and find better ones.
"""

from dataclasses import dataclass, field, replace

from ortools.math_opt.python import mathopt

from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.solution import Solution, from_flows
from spillway_optimizer.programmes import outer, piecewise
from spillway_optimizer.solvers.convex import Convex, Minimum, Stop, seconds_for
from spillway_optimizer.solvers.descent import descend, not_convex, optimum, relaxation
from spillway_optimizer.solvers.hint import Hint


@dataclass
class Exact:
    """Linear programmes for convex problems, mixed-integer programmes for the rest of the gap.

    `hint`: a known routing. The result is never worse. It is dropped if it gains nothing.
    """

    stop: Stop = field(default_factory=Stop)
    solver: mathopt.SolverType = mathopt.SolverType.GLOP
    hint: Hint | None = None

    def route(self, problem: Problem) -> Solution:
        """Returns a routing after `stop.seconds`, or after the first linear programmes.

        Up to three are always solved, whatever time they take: the relaxation, a looser one and a
        surrogate.

        Raises SolveError when a linear programme has no optimum.
        """
        scaled, unit = outer.in_unit(problem)
        flows, bound, notes = self._minimised(scaled)
        return from_flows(problem, flows * unit, bound * unit * problem.usd_per_ms * 3600.0, notes)

    def _minimised(self, problem: Problem) -> tuple[Floats, float, tuple[str, ...]]:
        """Returns flows [E, C, C], a bound in ms of waiting per second, and notes."""
        began = self.stop.clock()

        def left() -> float:
            return self.stop.seconds - (self.stop.clock() - began)

        def late() -> bool:
            return left() < 0

        def minimise(convex: Convex) -> Minimum:
            stop = replace(self.stop, seconds=seconds_for(convex, left()))
            return outer.minimise(convex, stop, self.solver)

        def improve(flows: Floats) -> Floats:
            return descend(problem, minimise, flows, late).flows

        known = self.hint.flows(problem.layout) if self.hint else None
        found = optimum(problem, minimise, self.stop.relative_gap, left, known)
        if not found.gained:
            self.hint = None
        flows, bound, notes = found.flows, found.bound_ms, found.notes
        convex = relaxation(problem)
        if not convex.envelope.even:
            rest = replace(self.stop, seconds=max(left(), 0.0))
            flows, bound, wrong = piecewise.certify(convex, flows, bound, improve, rest)
            notes = (*not_convex(problem, flows, bound), *wrong)
        return flows, bound, notes
