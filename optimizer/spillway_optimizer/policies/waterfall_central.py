"""`waterfall-central`: Waterfall run by one entity that knows all loads at once, without events.

SLATE appendix A leaves open whether Waterfall is centralised. Here, the requests of each service
are placed over all pairs of clusters in order of distance: local first everywhere, then the
shortest hop of all, then the next. Room that several clusters want at the same distance is split in
proportion.

There is no order of activation and no history, so the traps of A.1 and A.2 are gone. What is left
is greed: the room of a near cluster goes to the nearest caller, even where another caller has no
second choice. Thresholds, hops and blindness are those of waterfall.py. So are the side constraints
that it keeps (denials, pins, draining) and ignores (all others).
"""

from dataclasses import dataclass

import numpy as np

from spillway_optimizer.policies.hops import Hop, by_service
from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.solution import Solution, from_shares


@dataclass(frozen=True)
class WaterfallCentral:
    def route(self, problem: Problem) -> Solution:
        return from_shares(problem, by_service(problem, lambda hop: place(hop, problem.layout.rtt)))


def place(hop: Hop, rtt: Floats) -> Floats:
    """[from, to] rps of one service's calls.

    What fits nowhere goes to the first cluster of each caller's order.
    """
    routed, rest, room = np.zeros_like(rtt), hop.calls.astype(float).copy(), hop.room.copy()
    # The own cluster comes before a neighbour at 0 ms.
    distance = np.where(np.eye(len(rest), dtype=bool), -1.0, rtt)
    for ms in np.unique(distance[hop.usable]):
        pairs = hop.usable & (distance == ms)
        for j in np.flatnonzero(pairs.any(axis=0)):
            wanted = np.where(pairs[:, j], rest, 0.0)
            if wanted.sum() > 1e-12:
                taken = wanted * min(1.0, room[j] / wanted.sum())
                routed[:, j] += taken
                rest -= taken
                room[j] -= taken.sum()
    for i, order in enumerate(hop.orders):
        if order:
            routed[i, order[0]] += rest[i]
    return routed
