"""`failover`: Istio's locality failover, which is Envoy's priority load (SLATE section 2, ref. 22).

Clusters are priorities in order of round-trip time. A priority takes min(1, healthy share * 1.4) of what
the ones before it left; load does not enter (Envoy documentation, "Priority levels", overprovisioning
factor 140 %).

Of the side constraints it keeps to denials, pins and draining (where calls may go at all) and ignores all others.
"""

from dataclasses import dataclass, field

import numpy as np

from spillway_optimizer.policies.nearest import nearest_first
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.solution import Solution, from_shares

OVERPROVISIONING = 1.4


def priority_load(healthy: list[float]) -> list[float]:
    """Share of traffic per priority for the healthy share (0..1) of each; sums to 1.

    When all together are too unhealthy, what there is is scaled up; with nothing healthy the first
    priority takes everything (Envoy's panic).
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
    # Healthy share by (service, cluster); what is placed and not listed is wholly healthy.
    healthy: dict[tuple[str, str], float] = field(default_factory=dict)

    def route(self, problem: Problem) -> Solution:
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
