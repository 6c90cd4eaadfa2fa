"""A solver whose routing keeps the limits on destinations.

Where the solver's routing breaks a limit, the largest shares of these routes stay. Where that costs
more than the solver's own gap, a mixed-integer programme chooses destinations (choice.py), and
everything is solved again within them.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np

from spillway_optimizer import OptimizerError
from spillway_optimizer.discrete.limits import Row, destinations, rows
from spillway_optimizer.discrete.steps import aimed, steady
from spillway_optimizer.problem.arrays import Bools, Floats
from spillway_optimizer.problem.constraints import Constraints, Route, Shares
from spillway_optimizer.problem.destinations import within
from spillway_optimizer.problem.objective import propagate
from spillway_optimizer.problem.penalties import relative
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.rules import merge
from spillway_optimizer.problem.solution import Solution, from_flows, of_solver
from spillway_optimizer.solvers.hint import Hint, names_of
from spillway_optimizer.solvers.solver import Around

_MOST_FLOWS = 10_000  # with more, no programme is tried: it would find nothing better in time
_BUILDING_S = 2e-4  # of CPU per flow, to build a programme
_LOG = logging.getLogger(__name__)
_MOST_BINARIES = 4000  # with more, only rows that break a limit are chosen anew
_SMALL = 0.01  # least share up to which the largest shares are as good as any (ADR 42)
_AIM_PART = 0.3  # of all the time, to choose where routes go that step
_NEAR_PART = 0.1  # of all the time, to price the destinations that have most of their calls now
_FREE_PART = 0.7  # of all the time, for the solve without limits, where more solves are likely
_PART = 0.5  # of the time left that the programme may take
_LEAST = 0.1  # of all the time, which it may take even if the solver left none
_LEAST_GAIN = 1e-5  # relative gain of a hint, below which it is arithmetic


@dataclass(frozen=True)
class _Kept:
    """A routing that keeps the limits, and the destinations that it uses."""

    solution: Solution
    destinations: Mapping[Route, Shares]
    hinted: bool = False  # whether it uses the hint's destinations


@dataclass
class Limited(Around):
    """A solver within a problem's limits on destinations.

    `hint`: a better routing that somebody else found. It is another start of the solver, and its
    destinations are another choice where limits must be kept. It follows the demand, and is dropped
    as soon as it gains nothing.
    """

    hint: Hint | None = None
    _aimed: Hint | None = None  # the routing that routes stepped towards last

    def route(self, problem: Problem) -> Solution:
        """Returns the solver's routing, or one that keeps the limits."""
        stop = self.solver.stop
        until = stop.clock() + stop.seconds
        latest = until - stop.seconds * (1.0 - _AIM_PART - _NEAR_PART)
        stepping = aimed(problem, self._aim, lambda: stop.clock() > latest)
        if stepping is problem:
            return self._limited(problem, stop.seconds, until)
        return self._limited(stepping, max(until - stop.clock(), 0.0), until)

    def _limited(self, problem: Problem, seconds: float, until: float) -> Solution:
        """Returns a routing that keeps the limits. `seconds`: the time until `until`."""
        stop, hint = self.solver.stop, self.hint
        part = _FREE_PART if _matter(problem.constraints) else 1.0
        free = self._solve(problem, seconds * part, hint)
        self.hint = self.solver.hint
        if not problem.constraints.discrete:
            return free
        merged = merge(problem, free.shares, free.flows)
        found = list(rows(problem, merged))
        broken, notes = sum(row.breaks for row in found), _not_yet(found)
        if not broken:
            free = replace(free, notes=(*free.notes, *notes))
            if problem.constraints.egress_usd_per_hour is None and not problem.constraints.destinations:
                return free
            # Rules that must cost less egress move within the destinations that are in use. So do
            # routes that step.
            return replace(free, destinations=destinations(problem, found, [row.used for row in found]))
        # What merging costs is not the limits'.
        base = _of(problem, merged, free)
        used = [_used(row) for row in found]
        known = [_Kept(_over(problem, merged, found, used, free), destinations(problem, found, used))]
        known += _hinted(problem, hint, free)
        if _loss(min(known, key=_cost), base) > stop.relative_gap:
            picked = self._picked(problem, found, used, until, notes)
            tries = [*((chosen, False) for chosen in picked), *((k.destinations, k.hinted) for k in known)]
            known += self._within(problem, tries, hint, until)
        kept = min(known, key=_cost)
        others = min(_cost(other) for other in known if not other.hinted)
        if self.hint is not None or others - _cost(kept) > _LEAST_GAIN * abs(others):
            self.hint = Hint(names_of(problem.layout), kept.solution.shares)
        lost = _loss(kept, base)
        notes.append(f"limits on destinations change {broken} routes, which costs {max(lost, 0.0):.2%}")
        own = _of(problem, free.shares, free).notes
        proof = [f"without limits on destinations: {note}" for note in free.notes if note not in own]
        return replace(
            _of(problem, kept.solution.shares, free, (*proof, *notes)),
            destinations=kept.destinations,
            limits_loss=lost,
            free_gap=free.unproven,
        )

    def _aim(self, aim: Problem) -> Solution:
        """Returns a routing of the problem without the maximum shift. The last one may stay."""
        stop = self.solver.stop
        self.solver.stop = replace(stop, seconds=stop.seconds * _AIM_PART)
        try:
            found = steady(aim, Limited(self.solver).route(aim), self._aimed)
        finally:
            self.solver.stop = stop
        self._aimed = Hint(names_of(aim.layout), found.shares)
        return found

    def _picked(
        self, problem: Problem, found: Sequence[Row], used: Sequence[Bools], until: float, notes: list[str]
    ) -> list[Mapping[Route, Shares]]:
        """Returns the destinations that a mixed-integer programme chooses, if it finds any.

        `used`: [C] per row, a choice to start from. Adds a note if the programme is too large, or
        too large for the time left.
        """
        # OR-Tools costs 0.2 s and 20 MB at its first import. Most meshes need none of it.
        from spillway_optimizer.discrete.choice import choose

        stop = self.solver.stop
        # Where some rows must lose destinations, others may need new ones.
        crowded = any(row.crowded for row in found)
        wide = crowded and sum(int(row.usable.sum()) for row in found) <= _MOST_BINARIES
        sound = [] if wide else [row for row in found if not row.breaks]
        narrow = within(problem, destinations(problem, sound, [row.used for row in sound]))
        flows = int(narrow.layout.usable.sum())
        if flows > _MOST_FLOWS:
            notes.append(
                f"the largest shares decide about destinations: a choice has {flows} flows, "
                f"and programmes are tried up to {_MOST_FLOWS}"
            )
            return []
        building_s, left = flows * _BUILDING_S, until - stop.clock()
        if building_s > max(left, stop.seconds * _LEAST):
            notes.append(
                f"the largest shares decide about destinations: a programme of {flows} flows takes about "
                f"{building_s:.2g} s to build, and {max(left, 0.0):.2g} s are left"
            )
            return []
        anew = [wide or row.breaks for row in found]
        again, first = list(compress(found, anew)), list(compress(used, anew))
        seconds = max((left - building_s) * _PART, stop.seconds * _LEAST)
        try:
            picked = choose(narrow, again, first, replace(stop, seconds=seconds))
        except MemoryError:  # the leader has more than a worker process
            raise
        except Exception as error:  # a mistake here must not cost the routing that is known
            _LOG.exception("the choice of destinations failed")
            notes.append(f"the choice of destinations failed: {type(error).__name__}: {error}")
            return []
        if picked is None:
            return []
        return [{**destinations(problem, found, used), **destinations(problem, again, picked)}]

    def _within(
        self,
        problem: Problem,
        tries: Sequence[tuple[Mapping[Route, Shares], bool]],
        hint: Hint | None,
        until: float,
    ) -> Iterator[_Kept]:
        """Solves the problem within each of these destinations, and yields what does not fail.

        `tries`: destinations, and whether they are those of the hint, which then is a start.
        """
        stop = self.solver.stop
        for tried, (chosen, hinted) in enumerate(tries):
            seconds = max((until - stop.clock()) / (len(tries) - tried), stop.seconds * _LEAST)
            try:
                solution = self._solve(within(problem, chosen), seconds, hint if hinted else None)
            except OptimizerError:
                continue
            split = merge(problem, solution.shares, solution.flows)
            yield _Kept(_of(problem, split, solution), chosen, hinted)

    def _solve(self, problem: Problem, seconds: float, hint: Hint | None) -> Solution:
        """Solves the problem without its limits, also from the hint."""
        stop = self.solver.stop
        self.solver.stop, self.solver.hint = replace(stop, seconds=seconds), hint
        try:
            return self.solver.route(problem)
        finally:
            self.solver.stop = stop


