"""The whole formulation in one linear programme, for an open solver.

Every station's curve has so many tangents that the answer is within the stated gap. It uses neither
the structure that solvers/dual.py uses nor refinement.
"""

import datetime
import time
from dataclasses import dataclass

import numpy as np
from ortools.math_opt.python import mathopt
from spillway_optimizer.programmes import outer
from spillway_optimizer.solvers.convex import Convex

# Found by doubling until the largest instance is certified within 0.1 %.
TANGENTS = 96


@dataclass(frozen=True)
class Monolithic:
    """Times and gap of one solve."""

    build_s: float
    solve_s: float
    gap: float  # relative gap of the flows, priced by the true curves, to the programme's own bound

    @property
    def seconds(self) -> float:
        return self.build_s + self.solve_s


def solve(convex: Convex, solver: mathopt.SolverType, limit_s: float = 300.0) -> Monolithic:
    """Builds and solves the programme. `gap` is inf if there was no answer within the limit."""
    began = time.perf_counter()
    cuts = (*(1.0 - np.geomspace(1.0, 0.02, TANGENTS)), 1.1, 1.5)
    programme = outer.Programme(convex, cuts)
    built = time.perf_counter()
    limit = mathopt.SolveParameters(time_limit=datetime.timedelta(seconds=limit_s))
    result = mathopt.solve(programme.model, solver, params=limit)
    solved = time.perf_counter()
    if result.termination.reason != mathopt.TerminationReason.OPTIMAL:
        return Monolithic(built - began, solved - built, float("inf"))
    flows, load = programme.read(result.variable_values())
    value = convex.value(flows, load)
    return Monolithic(built - began, solved - built, (value - result.objective_value()) / value)
