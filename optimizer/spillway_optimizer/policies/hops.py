"""An application as Waterfall and similar policies see it.

They decide hop by hop and service by service, and treat all classes alike.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from spillway_optimizer.policies.nearest import nearest_first, nearest_shares
from spillway_optimizer.problem.arrays import Bools, Floats, Ints
from spillway_optimizer.problem.objective import propagate
from spillway_optimizer.problem.problem import Problem


@dataclass(frozen=True)
class Hop:
    """What is known where one service is called."""

    service: str
    calls: Floats  # [C] rps that each cluster's callers make
    room: Floats  # [C] rps that each cluster takes from callers before it spills
    usable: Bools  # [from, to] usable for any class
    orders: tuple[tuple[int, ...], ...]  # [C] where calls may go, nearest first


Decide = Callable[[Hop], Floats]  # [from, to] rps whose rows sum to hop.calls


def by_service(problem: Problem, decide: Decide) -> Floats:
    """Returns the shares [E, from, to] that result from asking `decide` at every service.

    Each service gets the load that the hops before it send. This settles after at most as many
    rounds as the longest chain of calls has. `decide` must answer equal hops equally.
    """
    layout, shares = problem.layout, nearest_shares(problem)
    for _ in range(len(layout.classes) + 1):
        _, load = propagate(layout, shares)
        before, shares = shares, np.zeros_like(shares)
        for s in range(len(layout.services)):
            edges = np.flatnonzero(layout.class_service[layout.edge_target] == s)
            if len(edges):
                hop = _hop(problem, s, edges, load)
                _apply(problem, edges, hop, decide(hop), shares)
        if np.allclose(before, shares, rtol=0.0, atol=1e-9):
            break
    return shares


def _hop(problem: Problem, s: int, edges: Ints, load: Floats) -> Hop:
    layout = problem.layout
    reached = layout.usable[edges].any(axis=2)
    calls = (layout.ratio[edges, None] * load[layout.edge_source[edges]] * reached).sum(axis=0)
    # Entry requests are served where they arrive, and take their room first.
    entry = layout.demand[layout.class_service == s].sum(axis=0)
    usable = np.any(layout.usable[edges], axis=0)
    return Hop(
        service=layout.services[s],
        calls=calls,
        room=np.maximum(thresholds(problem, s) - entry, 0.0),
        usable=usable,
        orders=tuple(tuple(nearest_first(layout, usable[i], i)) for i in range(len(layout.clusters))),
    )


def _apply(problem: Problem, edges: Ints, hop: Hop, routed: Floats, shares: Floats) -> None:
    """Gives every class the service's split, as far as the class may go there.

    Otherwise, and where there is no load now, calls go to the nearest cluster with room left.
    """
    left = hop.room - routed.sum(axis=0)
    for e in edges:
        usable = problem.layout.usable[e]
        for i in np.flatnonzero(usable.any(axis=1)):
            row = routed[i] * usable[i]
            if row.sum() <= 0:
                near = [j for j in hop.orders[i] if usable[i, j]]
                row[next((j for j in near if left[j] > 1e-9), near[0])] = 1.0
            shares[e, i] = row / row.sum()


def thresholds(problem: Problem, s: int) -> Floats:
    """[C] requests per second of service `s` before it spills; 0 where it is not placed.

    This is the declared threshold. Without one, it is the capacity if every request were of the
    heaviest class (SLATE 5.1).
    """
    layout = problem.layout
    heaviest = float(layout.weight[layout.class_service == s].max())
    service = layout.services[s]
    declared = np.array([problem.threshold_rps.get((service, c), 0.0) for c in layout.clusters])
    return np.where(layout.placed[s], np.where(declared > 0, declared, layout.capacity[s] / heaviest), 0.0)
