"""Waterfall (SLATE section 2 and appendix A; Google's Traffic Director, without locality rings).

Per service, hop by hop: requests stay local up to a static threshold, the rest go to the nearest cluster
with room, then the next. Every class counts as the heaviest. It sees neither what a request does
downstream, nor egress, nor how load becomes latency.
"""

from dataclasses import dataclass

import numpy as np

from spillway_optimizer.objective import propagate
from spillway_optimizer.policies.nearest import nearest_first, nearest_shares
from spillway_optimizer.problem import Problem
from spillway_optimizer.solution import Solution, from_shares

_SWEEPS = 20  # activations of every cluster; appendix A.2 shows that it need not settle on one answer


def activate(routed: np.ndarray, i: int, load: float, room_of: np.ndarray, order: list[int]) -> np.ndarray:
    """One activation of cluster `i` (appendix A): a new `routed` [from, to] whose row i serves `load`.

    room_of [C] are capacities, order the clusters from nearest to farthest with i first where it can
    serve. What fits nowhere stays at the first of the order.
    """
    routed = routed.copy()
    routed[i] = 0.0
    rest = load
    for j in order:
        taken = min(rest, max(room_of[j] - routed[:, j].sum(), 0.0))
        routed[i, j] += taken
        rest -= taken
    if order:
        routed[i, order[0]] += rest
    return routed


def settle(
    load: np.ndarray, room_of: np.ndarray, orders: list[list[int]], sweeps: int = _SWEEPS
) -> np.ndarray:
    """Activates cluster after cluster, from no routing at all, until nothing changes."""
    routed = np.zeros((len(load), len(load)))
    for _ in range(sweeps):
        before = routed
        for i, rps in enumerate(load):
            routed = activate(routed, i, float(rps), room_of, orders[i])
        if np.allclose(before, routed, atol=1e-9):
            break
    return routed


@dataclass(frozen=True)
class Waterfall:
    def route(self, problem: Problem) -> Solution:
        layout = problem.layout
        shares = nearest_shares(problem)
        # Each hop decides with the load that the hops before it send: settled after as many rounds as
        # the longest chain of calls.
        for _ in range(len(layout.classes) + 1):
            _, load = propagate(layout, shares)
            before, shares = shares, np.zeros_like(shares)
            for s in range(len(layout.services)):
                edges = np.flatnonzero(layout.class_service[layout.edge_target] == s).tolist()
                if edges:
                    self._route_service(problem, s, edges, load, shares)
            if np.allclose(before, shares, atol=1e-9):
                break
        return from_shares(problem, shares)

    def _route_service(
        self, problem: Problem, s: int, edges: list[int], load: np.ndarray, shares: np.ndarray
    ) -> None:
        layout = problem.layout
        calls = sum(layout.ratio[e] * load[layout.edge_source[e]] for e in edges)
        # Entry requests are served where they arrive and take their room first.
        entry = layout.demand[layout.class_service == s].sum(axis=0)
        room = np.maximum(thresholds(problem, s) - entry, 0.0)
        usable = np.any([layout.usable[e] for e in edges], axis=0)
        orders = [nearest_first(layout, usable[i], i) for i in range(len(layout.clusters))]
        routed = settle(calls, room, orders)
        for e in edges:
            for i, order in enumerate(orders):
                row = routed[i] * layout.usable[e][i]
                if row.sum() <= 0:
                    # No load now: where a first request would go.
                    row = activate(routed, i, 1e-9, room, [j for j in order if layout.usable[e][i, j]])[i]
                if row.sum() > 0 and layout.usable[e][i].any():
                    shares[e, i] = row / row.sum()


def thresholds(problem: Problem, s: int) -> np.ndarray:
    """[C] requests per second of service `s` before it spills: declared, else capacity if every request
    were of its heaviest class (SLATE 5.1); 0 where it is not placed."""
    layout = problem.layout
    heaviest = float(layout.weight[layout.class_service == s].max())
    service = layout.services[s]
    declared = np.array([problem.threshold_rps.get((service, c), 0.0) for c in layout.clusters])
    return np.where(layout.placed[s], np.where(declared > 0, declared, layout.capacity[s] / heaviest), 0.0)
