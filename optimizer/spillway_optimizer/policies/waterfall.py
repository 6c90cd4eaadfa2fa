"""`waterfall`: SLATE section 2 and appendix A; Google's Traffic Director, without locality rings.

The policy decides per service and hop by hop. Requests stay local up to a static threshold. The
rest go to the nearest cluster with room, then the next. Every class counts as the heaviest. The
policy sees neither what a request does downstream, nor egress, nor how load becomes latency. One
cluster is activated at a time, and the others stay as they are (pool.py). An instance that is kept
carries its routing from one solve to the next, so order and history matter.

Of the side constraints it keeps denials, pins and draining (where calls may go at all). It ignores
the minimum local share, the maximum shift, the egress budget and the utilisation ceiling: its
threshold is its own.
"""

import numpy as np

from spillway_optimizer.policies.hops import Hop, by_service
from spillway_optimizer.policies.pool import Activation, LoadChange, Pool
from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.solution import Solution, from_shares


class Waterfall:
    """Its state is what the clusters sent where, for every service, after the last solve.

    In a new instance, every cluster first serves as much of its own load as it can. Only what is
    left over is then placed, cluster by cluster.
    """

    def __init__(self) -> None:
        self._clusters: tuple[str, ...] = ()
        self._routed: dict[str, Floats] = {}  # by service, [from, to] rps

    def route(self, problem: Problem) -> Solution:
        """Activates the clusters whose load has changed, then all in turn until nothing changes.

        Both happen in the problem's order.
        """
        start = {s: _aligned(r, self._clusters, problem.clusters) for s, r in self._routed.items()}
        ended: dict[str, Floats] = {}

        def decide(hop: Hop) -> Floats:
            # Every round starts from the last solve. Rounds only find the loads; they are not
            # events.
            ended[hop.service] = routed = _react(hop, start.get(hop.service)).routed
            return routed

        shares = by_service(problem, decide)
        self._clusters, self._routed = problem.clusters, ended
        return from_shares(problem, shares)


def _react(hop: Hop, routed: Floats | None) -> Pool:
    """Returns one service's pool after what has changed since the last solve.

    `routed` [from, to] is from the last solve; None: this is the first.
    """
    if routed is None:
        routed = np.diag(np.minimum(hop.calls, hop.room))
    # Calls that may no longer go where they went are routed anew, like load that has just arrived.
    kept = np.where(hop.usable, routed, 0.0)
    pool = Pool(hop.room, hop.orders, kept.sum(axis=1), kept)
    for i in np.flatnonzero(~np.isclose(pool.load, hop.calls, rtol=1e-9, atol=1e-9)):
        pool = pool.after(LoadChange(int(i), float(hop.calls[i])), Activation(int(i)))
    return pool.settled()


def _aligned(routed: Floats, old: tuple[str, ...], new: tuple[str, ...]) -> Floats:
    """Returns `routed` of the clusters `old` as [from, to] of the clusters `new`.

    Clusters that are new have nothing.
    """
    aligned = np.zeros((len(new), len(new)))
    both = [c for c in new if c in old]
    here, there = [new.index(c) for c in both], [old.index(c) for c in both]
    aligned[np.ix_(here, here)] = routed[np.ix_(there, there)]
    return aligned
