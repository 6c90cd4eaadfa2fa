"""What a policy returns, and the protocol that all policies implement."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.binding import binding, unmet, unseen
from spillway_optimizer.problem.constraints import Route, Shares
from spillway_optimizer.problem.objective import Evaluation, evaluate, hop_ms, marginal_ms, propagate
from spillway_optimizer.problem.penalties import beyond, relative
from spillway_optimizer.problem.problem import Problem

# Shares, and calls per second, up to which a solver's result is noise of its arithmetic.
_NOISE, _NOISE_RPS = 1e-6, 1e-9


@dataclass(frozen=True)
class Solution:
    """Where the calls of every edge go.

    `shares` has a row for every cluster that can make the call, even if it has no load now. The
    first request of a new flow therefore finds a rule.
    """

    shares: Floats  # [E, from, to], rows sum to 1 (0 where the caller cannot be)
    flows: Floats  # [E, from, to] rps
    evaluation: Evaluation
    # Lower bound on the cost of any routing, with the penalties that solvers use; None: not proven.
    bound_usd_per_hour: float | None = None
    beyond_usd_per_hour: float = 0.0  # penalty of this routing for exceeding them
    notes: tuple[str, ...] = ()
    binding: tuple[str, ...] = ()  # side constraints that hold the objective back, in words
    # Where limits on destinations had to be kept: the destinations that each route uses, with their
    # least shares, and what that costs, relative to the objective without limits.
    destinations: Mapping[Route, Shares] = field(default_factory=dict)
    limits_loss: float = 0.0
    # Relative gap of the routing without limits on destinations and without tail targets.
    free_gap: float | None = None

    @property
    def paid_usd_per_hour(self) -> float:
        """The objective with the penalties, in USD per hour."""
        return self.evaluation.usd_per_hour + self.beyond_usd_per_hour

    @property
    def relative_gap(self) -> float | None:
        """(objective - bound) / objective; None without a bound.

        The penalty for exceeded limits counts in the numerator and not in the denominator (see
        penalties.relative).
        """
        if self.bound_usd_per_hour is None:
            return None
        value = self.evaluation.usd_per_hour
        missing = self.paid_usd_per_hour - self.bound_usd_per_hour
        return relative(max(0.0, missing), value, self.beyond_usd_per_hour)

    @property
    def unproven(self) -> float | None:
        """The relative gap that limits and tail targets do not explain; None without a bound."""
        gaps = [gap for gap in (self.relative_gap, self.free_gap) if gap is not None]
        return min(gaps, default=None)


class Policy(Protocol):
    """A way to route. The solvers and all baselines implement it."""

    def route(self, problem: Problem) -> Solution:
        """Returns a routing. Raises SolveError when none was found."""


def from_shares(problem: Problem, shares: Floats, notes: tuple[str, ...] = ()) -> Solution:
    """Returns the solution of a policy that decides shares. The flows follow from them."""
    flows, _ = propagate(problem.layout, shares)
    evaluation = evaluate(problem, flows)
    return Solution(shares, flows, evaluation, notes=notes + overload_notes(problem, evaluation))


def from_flows(
    problem: Problem, flows: Floats, bound_usd_per_hour: float | None, notes: tuple[str, ...] = ()
) -> Solution:
    """Returns the solution of a solver that decides flows.

    Rows without load go where one more request costs least.
    """
    load = problem.layout.demand.copy()
    np.add.at(load, problem.layout.edge_target, flows.sum(axis=1))
    # The flows are computed again from the shares. Rows below the noise of the LP are gone, and
    # conservation is exact.
    return of_solver(problem, shares_of(problem, flows, load), bound_usd_per_hour, notes)


def of_solver(
    problem: Problem, shares: Floats, bound_usd_per_hour: float | None, notes: tuple[str, ...] = ()
) -> Solution:
    """Returns the solution of a solver that decides shares [E, from, to]."""
    flows, _ = propagate(problem.layout, shares)
    evaluation = evaluate(problem, flows)
    beyond_usd = beyond(problem, flows, evaluation.load) * problem.usd_per_ms * 3600.0
    return Solution(
        shares,
        flows,
        evaluation,
        bound_usd_per_hour,
        beyond_usd,
        (
            *notes,
            *problem.layout.notes,
            *overload_notes(problem, evaluation),
            *unmet(problem, evaluation),
            *(sentence for _, sentence in unseen(problem, evaluation.utilisation)),
        ),
        binding(problem, flows, evaluation),
    )


def shares_of(problem: Problem, flows: Floats, load: Floats) -> Floats:
    """Returns the split [E, from, to] of each row of `flows`.

    Beyond its floors, an empty row goes to the destination with the lowest marginal cost at `load`
    [K, C].
    """
    layout = problem.layout
    calls = flows.sum(axis=2, keepdims=True)
    # Noise is relative to each row: what is noise in a large application can be all the calls of a
    # small one.
    kept = np.where(layout.usable & ((flows > _NOISE * calls) | (layout.floor > 0)), flows, 0.0)
    total = kept.sum(axis=2)
    idle = total <= _NOISE_RPS
    shares = kept / np.where(idle, np.inf, total)[:, :, None]
    empty = layout.usable.any(axis=2) & idle
    if not empty.any():
        return shares
    edges = np.flatnonzero(empty.any(axis=1))
    floor, free = layout.floor[edges], layout.free[edges]
    hops = np.where(free, hop_ms(problem, edges, marginal_ms(problem, load)), np.inf)
    cheapest = np.arange(hops.shape[2]) == hops.argmin(axis=2)[:, :, None]
    least = floor.sum(axis=2, keepdims=True)
    decided = ~free.any(axis=2, keepdims=True) & (least > 0)  # by the floors, but for rounding
    split = np.where(
        decided, floor / np.where(decided, least, 1.0), floor + np.maximum(1.0 - least, 0.0) * cheapest
    )
    shares[edges] = np.where(empty[edges][:, :, None], split, shares[edges])
    return shares


def overload_notes(problem: Problem, evaluation: Evaluation) -> tuple[str, ...]:
    """Returns a sentence for every service that is offered more than it can serve in a cluster."""
    layout = problem.layout
    return tuple(
        f"{layout.services[s]} in {layout.clusters[c]} is offered "
        f"{evaluation.utilisation[s, c]:.0%} of its capacity"
        for s, c in zip(*np.nonzero(evaluation.utilisation > 1.0), strict=True)
    )
