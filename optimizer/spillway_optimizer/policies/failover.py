"""`failover`: Istio's locality failover, which is Envoy's priority load (SLATE section 2, ref. 22).

Clusters are priorities in order of round-trip time. A priority takes min(1, healthy share * 1.4) of
what the priorities before it left. Load plays no part (Envoy documentation, "Priority levels",
overprovisioning factor 140 %).

Of the side constraints it keeps denials, pins and draining (where calls may go at all) and ignores
all others.
"""

from dataclasses import dataclass, field

import numpy as np

from spillway_optimizer.policies.nearest import nearest_first
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.solution import Solution, from_shares

OVERPROVISIONING = 1.4


def priority_load(healthy: list[float]) -> list[float]:
    """Returns the share of traffic per priority, from the healthy share (0..1) of each; sums to 1.

    When all priorities together are too unhealthy, their shares are scaled up. When nothing is
    healthy, the first priority takes everything (Envoy's panic).
    """
    health = [min(1.0, share * OVERPROVISIONING) for share in healthy]
    total = min(1.0, sum(health))
    if total <= 0:
        return [1.0] + [0.0] * (len(healthy) - 1)
    left, loads = 1.0, []
    for share in health:
        taken = min(left, share / total)
        loads.append(taken)
        left -= taken
    return loads


@dataclass(frozen=True)
class Failover:
    # Healthy share by (service, cluster). A service that is placed but not listed is wholly
    # healthy.
    healthy: dict[tuple[str, str], float] = field(default_factory=dict)

    def route(self, problem: Problem) -> Solution:
        """Splits the calls of each row over its usable clusters, nearest first, by their health."""
        layout = problem.layout
        shares = np.zeros(layout.usable.shape)
        for e, usable in enumerate(layout.usable):
            service = layout.services[layout.class_service[layout.edge_target[e]]]
            for i in np.flatnonzero(usable.any(axis=1)):
                order = nearest_first(layout, usable[i], int(i))
                shares[e, i, order] = priority_load(
                    [self.healthy.get((service, layout.clusters[j]), 1.0) for j in order]
                )
        return from_shares(problem, shares)
