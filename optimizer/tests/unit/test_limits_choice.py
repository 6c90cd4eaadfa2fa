"""How the destinations of routes are chosen where the largest shares are not good enough."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from limited_instances import LIMITS, limited_instance, many, seeds
from spillway_optimizer.discrete import choice, limited
from spillway_optimizer.discrete.limited import Limited
from spillway_optimizer.discrete.limits import rows
from spillway_optimizer.problem.constraints import Constraints
from spillway_optimizer.problem.destinations import in_steps, within
from spillway_optimizer.problem.objective import propagate
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.rules import merge
from spillway_optimizer.problem.solution import Solution
from spillway_optimizer.programmes.exact import Exact
from spillway_optimizer.solvers.convex import Stop
from spillway_optimizer.solvers.descent import penalised
from spillway_optimizer.solvers.fast import Fast
from spillway_optimizer.solvers.hint import Hint, names_of
from two_clusters import two_clusters


@settings(max_examples=60, derandomize=True, database=None, deadline=None, phases=[Phase.generate])
@given(seeds)
def test_the_choice_is_the_best_one(seed):
    """No choice of one destination per route costs less, tried one by one on small meshes.

    The answer is allowed 0.1 %, which is where the programme ends.
    """
    problem = limited_instance(seed, {"max_destinations": 1}, convex=False, constrained=False, clusters=2)
    if problem is None or len(problem.edges) > 4:
        return
    solution = Limited(Fast(Stop(1e-4, 60, 5.0))).route(problem)
    found = list(rows(problem, merge(problem, solution.shares, solution.flows)))
    possible = [np.flatnonzero(row.usable) for row in found]
    costs = []
    for tried in itertools.product(*possible):
        shares = solution.shares.copy()
        for row, destination in zip(found, tried, strict=True):
            shares[list(row.edges), row.cluster] = np.arange(2) == destination
        costs.append(penalised(problem, propagate(problem.layout, shares)[0]))
    assert penalised(problem, solution.flows) <= min(costs) * (1 + 1e-3)


@many
@given(seeds, LIMITS, st.booleans())
def test_the_answer_is_never_worse_than_a_hint_that_keeps_the_limits(seed, limits, reference):
    """Neither solver has time for anything else. The hint is the routing of a long solve."""
    problem = limited_instance(seed, limits, convex=False)
    if problem is None:
        return
    known = Limited(Fast(Stop(1e-4, 60, 0.5))).route(problem)
    problem = in_steps(problem, known.destinations)
    hint = Hint(names_of(problem.layout), known.shares)
    stop = Stop(0.5, 60, 0.01)
    found = Limited(Exact(stop) if reference else Fast(stop), hint=hint).route(problem)
    assert penalised(problem, found.flows) <= penalised(problem, known.flows) * (1 + 1e-5)


def test_a_hint_wins_where_its_choice_is_better_and_is_then_dropped(monkeypatch):
    """Without a programme, only the hint has the better destination of each class.

    The next solve, at another demand, has it too. It goes once a solve without it is as good.
    """
    problem = two_clusters(Constraints(max_destinations=1), 500.0)
    best = Limited(Fast()).route(problem)
    monkeypatch.setattr(choice, "choose", lambda *_: None)
    alone = Limited(Fast()).route(problem)
    solver = Limited(Fast(), hint=Hint(names_of(problem.layout), best.shares))
    assert _usd(best) < _usd(alone) * (1 - 1e-3)
    assert _usd(solver.route(problem)) == pytest.approx(_usd(best), rel=1e-5)
    moved = two_clusters(Constraints(max_destinations=1), 520.0)
    assert solver.hint is not None and _usd(solver.route(moved)) < _usd(Limited(Fast()).route(moved))
    solver.route(two_clusters(Constraints(max_destinations=1), 10.0))
    assert solver.hint is None


def test_a_problem_that_is_too_large_for_programmes_keeps_the_largest_shares(monkeypatch):
    """A note has its size. No programme is built."""
    monkeypatch.setattr(limited, "_MOST_FLOWS", 7)
    monkeypatch.setattr(choice, "choose", lambda *_: pytest.fail("a programme was built"))
    solution = Limited(Fast()).route(two_clusters(Constraints(max_destinations=1), 500.0))
    assert (solution.shares > 0).sum(axis=2).max() == 1
    assert any("a choice has 8 flows, and programmes are tried up to 7" in note for note in solution.notes)


def test_no_programme_is_built_when_building_takes_longer_than_the_time_left(monkeypatch):
    """With many applications, each has a small part of the time. A note has both times."""
    problem, stop = two_clusters(Constraints(max_destinations=1), 500.0), Stop(seconds=0.001)
    monkeypatch.setattr(choice, "choose", lambda *_: pytest.fail("a programme was built"))
    solution = Limited(Fast(stop)).route(problem)
    assert (solution.shares > 0).sum(axis=2).max() == 1
    assert any("a programme of 8 flows takes about 0.0016 s to build" in note for note in solution.notes)
    chosen = []
    monkeypatch.setattr(choice, "choose", lambda *_: chosen.append(True))
    Limited(Fast(replace(stop, seconds=10.0))).route(problem)
    assert chosen == [True]


def test_a_choice_that_fails_keeps_the_largest_shares_but_not_for_want_of_memory(monkeypatch):
    """A worker process has less memory than the leader, which then solves the problem itself."""
    problem, error = two_clusters(Constraints(max_destinations=1), 500.0), [RuntimeError("no"), MemoryError()]

    def fails(*_):
        raise error.pop(0)

    monkeypatch.setattr(choice, "choose", fails)
    solution = Limited(Fast()).route(problem)
    assert any("the choice of destinations failed: RuntimeError: no" in note for note in solution.notes)
    with pytest.raises(MemoryError):
        Limited(Fast()).route(problem)


def test_the_time_of_a_programme_begins_when_it_has_been_built(monkeypatch):
    """Building takes all of its time here. It still chooses."""
    now, build = [0.0], choice._Choice

    def slow(*given):
        now[0] += 100.0
        return build(*given)

    monkeypatch.setattr(choice, "_Choice", slow)
    problem = two_clusters(Constraints(max_destinations=1), 500.0)
    free = Fast().route(problem)
    found = list(rows(problem, merge(problem, free.shares, free.flows)))
    stop, seconds = Stop(seconds=5.0, clock=lambda: now[0]), []
    solve = build.solve
    monkeypatch.setattr(
        build, "solve", lambda self, first, left: (seconds.append(left), solve(self, first, left))[1]
    )
    assert choice.choose(within(problem, {}), found, [row.largest() for row in found], stop) is not None
    assert seconds[0] == 5.0


def test_limits_that_matter_leave_time_for_more_solves():
    """The first solve has all the time only where the largest shares are as good as any."""
    given = []

    class Noting(Fast):
        def route(self, problem: Problem) -> Solution:
            given.append(self.stop.seconds)
            return super().route(problem)

    for limits in (Constraints(), Constraints(min_share=0.01), Constraints(max_destinations=2)):
        Limited(Noting(Stop(seconds=10.0))).route(two_clusters(limits, 10.0))
    assert given == pytest.approx([10.0, 10.0, 7.0])


def test_the_programme_is_not_needed_for_a_tiny_share():
    """A share of 0.3 % goes to the route's other destination, and that costs almost nothing."""
    problem = two_clusters(Constraints(min_share=0.01))
    free = Fast().route(problem)
    assert 0 < free.shares[0, 0, 1] < 0.01
    solution = Limited(Fast()).route(problem)
    assert solution.shares[0, 0].tolist() == pytest.approx([1.0, 0.0])
    assert abs(solution.limits_loss) < 1e-4  # within the gap of the solver
    assert solution.destinations["west", "web", "db GET /x"] == {"west": 0.0101}
    assert any("limits on destinations change 2 routes" in note for note in solution.notes)


def _usd(solution: Solution) -> float:
    return solution.evaluation.usd_per_hour + solution.beyond_usd_per_hour