def _matter(constraints: Constraints) -> bool:
    """Returns whether limits may cost so much that destinations must be chosen by a programme."""
    c = constraints
    return c.max_destinations is not None or bool(c.whole) or c.min_share > _SMALL


def _not_yet(found: Sequence[Row]) -> list[str]:
    """Returns notes that count the routes whose limits are not kept yet."""
    waiting, stepping = sum(row.waits for row in found), sum(bool(row.leaving.any()) for row in found)
    notes = [f"floors keep more destinations than allowed on {waiting} routes"] if waiting else []
    if stepping:
        notes.append(
            f"{stepping} routes move by the maximum shift towards the destinations that limits allow"
        )
    return notes


def _used(row: Row) -> Bools:
    """Returns the destinations [C] of a row, or the largest if it breaks a limit."""
    return row.largest() if row.breaks else row.used


def _over(
    problem: Problem, merged: Floats, found: Sequence[Row], used: Sequence[Bools], free: Solution
) -> Solution:
    """Returns the routing in which each row that breaks a limit uses the given destinations [C].

    All edges of a route have its merged shares [E, C, C]. These rows change the volumes upstream of
    others. With shares edge by edge, a sound route would be merged to other shares at these.
    """
    shares = merged.copy()
    for row, chosen in zip(found, used, strict=True):
        if row.breaks:
            shares[list(row.edges), row.cluster] = row.over(chosen)
    return _of(problem, shares, free)


