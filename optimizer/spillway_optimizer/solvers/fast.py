"""The policy `spillway`: the objective's minimum with a certified gap, by prices of stations."""

from dataclasses import dataclass, field, replace

from spillway_optimizer.problem.arrays import Index
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.solution import Solution, from_flows
from spillway_optimizer.solvers import budget
from spillway_optimizer.solvers.convex import Convex, Minimum, Stop, seconds_for
from spillway_optimizer.solvers.descent import optimum
from spillway_optimizer.solvers.newton import Start


@dataclass
class Fast:
    """The fast solver.

    It keeps the prices of its last solve. The next solve of the same call graph starts from them.
    """

    stop: Stop = field(default_factory=Stop)
    _known: tuple[tuple[str | Index, ...], ...] | None = None
    _start: Start | None = None

    def route(self, problem: Problem) -> Solution:
        """Minimises the objective within `stop.seconds`.

        Starts from the last prices if clusters, classes, services and edges are the same as before.
        """
        layout, began = problem.layout, self.stop.clock()
        names = (
            layout.clusters,
            layout.classes,
            layout.services,
            tuple(layout.edge_source),
            tuple(layout.edge_target),
        )
        if names != self._known:
            self._known, self._start = names, None

        def left() -> float:
            return self.stop.seconds - (self.stop.clock() - began)

        first = self._start

        def minimise(convex: Convex) -> Minimum:
            # Only the first problem of a solve starts from these prices. If the surrogates did too,
            # they would all end in the same basin.
            nonlocal first
            stop = replace(self.stop, seconds=seconds_for(convex, left()))
            found = budget.minimise(convex, stop, first)
            if first is self._start:
                self._start = found.start
            first = None
            return found.minimum

        found = optimum(problem, minimise, self.stop.relative_gap, lambda: left() < 0)
        return from_flows(problem, found.flows, found.bound_ms * problem.usd_per_ms * 3600.0, found.notes)
