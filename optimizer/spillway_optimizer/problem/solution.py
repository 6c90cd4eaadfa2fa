"""What a policy answers, and the protocol that all policies share."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from spillway_optimizer.problem.binding import binding, unmet
from spillway_optimizer.problem.objective import Evaluation, evaluate, hop_ms, marginal_ms, propagate
from spillway_optimizer.problem.penalties import beyond
from spillway_optimizer.problem.problem import Problem

# Shares, and calls per second, that a solver's arithmetic leaves where it means none.
_NOISE, _NOISE_RPS = 1e-6, 1e-9


@dataclass(frozen=True)
class Solution:
    """Where every edge's calls go. `shares` has a row for every cluster that can make the call, also
    where there is no load now, so that the first request of a new flow finds a rule."""

    shares: np.ndarray  # [E, from, to], rows sum to 1 (or 0 where the caller cannot be)
    flows: np.ndarray  # [E, from, to] rps
    evaluation: Evaluation
    # No routing can cost less, exceeding the ceiling and the budget counted as solvers do; None: not proven.
    bound_usd_per_hour: float | None = None
    beyond_usd_per_hour: float = 0.0  # what exceeding them counts here
    notes: tuple[str, ...] = ()
    binding: tuple[str, ...] = ()  # side constraints and capacities that hold the objective back, in words

    @property
    def relative_gap(self) -> float | None:
        """(objective - bound) / objective, what exceeding limits counts left out below; None without a bound."""
        if self.bound_usd_per_hour is None:
            return None
        value = self.evaluation.usd_per_hour
        missing = value + self.beyond_usd_per_hour - self.bound_usd_per_hour
        return max(0.0, missing) / value if value > 0 else 0.0


class Policy(Protocol):
    """A way to route: the solvers and every baseline."""

    def route(self, problem: Problem) -> Solution:
        """Raises SolveError when no routing was found."""


def from_shares(problem: Problem, shares: np.ndarray, notes: tuple[str, ...] = ()) -> Solution:
    """A policy that decides shares; flows follow."""
    flows, _ = propagate(problem.layout, shares)
    evaluation = evaluate(problem, flows)
    return Solution(shares, flows, evaluation, notes=notes + overload_notes(problem, evaluation))


def from_flows(
    problem: Problem, flows: np.ndarray, bound_usd_per_hour: float | None, notes: tuple[str, ...] = ()
) -> Solution:
    """A solver that decides flows; rows without load go where one more request costs least."""
    load = problem.layout.demand.copy()
    np.add.at(load, problem.layout.edge_target, flows.sum(axis=1))
    shares = shares_of(problem, flows, load)
    # Flows again from shares: rows below the noise of the LP are gone, conservation is exact.
    flows, _ = propagate(problem.layout, shares)
    evaluation = evaluate(problem, flows)
    beyond_usd = beyond(problem, flows, evaluation.load) * problem.usd_per_ms * 3600.0
    return Solution(
        shares,
        flows,
        evaluation,
        bound_usd_per_hour,
        beyond_usd,
        (*notes, *problem.layout.notes, *overload_notes(problem, evaluation), *unmet(problem, evaluation)),
        binding(problem, flows, evaluation),
    )


def shares_of(problem: Problem, flows: np.ndarray, load: np.ndarray) -> np.ndarray:
    """[E, from, to] split of each row of flows; cheapest marginal destination where a row is empty."""
    layout = problem.layout
    calls = flows.sum(axis=2, keepdims=True)
    # Of each row by itself: what is noise beside a large application is all that a small one has.
    kept = np.where(layout.usable & ((flows > _NOISE * calls) | (layout.floor > 0)), flows, 0.0)
    total = kept.sum(axis=2)
    idle = total <= _NOISE_RPS
    shares = kept / np.where(idle, np.inf, total)[:, :, None]
    empty = layout.usable.any(axis=2) & idle
    cost = marginal_ms(problem, load) if empty.any() else None
    for e, i in zip(*np.nonzero(empty), strict=True):
        hops = hop_ms(problem, e, cost[layout.edge_target[e]])[i]
        shares[e, i] = layout.floor[e, i]
        nearest = int(np.argmin(np.where(layout.free[e, i], hops, np.inf)))
        shares[e, i, nearest] += max(1.0 - layout.floor[e, i].sum(), 0.0)
    return shares


def overload_notes(problem: Problem, evaluation: Evaluation) -> tuple[str, ...]:
    """One sentence for every service that is offered more than it can serve."""
    layout = problem.layout
    return tuple(
        f"{layout.services[s]} in {layout.clusters[c]} is offered "
        f"{evaluation.utilisation[s, c]:.0%} of its capacity"
        for s, c in zip(*np.nonzero(evaluation.utilisation > 1.0), strict=True)
    )
