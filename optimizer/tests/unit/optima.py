"""The solvers' answers to tiny problems, compared with the optimum that brute force finds."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import brute_force
import numpy as np
from brute_force import Choices
from spillway_optimizer.problem.penalties import relative
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.solution import Solution
from spillway_optimizer.programmes.exact import Exact
from spillway_optimizer.solvers.convex import Stop
from spillway_optimizer.solvers.descent import penalised
from spillway_optimizer.solvers.fast import Fast
from tiny import tiny_problem

# The claims must hold whenever a solver ends, so a short time suffices. It is CPU time, so that a
# busy machine gives the same answers.
STOP = Stop(1e-4, 300, 0.1, time.process_time)
EXACT_EACH = 10  # every tenth seed is solved by `exact` too, which takes longer
TOLERANCE = 1e-9  # relative to the cost: what arithmetic may change
SCIP_TOLERANCE = 1e-6  # that of the mixed-integer programmes, which `exact` has its bound from
_ROW = 1e-6  # share of a row's calls that counts as noise
_CHUNK = 50  # seeds that a process takes at a time


@dataclass(frozen=True)
class Outcome:
    """What a solver said about one problem, and what is true."""

    seed: int
    solver: str
    gap: float  # stated
    missed: float  # how far the answer is really above the best split found, relative as the gap is
    loose: float  # how far the bound is below the best split found, relative as the gap is
    wrong: tuple[str, ...]  # claims that do not hold


def check(seed: int) -> list[Outcome]:
    """Solves the problem of a seed and checks each claim."""
    problem = tiny_problem(seed)
    _, best = brute_force.best(Choices(problem))
    solvers = {"fast": (Fast(STOP), TOLERANCE)}
    if seed % EXACT_EACH == 0:
        solvers["exact"] = (Exact(STOP), SCIP_TOLERANCE)
    return [
        _outcome(seed, name, problem, solver.route(problem), best, tolerance)
        for name, (solver, tolerance) in solvers.items()
    ]


def check_all(seeds: range) -> Iterator[Outcome]:
    """Yields the outcomes of all seeds, in the order of the seeds. All processors take part."""
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        for outcomes in pool.map(check, seeds, chunksize=_CHUNK):
            yield from outcomes


def summary(outcomes: list[Outcome], began: float) -> str:
    """Returns one line on what one solver's outcomes have in common. `began`: time.monotonic()."""
    gaps = np.array([outcome.gap for outcome in outcomes])
    missed = np.array([outcome.missed for outcome in outcomes])
    return (
        f"{outcomes[0].solver}: {len(gaps)} problems, {sum(bool(o.wrong) for o in outcomes)} wrong; "
        f"stated gap: 0 in {np.mean(gaps <= TOLERANCE):.0%}, at most {STOP.relative_gap:g} in "
        f"{np.mean(gaps <= 1.01 * STOP.relative_gap):.0%}, most {gaps.max():.2%} (seed "
        f"{outcomes[gaps.argmax()].seed}); really above the optimum: over {STOP.relative_gap:g} in "
        f"{np.mean(missed > 1.01 * STOP.relative_gap):.1%}, most {missed.max():.2%} (seed "
        f"{outcomes[missed.argmax()].seed}); {time.monotonic() - began:.0f} s"
    )


def _outcome(
    seed: int, name: str, problem: Problem, solution: Solution, best: float, tolerance: float
) -> Outcome:
    ms = problem.usd_per_ms * 3600.0
    value, bound = penalised(problem, solution.flows), solution.bound_usd_per_hour / ms
    cost, gap = solution.evaluation.usd_per_hour / ms, solution.relative_gap
    wrong = list(_broken_rows(problem, solution))
    if bound > best + tolerance * best:
        wrong.append(f"the bound {bound:.12g} is above the cost of a routing, {best:.12g}")
    missed, loose = (relative(difference, cost, value - cost) for difference in (value - best, best - bound))
    if missed > gap + relative(tolerance * best, cost, value - cost):
        wrong.append(f"a gap of {gap:.3e} is stated, and a routing costs {missed:.3e} less")
    return Outcome(seed, name, gap, missed, loose, tuple(wrong))


def _broken_rows(problem: Problem, solution: Solution) -> Iterator[str]:
    """Yields a sentence for each destination whose share breaks a floor, a hold or a denial."""
    layout, flows, shares = problem.layout, solution.flows, solution.shares
    noise = _ROW * flows.sum(axis=2, keepdims=True)
    held = layout.usable & ~layout.free
    open_rows = layout.usable.any(axis=2)
    for what, broken in (
        ("is below its floor", flows < layout.floor * flows.sum(axis=2, keepdims=True) - noise),
        ("is above what it holds", held & (flows > layout.floor * flows.sum(axis=2, keepdims=True) + noise)),
        ("goes where it may not", ~layout.usable & (shares > 0)),
        ("does not sum to one", open_rows[:, :, None] & (abs(shares.sum(axis=2, keepdims=True) - 1) > 1e-9)),
        ("is denied", _denied(problem) & (flows > 0)),
    ):
        for e, i, j in zip(*np.nonzero(broken), strict=True):
            yield f"row {e} from {layout.clusters[i]} to {layout.clusters[j]} {what}"


def _denied(problem: Problem) -> np.ndarray:
    """[E, from, to] bool: calls that denials forbid and no pin allows."""
    layout, limits = problem.layout, problem.constraints
    denied = np.zeros(layout.usable.shape, dtype=bool)
    for e, i, j in np.ndindex(*denied.shape):
        target, source = layout.classes[layout.edge_target[e]], layout.clusters[i]
        route = (source, layout.services[layout.class_service[layout.edge_source[e]]], target)
        denied[e, i, j] = (source, target, layout.clusters[j]) in limits.denied and route not in limits.pinned
    return denied
