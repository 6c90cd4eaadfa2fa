"""A solver whose routing meets tail targets as far as they are worth it.

What p99s exceed their targets by is part of the objective, but not of the form that solvers
minimise. Here each target has a multiplier, what one ms of the p99 counts per request: from 0 to
its price. With the prices that follow from it for each class (prices.py), the problem has the
solvers' form again. The multiplier that fits is the price times the share of requests that enter
where the target is exceeded. It is found by bisection, for all targets at once. The best of all
routings that were tried is the answer, by the objective with its penalties. The first one is that
without tail targets, and its bound holds for all.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from spillway_optimizer import OptimizerError
from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.layout import Layout
from spillway_optimizer.problem.penalties import beyond, beyond_budget
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.solution import Solution, of_solver
from spillway_optimizer.problem.tail_targets import Target
from spillway_optimizer.solvers.convex import Stop
from spillway_optimizer.solvers.descent import penalised
from spillway_optimizer.solvers.hint import Hint, names_of
from spillway_optimizer.solvers.solver import Around
from spillway_optimizer.tails.prices import tail_prices

_LOG = logging.getLogger(__name__)
# Of all the time, for the solve without tail targets: where a search is likely, and where not.
_FREE_PART, _CALM_PART = 0.5, 0.9
_SEARCH_PART = 0.9  # of all the time, until which multipliers are tried; lines have the rest
_GAP = 1e-3  # relative gap of solves with prices: the lines between them are searched
_ROUNDS = 8  # solves with prices, at most
_NEAR = 0.02  # relative to the price: a multiplier that is known so closely is known
_LEAST_GAIN = 1e-5  # relative gain of a routing, below which it is arithmetic
_MIXTURES = 16  # steps of a grid on a line; a second one is around its best
_FARTHEST = 8.0  # times the way from one to the other
_NOISE = 1e-9  # of a row's calls, and of an edge's
_TAIL = 5.0  # p99 of an exponential time in means, rounded up
_PASSES = 3  # lines through each other routing, at most


@dataclass
class Tailed(Around):
    """A solver with a problem's tail targets. Without any, it is the solver alone.

    It remembers whether the last routing without targets exceeded none. The next solve then leaves
    little time for a search.
    """

    _calm: bool = False

    @property
    def hint(self) -> Hint | None:
        return self.solver.hint

    @hint.setter
    def hint(self, hint: Hint | None) -> None:
        self.solver.hint = hint

    def route(self, problem: Problem) -> Solution:
        """Returns the best routing found within `stop.seconds`."""
        if not problem.layout.targets:
            return self.solver.route(problem)
        stop, hint = self.stop, self.hint
        began = stop.clock()

        def left(part: float) -> float:
            return began + part * stop.seconds - stop.clock()

        plain = replace(problem, tail_targets={})
        try:
            part = _CALM_PART if self._calm else _FREE_PART
            free = self._solve(plain, replace(stop, seconds=stop.seconds * part))
            kept = self.hint
            tried = [_over(problem, free.shares, free)]
            self._calm = all(tail.exceeded_ms == 0 for tail in tried[0].evaluation.tails)
            cost = _Costs(problem, _above(problem, tried[0].flows))
            tried += self._search(cost, tried[0], lambda: left(_SEARCH_PART))
        finally:
            self.stop = stop
        shares = hint.placed(problem.layout) if hint else None
        known = [] if shares is None else [_over(problem, shares, free)]
        best = own = min(tried, key=cost)
        if len(tried) > 1:
            best = own = _mixed(cost, own, tried, lambda: left(1.0) < 0)
        for hinted in known:
            if cost(own) - cost(hinted) > _LEAST_GAIN * abs(cost(own)):
                best = _mixed(cost, hinted, [*tried, own], lambda: left(1.0) < 0)
        self.hint = kept if best is own else Hint(names_of(problem.layout), best.shares)
        return _reported(problem, plain, free, best, tried)

    def _search(self, cost: "_Costs", free: Solution, time_left: Callable[[], float]) -> Iterator[Solution]:
        """Yields a routing for each of a few multipliers, as long as there is time.

        With multipliers that are settled, it goes on while prices at the last routing gain.
        """
        problem = cost.problem
        last, multipliers = free, {target: _Range() for target in problem.layout.targets}
        least, gains = cost(free), False
        for tries in range(_ROUNDS):
            for target, multiplier in multipliers.items():
                multiplier.follow(target.price, _exceeding(last, target))
            left = time_left()
            settled = all(multiplier.settled for multiplier in multipliers.values())
            if (settled and not gains) or left <= 0:
                return
            now = {target: multiplier.at for target, multiplier in multipliers.items() if multiplier.at > 0}
            stop = replace(self.stop, seconds=left / (_ROUNDS - tries))
            try:
                last = _over(problem, self._priced(problem, last, now, stop).shares, free)
            except OptimizerError:
                return  # what was tried so far is an answer
            except Exception:  # a mistake here must not cost the routing that is known
                _LOG.exception("the search for tail targets failed")
                return
            gains = least - cost(last) > _LEAST_GAIN * abs(least)
            least = min(least, cost(last))
            yield last

    def _priced(
        self, problem: Problem, last: Solution, multipliers: Mapping[Target, float], stop: Stop
    ) -> Solution:
        """Solves the problem with the prices that follow from multipliers at the last routing."""
        prices = tail_prices(problem.layout, last.flows, last.evaluation.load, multipliers)
        priced = replace(problem, tail_targets={}, tail_prices=prices)
        return self._solve(priced, replace(stop, relative_gap=max(stop.relative_gap, _GAP)))

    def _solve(self, problem: Problem, stop: Stop) -> Solution:
        """Solves a problem without tail targets. The first solve also starts from the hint."""
        self.stop = stop
        return self.solver.route(problem)


@dataclass(frozen=True)
class _Costs:
    """The costs by which routings are compared, in ms of waiting per second.

    They are the objective with its penalties. Load above the ceiling counts more where it is more
    than in the routing without targets: by as much as a target's price may make a queue dearer.
    Otherwise a routing would exceed the ceiling to keep a target. `above`: the penalty of that
    routing for load above the ceiling.
    """

    problem: Problem
    above: float

    def __call__(self, solution: Solution) -> float:
        return self.of(solution.flows)

    def of(self, flows: Floats) -> float:
        """Returns the cost of flows [E, C, C]."""
        dearest = max(target.price for target in self.problem.layout.targets)
        more = max(_above(self.problem, flows) - self.above, 0.0)
        return penalised(self.problem, flows) + _TAIL * dearest * more


def _above(problem: Problem, flows: Floats) -> float:
    """Returns the penalty for load above the ceiling, in ms of waiting per second."""
    load = problem.layout.demand.copy()
    np.add.at(load, problem.layout.edge_target, flows.sum(axis=1))
    return max(beyond(problem, flows, load) - beyond_budget(problem, flows), 0.0)


@dataclass
class _Range:
    """Where the multiplier of a target may be, and the one that is tried now.

    It is settled at 0 until its target is exceeded. The first one tried is the price: if the target
    is exceeded with it, no routing keeps it.
    """

    at: float = 0.0
    settled: bool = True
    _low: float = 0.0
    _high: float = 0.0

    def follow(self, price: float, exceeding: float) -> None:
        """Moves on after a routing. `exceeding`: the share of requests above the target in it."""
        wanted = price * exceeding
        if wanted > self.at and self._high <= self.at:
            self._low, self.at, self._high, self.settled = self.at, price, price, False
            return
        if wanted > self.at:
            self._low = self.at
        elif wanted < self.at:
            self._high = self.at
        else:
            self.settled = True  # it fits
            return
        self.settled = self._high - self._low <= _NEAR * price
        self.at = self.at if self.settled else 0.5 * (self._low + self._high)


def _exceeding(solution: Solution, target: Target) -> float:
    """Returns the share of a target's requests that enter where it is exceeded."""
    tails = [tail for tail in solution.evaluation.tails if tail.k == target.k]
    rps = sum(tail.rps for tail in tails)
    return sum(tail.rps for tail in tails if tail.exceeded_ms > 0) / rps if rps > 0 else 0.0


