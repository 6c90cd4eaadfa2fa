"""`waterfall`: SLATE section 2 and appendix A; Google's Traffic Director, without locality rings.

Per service, hop by hop: requests stay local up to a static threshold, the rest go to the nearest cluster with
room, then the next. Every class counts as the heaviest. It sees neither what a request does downstream, nor
egress, nor how load becomes latency. One cluster is activated at a time and the others stay as they are
(pool.py), so a kept instance carries its routing from one solve into the next: history and order tell.

Of the side constraints it keeps to denials, pins and draining (where calls may go at all). It ignores the minimum
local share, the maximum shift, the egress budget and the utilisation ceiling: its threshold is its own.
"""

import numpy as np

from spillway_optimizer.policies.hops import Hop, by_service
from spillway_optimizer.policies.pool import Activation, LoadChange, Pool
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.solution import Solution, from_shares


class Waterfall:
    """State: what every service's clusters sent where after the last solve. A new instance finds every cluster
    serving of its own what it can; only what is left over is then placed cluster by cluster."""

    def __init__(self) -> None:
        self._clusters: tuple[str, ...] = ()
        self._routed: dict[str, np.ndarray] = {}  # by service, [from, to] rps

    def route(self, problem: Problem) -> Solution:
        """Clusters whose load has changed are activated first, in the problem's order, then all in turn until
        nothing changes."""
        start = {s: _aligned(r, self._clusters, problem.clusters) for s, r in self._routed.items()}
        ended: dict[str, np.ndarray] = {}

        def decide(hop: Hop) -> np.ndarray:
            # Every round starts from the last solve: rounds find the loads, they are not events.
            ended[hop.service] = routed = _react(hop, start.get(hop.service)).routed
            return routed

        shares = by_service(problem, decide)
        self._clusters, self._routed = problem.clusters, ended
        return from_shares(problem, shares)


def _react(hop: Hop, routed: np.ndarray | None) -> Pool:
    if routed is None:
        routed = np.diag(np.minimum(hop.calls, hop.room))
    # What a cluster sent where it may no longer go is routed anew, like load that has just arrived.
    kept = np.where(hop.usable, routed, 0.0)
    pool = Pool(hop.room, hop.orders, kept.sum(axis=1), kept)
    for i in np.flatnonzero(~np.isclose(pool.load, hop.calls, rtol=1e-9, atol=1e-9)):
        pool = pool.after(LoadChange(int(i), float(hop.calls[i])), Activation(int(i)))
    return pool.settled()


def _aligned(routed: np.ndarray, old: tuple[str, ...], new: tuple[str, ...]) -> np.ndarray:
    """`routed` of clusters `old` as [from, to] of clusters `new`; those that came have nothing."""
    aligned = np.zeros((len(new), len(new)))
    both = [c for c in new if c in old]
    here, there = [new.index(c) for c in both], [old.index(c) for c in both]
    aligned[np.ix_(here, here)] = routed[np.ix_(there, there)]
    return aligned
