"""The requests for one service, from all clusters, under Waterfall (SLATE appendix A).

Clusters generate load. `routed[i, j]` (requests per second) is what cluster i sends to j. An event
changes a load or a room, or activates the algorithm for one cluster. Nothing else happens by
itself, and what was routed stays until its cluster is activated. Order and history therefore
matter, which is what the appendix shows.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from spillway_optimizer.problem.arrays import Floats

# Activations of every cluster before giving up. In theory two clusters may take turns for ever.
_SWEEPS = 20


@dataclass(frozen=True)
class LoadChange:
    """Cluster `cluster` now generates `rps`.

    They are sent in the proportions in force until its next activation.
    """

    cluster: int
    rps: float


@dataclass(frozen=True)
class RoomChange:
    """Cluster `cluster` may now serve `rps` before it spills."""

    cluster: int
    rps: float


@dataclass(frozen=True)
class Activation:
    """The algorithm runs for the load that `cluster` generates."""

    cluster: int


Event = LoadChange | RoomChange | Activation


@dataclass(frozen=True)
class Pool:
    """The state of the model. Events lead from one state to the next."""

    room: Floats  # [C] rps that each cluster serves before it spills; 0: the service is not there
    orders: tuple[tuple[int, ...], ...]  # [C] where each cluster's requests may go, nearest first
    load: Floats  # [C] rps generated
    routed: Floats  # [from, to] rps

    @classmethod
    def idle(cls, room: Floats, orders: Iterable[Iterable[int]]) -> "Pool":
        """Returns the state without load anywhere."""
        n = len(room)
        return cls(np.asarray(room, float), tuple(map(tuple, orders)), np.zeros(n), np.zeros((n, n)))

    def after(self, *events: Event) -> "Pool":
        """Returns the state once `events` have happened, in this order."""
        pool = self
        for event in events:
            match event:
                case LoadChange(i, rps):
                    pool = pool._loaded(i, rps)
                case RoomChange(i, rps):
                    room = pool.room.copy()
                    room[i] = rps
                    pool = replace(pool, room=room)
                case Activation(i):
                    routed = activate(pool.routed, i, float(pool.load[i]), pool.room, pool.orders[i])
                    pool = replace(pool, routed=routed)
        return pool

    def _loaded(self, i: int, rps: float) -> "Pool":
        load, routed = self.load.copy(), self.routed.copy()
        if routed[i].sum() > 0:
            # Shares first: the sum may be so small that a quotient by it is infinite.
            routed[i] = routed[i] / routed[i].sum() * rps
        elif self.orders[i]:
            routed[i, self.orders[i][0]] = rps
        load[i] = rps
        return replace(self, load=load, routed=routed)

    def settled(self) -> "Pool":
        """Activates every cluster in turn until nothing changes any more.

        Stops after _SWEEPS turns in any case.
        """
        pool = self
        for _ in range(_SWEEPS):
            before, pool = pool, pool.after(*(Activation(i) for i in range(len(self.load))))
            if np.allclose(before.routed, pool.routed, rtol=0.0, atol=1e-9):
                break
        return pool


def activate(routed: Floats, i: int, load: float, room: Floats, order: tuple[int, ...] | list[int]) -> Floats:
    """Activates cluster `i` once: returns a new `routed` [from, to] whose row `i` serves `load`.

    `order` has the clusters from nearest to farthest, with `i` first where it can serve. What fits
    nowhere goes to the first of the order.
    """
    routed = routed.copy()
    routed[i] = 0.0
    rest = load
    for j in order:
        taken = min(rest, max(room[j] - routed[:, j].sum(), 0.0))
        routed[i, j] += taken
        rest -= taken
    if order:
        routed[i, order[0]] += rest
    return routed
