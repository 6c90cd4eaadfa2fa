"""Chooses the destinations of routes by mixed-integer programmes of OR-Tools.

The programme is the linear one of the reference solver (outer.py), with a binary for each
destination of a route that breaks a limit: calls may go there only where it is 1. It is refined by
tangents, like the linear one. Requests are conserved down the whole call tree, so a choice counts
with everything that it moves.
"""

from collections.abc import Sequence

import numpy as np
from ortools.math_opt.python import mathopt

from spillway_optimizer.discrete.limits import Row
from spillway_optimizer.problem.arrays import Bools, Floats
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.programmes.outer import Programme, in_unit
from spillway_optimizer.solvers.convex import Stop
from spillway_optimizer.solvers.descent import relaxation

_ROUNDS = 6  # most programmes
_GAP = 1e-3  # relative, at which a programme ends


def choose(problem: Problem, rows: Sequence[Row], first: Sequence[Bools], stop: Stop) -> list[Bools] | None:
    """Returns which destinations [C] each row uses, within the row's limits.

    `problem` has only destinations that may be chosen. `first`: a choice to start from. Returns
    None if there is no answer within `stop.seconds`, or if the arithmetic of the solver fails. The
    time begins when the programme has been built.
    """
    programme, chosen = _Choice(problem, rows), None
    until = stop.clock() + stop.seconds
    for _ in range(_ROUNDS):
        found = programme.solve(chosen or first, until - stop.clock())
        if found is None:
            break
        same, chosen = chosen is not None and np.array_equal(chosen, found), found
        if same or not programme.refine() or stop.clock() > until:
            break
    return chosen


class _Choice(Programme):
    """The relaxation's programme, with a binary per destination of each row."""

    def __init__(self, problem: Problem, rows: Sequence[Row]):
        super().__init__(relaxation(in_unit(problem)[0]))
        volume = self._layout.volume.sum(axis=1)
        self._used = [self._limit(row, volume) for row in rows]

    def _limit(self, row: Row, volume: Floats) -> list[mathopt.Variable]:
        model, layout, i = self.model, self._layout, int(row.cluster)
        used = [model.add_binary_variable() for _ in layout.clusters]
        model.add_linear_constraint(mathopt.fast_sum(used) <= row.most)
        # Held shares leave something, also in a row without calls.
        rest = (chosen for chosen, held in zip(used, row.held, strict=True) if not held)
        model.add_linear_constraint(mathopt.fast_sum(rest) >= 1.0)
        for j, chosen in enumerate(used):
            chosen.lower_bound = float(row.kept[j])
            if not layout.usable[row.edges[0], i, j]:
                chosen.upper_bound = 0.0
                continue
            for e in row.edges:
                flow = self._flow[e, i, j]
                source, ratio = int(layout.edge_source[e]), float(layout.ratio[e])
                most, least = ratio * float(volume[source]), float(row.least[j])
                model.add_linear_constraint(flow <= most * chosen)
                calls = ratio * self._load[source][i]
                model.add_linear_constraint(flow >= least * calls - least * most * (1.0 - chosen))
        return used

    def solve(self, first: Sequence[Bools], seconds: float) -> list[Bools] | None:
        """Returns the destinations that are used; None: there was no time, or it failed."""
        start = {
            variable: float(value)
            for row, used in zip(first, self._used, strict=True)
            for value, variable in zip(row, used, strict=True)
        }
        hints = mathopt.ModelSolveParameters(solution_hints=[mathopt.SolutionHint(variable_values=start)])
        result = self.solve_integer(seconds, _GAP, hints)
        if result is None:
            return None
        values = result.variable_values()
        _, self._found = self.read(values)
        return [np.array([values[chosen] > 0.5 for chosen in used]) for used in self._used]

    def refine(self) -> bool:
        """Adds tangents at the last answer's loads. Returns False if none is missing."""
        return self.cut(self._found)
