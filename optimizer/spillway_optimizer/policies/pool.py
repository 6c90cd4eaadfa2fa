"""One service's requests of every cluster under Waterfall: the model of SLATE appendix A, event by event.

Loads are generated at clusters; `routed[i, j]` (requests per second) is what cluster i sends to j. Events change
a load or a room, or activate the algorithm for one cluster. Nothing else happens by itself, and what was routed
stays until its cluster is activated: order and history matter, which is what the appendix shows.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

# Activations of every cluster before giving up on rest; two clusters may in theory take turns for ever.
_SWEEPS = 20


@dataclass(frozen=True)
class LoadChange:
    """Cluster `cluster` now generates `rps`; sent in the proportions in force until its next activation."""

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
    room: np.ndarray  # [C] rps that each cluster serves before it spills; 0: the service is not there
    orders: tuple[tuple[int, ...], ...]  # [C] where each cluster's requests may go, nearest first
    load: np.ndarray  # [C] rps generated
    routed: np.ndarray  # [from, to] rps

    @classmethod
    def idle(cls, room: np.ndarray, orders: Iterable[Iterable[int]]) -> "Pool":
        """No load anywhere."""
        n = len(room)
        return cls(np.asarray(room, float), tuple(map(tuple, orders)), np.zeros(n), np.zeros((n, n)))

    def after(self, *events: Event) -> "Pool":
        """The state once `events` have happened, in this order."""
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
            routed[i] *= rps / routed[i].sum()
        elif self.orders[i]:
            routed[i, self.orders[i][0]] = rps
        load[i] = rps
        return replace(self, load=load, routed=routed)

    def settled(self) -> "Pool":
        """Every cluster activated in turn until nothing changes any more."""
        pool = self
        for _ in range(_SWEEPS):
            before, pool = pool, pool.after(*(Activation(i) for i in range(len(self.load))))
            if np.allclose(before.routed, pool.routed, rtol=0.0, atol=1e-9):
                break
        return pool


def activate(
    routed: np.ndarray, i: int, load: float, room: np.ndarray, order: tuple[int, ...] | list[int]
) -> np.ndarray:
    """One activation of cluster `i`: a new `routed` [from, to] whose row i serves `load`.

    `order`: the clusters from nearest to farthest, i first where it can serve. What fits nowhere stays at the
    first of the order.
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