def _over(problem: Problem, shares: Floats, free: Solution) -> Solution:
    """Returns the solution of shares [E, C, C], with the bound of the routing without targets."""
    return of_solver(problem, shares, free.bound_usd_per_hour)


def _mixed(cost: _Costs, best: Solution, others: Sequence[Solution], late: Callable[[], bool]) -> Solution:
    """Returns a routing in line with `best` and the others that costs less, if there is one.

    Mixtures of feasible flows are feasible. Where a routing jumps as a multiplier grows, a mixture
    of both sides of the jump meets the target.
    """
    flows, least = best.flows, cost(best)
    for _ in range(_PASSES):
        before = least
        for other in sorted(others, key=cost):
            if not late():
                flows, least = _between(cost, flows, least, other.flows)
        if before - least <= _LEAST_GAIN * abs(before):
            break
    kept = np.maximum(flows, 0.0)
    calls = kept.sum(axis=2, keepdims=True)
    # A line may end where a row has no calls. What arithmetic leaves there is not a split.
    there = calls > _NOISE * calls.sum(axis=1, keepdims=True)
    shares = np.where(there, kept / np.where(there, calls, 1.0), best.shares)
    # Where a budget is tight, the arithmetic of flows and shares may cost more than the gain.
    return min(best, of_solver(cost.problem, shares, best.bound_usd_per_hour), key=cost)


