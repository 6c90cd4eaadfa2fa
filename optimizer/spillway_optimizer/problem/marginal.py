"""The cost of one more call, split into parts: the gradient of the objective along given shares.
Pure.

objective.marginal_ms sends the calls that a call causes the cheapest way. This module follows the
given shares instead, so its result also holds for a split that is not optimal. A split where both
agree everywhere is optimal (Wardrop's condition).
"""

from dataclasses import dataclass

import numpy as np

from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.objective import counted_factor, propagate, utilisation
from spillway_optimizer.problem.problem import Problem

# Parts of the cost of a call, in ms at their value (egress is converted at $/ms). Crowding is the
# time that all other requests wait longer.
PARTS = ("service", "queueing", "network", "egress", "crowding", "failures")
_SERVICE, _QUEUEING, _NETWORK, _EGRESS, _CROWDING, _FAILURES = range(len(PARTS))


@dataclass(frozen=True)
class Marginal:
    """Cost of one request of a class that is served in a cluster, at one routing."""

    here: Floats  # [len(PARTS), K, C] ms at the service itself
    # [len(PARTS), K, C] ms of all calls that the request causes, with their way there
    below: Floats

    def total(self) -> Floats:
        """[K, C] ms: the sum of all parts."""
        total: Floats = (self.here + self.below).sum(axis=0)
        return total


def marginal(problem: Problem, shares: Floats) -> Marginal:
    """Computes the marginal costs at the routing of shares [E, from, to]."""
    layout = problem.layout
    _, load = propagate(layout, shares)
    here = _here(problem, load)
    below = np.zeros_like(here)
    for k in reversed(range(len(layout.classes))):
        for e in layout.out_edges[k]:
            target = layout.edge_target[e]
            hop = (shares[e][None] * way(problem, e)).sum(axis=2)
            below[:, k] += layout.ratio[e] * (hop + (here + below)[:, target] @ shares[e].T)
    return Marginal(here, below)


def way(problem: Problem, e: int) -> Floats:
    """[len(PARTS), from, to] ms of network and egress for one call over edge `e`; 0 where it cannot
    go.
    """
    layout = problem.layout
    parts = np.zeros((len(PARTS), *layout.rtt.shape))
    parts[_NETWORK] = layout.hop_worth[e] * np.where(layout.usable[e], layout.rtt, 0.0)
    parts[_EGRESS] = np.where(layout.usable[e], layout.egress[e] / problem.usd_per_ms, 0.0)
    return parts


def _here(problem: Problem, load: Floats) -> Floats:
    layout = problem.layout
    u = utilisation(layout, load)
    service, a, b = layout.class_service, layout.counted_a[:, None], layout.counted_b[:, None]
    factor, slope = counted_factor(problem, u)
    # [S, C] sum of counted_a * load. Times slope / capacity, it is how much longer all
    # requests at a station wait, together, when its normalised load grows by one.
    pull = np.zeros_like(layout.capacity)
    np.add.at(pull, service, a * load)
    parts = np.zeros((len(PARTS), *load.shape))
    parts[_SERVICE] = a + b
    parts[_QUEUEING] = a * (factor - 1.0)[service]
    parts[_CROWDING] = layout.weight[:, None] * (pull * slope / layout.capacity)[service]
    parts[_FAILURES] = layout.failure_worth
    return parts
