"""The call trees of the applications, as the dual solver walks them.

They depend on the call graph, on where calls may go, and on which stations have a price. They stay
the same while only loads, curves and capacities change, so they are kept from solve to solve.
Shapes: K classes, S services, E edges, C clusters of an application; D stations that have a price.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from spillway_optimizer.problem.arrays import Bools, Floats, Ints
from spillway_optimizer.problem.layout import Layout
from spillway_optimizer.solvers.levels import Level, applications, levels, stations
from spillway_optimizer.solvers.response import Response


@dataclass(frozen=True)
class Trees:
    """The call trees of one application. Its classes share no service with others."""

    classes: Ints  # [K] index in the layout
    edges: Ints  # [E] index in the layout, callees before their callers
    services: Ints  # [S] index in the layout
    class_service: Ints  # [K] index in `services`
    station: Ints  # [S, C] index below D, or -1: no price
    floor: Floats  # [E, C, C] least shares
    rest: Floats  # [E, C] share of the calls that the floors leave free
    free: Bools  # [E, C, C] where more than the floor may go
    open: Bools  # [E, C] rows that have a free destination
    held: bool  # whether any usable destination is not free
    floors: bool  # whether any floor is above 0
    response: Response
    up: tuple[Level, ...]  # callees before their callers
    down: tuple[Level, ...]  # callers before their callees

    @classmethod
    def of(cls, layout: Layout, priced: Bools, classes: Ints) -> Self:
        """Takes the given classes (indices in the layout). `priced` [S, C] is of the layout."""
        edges = _in_walking_order(layout, np.flatnonzero(np.isin(layout.edge_source, classes)))
        services, class_service = np.unique(layout.class_service[classes], return_inverse=True)
        usable, floor, free = layout.usable[edges], layout.floor[edges], layout.free[edges]
        up, down = levels(layout, classes, edges)
        station = stations(priced[services], class_service, up)
        return cls(
            classes, edges, services, class_service, station, floor,
            rest=np.maximum(1.0 - floor.sum(axis=2), 0.0),
            free=free,
            open=np.any(free, axis=2),
            held=bool((usable & ~free).any()),
            floors=bool(floor.any()),
            response=Response.of(station, class_service, up),
            up=up,
            down=down,
        )  # fmt: skip

    @cached_property
    def places(self) -> tuple[Ints, Ints]:
        """Service and cluster of each station, as two index arrays [D]."""
        s, c = np.nonzero(self.station >= 0)
        order = np.argsort(self.station[s, c])
        return s[order], c[order]

    @cached_property
    def evenly(self) -> Floats:
        """[E, C, C] logarithms of equal shares; -inf where calls cannot go."""
        return np.where(self.free, -np.log(np.maximum(self.free.sum(axis=2), 1))[:, :, None], -np.inf)


def _in_walking_order(layout: Layout, edges: Ints) -> Ints:
    """Sorts edges so that those that are handled together are next to each other.

    Arrays of their values are views then, instead of copies.
    """
    source, target = layout.edge_source[edges], layout.edge_target[edges]
    order = np.lexsort((source, layout.class_service[target], layout.height[target]))
    return edges[order]


@dataclass
class Forest:
    """The trees of all applications of the last problem that was solved.

    Copies in other processes are empty. To make the trees again takes less time than to send them.
    """

    # What the trees were made of, and the trees. One value, so that threads never see half of it.
    _known: tuple[tuple[Floats | Ints | Bools, ...], tuple[Trees, ...]] | None = None

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        return type(self), ()

    def trees(self, layout: Layout, priced: Bools) -> tuple[Trees, ...]:
        """Returns the trees of a layout. They are made anew only if something in them changed."""
        made_of = (
            layout.class_service, layout.edge_source, layout.edge_target, layout.ratio,
            layout.usable, layout.free, layout.floor, priced,
        )  # fmt: skip
        known = self._known
        if known is None or not all(map(np.array_equal, made_of, known[0])):
            trees = tuple(Trees.of(layout, priced, classes) for classes in applications(layout))
            self._known = known = made_of, trees
        return known[1]