def _hinted(problem: Problem, hint: Hint | None, free: Solution) -> list[_Kept]:
    """Returns the hint's routing within its own destinations, if it has one for this problem."""
    shares = hint.placed(problem.layout) if hint else None
    if shares is None:
        return []
    merged = merge(problem, shares, propagate(problem.layout, shares)[0])
    found = list(rows(problem, merged))
    chosen = destinations(problem, found, [_used(row) for row in found])
    try:
        narrow = within(problem, chosen)
    except OptimizerError:
        return []
    # Rows without calls, and rows of routes that break a limit, may have other destinations alone.
    lost = ~((shares > 0) & narrow.layout.usable).any(axis=2, keepdims=True)
    flows = Hint(names_of(narrow.layout), np.where(lost, merged, shares)).flows(narrow.layout)
    if flows is None:
        return []
    return [_Kept(from_flows(narrow, flows, free.bound_usd_per_hour), chosen, hinted=True)]


def _of(problem: Problem, shares: Floats, free: Solution, notes: tuple[str, ...] = ()) -> Solution:
    """Returns the solution of shares [E, C, C], with the bound of the routing without limits."""
    return of_solver(problem, shares, free.bound_usd_per_hour, notes)


def _cost(kept: _Kept) -> float:
    return kept.solution.paid_usd_per_hour


def _loss(kept: _Kept, free: Solution) -> float:
    """Returns what the limits cost, relative to the objective without them."""
    lost = _cost(kept) - free.paid_usd_per_hour
    return relative(lost, free.evaluation.usd_per_hour, free.beyond_usd_per_hour)
