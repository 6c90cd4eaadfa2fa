"""What it costs requests to be served where they do not go at given prices, by where they enter.

No request is served without having entered somewhere, and routing does not change how many enter
where. So a service in a cluster can have no more load from an entry cluster than all of it, and
load that would have to make a detour pays for the detour.

Shapes: O entry clusters, which are all C clusters; K classes; E edges.
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.layout import Layout

_TOGETHER = 200_000  # sums of ways and detours at once


@dataclass(frozen=True)
class Origins:
    """The volume of each class by entry cluster, and what its detours cost."""

    cost: float  # ms per second of all demand, each call the cheapest way
    volume: Floats  # [O, K] rps
    detour: Floats  # [O, K, C] ms per request of the class there; inf where none can come

    @classmethod
    def of(cls, layout: Layout, hops: Floats, serving: Floats, need: Floats) -> Self:
        """Walks the call graph once up and once down.

        `hops`: [E, C, C] ms per call, inf where calls cannot go. `serving`: [K, C] ms that a
        request costs where it is served. `need`: [K] above 0. A detour of a call moves all the
        calls below it. Its cost is divided among these in proportion to `need`. The parts of the
        detours on a request's way never add up to more than the detours cost.
        """
        cost, detour, below = _up(layout, hops, serving, need)
        return cls(
            float((layout.demand * cost)[layout.demand > 0].sum()),
            layout.volume.T,
            _down(layout, detour, below) * need[:, None],
        )


def _up(layout: Layout, hops: Floats, serving: Floats, need: Floats) -> tuple[Floats, Floats, Floats]:
    """Returns the least cost of a request [K, C], of detours [E, C, C], and the need [K] below.

    A detour is a call that does not go the cheapest way, unless a floor sends it there.
    """
    cost, detour, below = serving.copy(), np.full(hops.shape, np.inf), need.copy()
    rest, open_ = np.maximum(1.0 - layout.floor.sum(axis=2), 0.0), np.any(layout.free, axis=2)
    for edges in layout.up:
        source, target = layout.edge_source[edges], layout.edge_target[edges]
        floor, ratio = layout.floor[edges], layout.ratio[edges]
        calls = hops[edges] + cost[target][:, None, :]
        free = np.where(layout.free[edges], calls, np.inf)
        least = np.where(open_[edges], free.min(axis=2), 0.0)
        detour[edges] = np.where(floor > 0, 0.0, free - least[:, :, None])
        kept = (floor * np.where(floor > 0, calls, 0.0)).sum(axis=2)
        np.add.at(cost, source, ratio[:, None] * (rest[edges] * least + kept))
        np.add.at(below, source, ratio * below[target])
    return cost, detour, below


def _down(layout: Layout, detour: Floats, below: Floats) -> Floats:
    """Returns the least cost of detours [O, K, C] on a request's way there, per need."""
    count = len(layout.clusters)
    entering = np.eye(count, dtype=bool)[None, :, :] & (layout.demand > 0)[:, :, None]
    way = np.where(entering, 0.0, np.inf)  # [K, O, C]
    for level in layout.down:
        for edges in np.array_split(level, math.ceil(len(level) * count**3 / _TOGETHER)):
            source, target = layout.edge_source[edges], layout.edge_target[edges]
            further = detour[edges] / below[target][:, None, None]
            through = (way[source][:, :, :, None] + further[:, None, :, :]).min(axis=2)
            for to, least in zip(target.tolist(), through, strict=True):
                np.minimum(way[to], least, out=way[to])
    return way.transpose(1, 0, 2)
