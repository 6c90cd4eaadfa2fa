"""The policy `spillway`: the objective's minimum with a certified gap, by prices of stations."""

from dataclasses import dataclass, field, replace

from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.solution import Solution, from_flows
from spillway_optimizer.solvers import budget
from spillway_optimizer.solvers.convex import Convex, Minimum, Stop, seconds_for
from spillway_optimizer.solvers.descent import optimum
from spillway_optimizer.solvers.hint import Hint, Names, names_of
from spillway_optimizer.solvers.newton import Start
from spillway_optimizer.solvers.trees import Forest


@dataclass
class Fast:
    """The fast solver.

    It keeps the prices of its last solve. The next solve of the same call graph starts from them.
    Solves with tail prices start from them too, and leave them: the next problem has other ones.
    `hint`: a better routing that somebody else found. Each solve also starts from it, until the
    other starts lead as far.
    """

    stop: Stop = field(default_factory=Stop)
    hint: Hint | None = None
    _known: Names | None = None
    _start: Start | None = None
    _forest: Forest = field(default_factory=Forest)

    def route(self, problem: Problem) -> Solution:
        """Minimises the objective within `stop.seconds`.

        Starts from the last prices if clusters, classes, services and edges are the same as before.
        """
        layout, began = problem.layout, self.stop.clock()
        names = names_of(layout)
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
            found = budget.minimise(convex, stop, first, self._forest)
            if first is self._start and not problem.tail_prices:
                self._start = found.start
            first = None
            return found.minimum

        known = self.hint.flows(layout) if self.hint else None
        found = optimum(problem, minimise, self.stop.relative_gap, left, known)
        solution = from_flows(problem, found.flows, found.bound_ms * problem.usd_per_ms * 3600.0, found.notes)
        # From here on the hint follows the demand. One that gains nothing is dropped.
        self.hint = Hint(names, solution.shares) if found.gained else None
        return solution
