"""What a policy answers, and the protocol that all policies share."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from spillway_optimizer.objective import Evaluation, evaluate, hop_ms, marginal_ms, propagate
from spillway_optimizer.problem import Problem


@dataclass(frozen=True)
class Solution:
    """Where every edge's calls go. `shares` has a row for every cluster that can make the call, also
    where there is no load now, so that the first request of a new flow finds a rule."""

    shares: np.ndarray  # [E, from, to], rows sum to 1 (or 0 where the caller cannot be)
    flows: np.ndarray  # [E, from, to] rps
    evaluation: Evaluation
    bound_usd_per_hour: float | None = None  # no routing can cost less; None: not proven
    notes: tuple[str, ...] = ()

    @property
    def relative_gap(self) -> float | None:
        """(objective - bound) / objective; None without a bound."""
        if self.bound_usd_per_hour is None:
            return None
        value = self.evaluation.usd_per_hour
        return max(0.0, value - self.bound_usd_per_hour) / value if value > 0 else 0.0


class Policy(Protocol):
    """A way to route: the exact solver and every baseline."""

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
    evaluation = evaluate(problem, flows)
    shares = shares_of(problem, flows, evaluation.load)
    # Flows again from shares: rows below the noise of the LP are gone, conservation is exact.
    flows, _ = propagate(problem.layout, shares)
    evaluation = evaluate(problem, flows)
    return Solution(
        shares, flows, evaluation, bound_usd_per_hour, notes + overload_notes(problem, evaluation)
    )


def shares_of(problem: Problem, flows: np.ndarray, load: np.ndarray) -> np.ndarray:
    """[E, from, to] split of each row of flows; cheapest marginal destination where a row is empty."""
    layout, cost = problem.layout, marginal_ms(problem, load)
    noise = 1e-7 * max(float(layout.demand.sum()), 1e-9)
    shares = np.zeros_like(flows)
    for e in range(len(layout.edge_source)):
        kept = np.where(layout.usable[e] & (flows[e] > noise), flows[e], 0.0)
        total = kept.sum(axis=1)
        hops = hop_ms(problem, e, cost[layout.edge_target[e]])
        for i in np.flatnonzero(layout.usable[e].any(axis=1)):
            if total[i] > 0:
                shares[e, i] = kept[i] / total[i]
            else:
                shares[e, i, int(np.argmin(hops[i]))] = 1.0
    return shares


def overload_notes(problem: Problem, evaluation: Evaluation) -> tuple[str, ...]:
    """One sentence for every service that is offered more than it can serve."""
    layout = problem.layout
    return tuple(
        f"{layout.services[s]} in {layout.clusters[c]} is offered "
        f"{evaluation.utilisation[s, c]:.0%} of its capacity"
        for s, c in zip(*np.nonzero(evaluation.utilisation > 1.0), strict=True)
    )