def _between(cost: _Costs, flows: Floats, known: float, other: Floats) -> tuple[Floats, float]:
    """Returns the best routing on the line through `flows` and `other` [E, C, C], and its cost.

    The line is searched on a grid, on both sides as far as it is feasible. `known`: the cost of
    `flows`.
    """
    move, layout = other - flows, cost.problem.layout
    least, most = -_reach(layout, flows, -move), _reach(layout, flows, move)
    middle, step = (least + most) / 2, (most - least) / _MIXTURES
    for width in (step, step / _MIXTURES):
        near = middle + width * np.arange(-_MIXTURES // 2, _MIXTURES // 2 + 1)
        near = near[(near >= least) & (near <= most)]
        costs = [cost.of(flows + part * move) for part in near]
        middle = float(near[int(np.argmin(costs))])
    return (flows + middle * move, min(costs)) if min(costs) < known else (flows, known)


def _reach(layout: Layout, flows: Floats, move: Floats) -> float:
    """Returns how often `move` can be added to `flows` before one is below its floor."""
    above, gained = (f - layout.floor * f.sum(axis=2, keepdims=True) for f in (flows, move))
    sinks = gained < -_NOISE * flows.sum(axis=2, keepdims=True)
    left = np.where(sinks, above / np.where(sinks, -gained, 1.0), np.inf)
    return min(max(float(left.min(initial=np.inf)), 0.0), _FARTHEST)


def _reported(
    problem: Problem, plain: Problem, free: Solution, best: Solution, tried: Sequence[Solution]
) -> Solution:
    """Returns the answer, with notes on what tail targets changed."""
    own = of_solver(plain, free.shares, free.bound_usd_per_hour).notes
    notes = [f"without tail targets: {note}" for note in free.notes if note not in own]
    paid, before = (s.evaluation.usd_per_hour - s.evaluation.tail_usd_per_hour for s in (best, free))
    if len(tried) > 1:
        notes.append(
            f"tail targets cost {_loss(paid, before):.2%} besides their penalties; {len(tried)} routings were tried"
        )
    layout = problem.layout
    notes += [
        f"each routing tried exceeds the p99 target of {layout.classes[target.k]} somewhere"
        for target in layout.targets
        if len(tried) > 1 and all(_exceeding(solution, target) > 0 for solution in (best, *tried))
    ]
    return replace(best, notes=(*notes, *best.notes), free_gap=free.relative_gap)


def _loss(paid: float, before: float) -> float:
    return max(paid - before, 0.0) / before if before > 0 else 0.0
