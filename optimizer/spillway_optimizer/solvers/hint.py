"""A routing of an earlier problem, as one more start for the next solve of the same call graph."""

from dataclasses import dataclass

import numpy as np

from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.layout import Layout
from spillway_optimizer.problem.objective import propagate

# The clusters, classes and services of a layout, and the indices of its edges' ends.
Names = tuple[tuple[object, ...], ...]
_ROUNDING = 1e-9  # of shares that sum to one


def names_of(layout: Layout) -> Names:
    """Returns the names that the axes of a layout's arrays stand for."""
    ends = tuple(layout.edge_source.tolist()), tuple(layout.edge_target.tolist())
    return layout.clusters, layout.classes, layout.services, *ends


@dataclass(frozen=True)
class Hint:
    """Shares [E, from, to] of a routing, and the names of the layout that they were found for."""

    names: Names
    shares: Floats

    def flows(self, layout: Layout) -> Floats | None:
        """Returns flows [E, C, C] in rps by `placed`, at the layout's demand."""
        shares = self.placed(layout)
        return None if shares is None else propagate(layout, shares)[0]

    def placed(self, layout: Layout) -> Floats | None:
        """Returns the shares [E, from, to], moved to where the layout's constraints allow them.

        Returns None if the names have changed, or if a row would lose all its destinations.
        """
        if names_of(layout) != self.names:
            return None
        rest = np.maximum(1.0 - layout.floor.sum(axis=2), 0.0)
        wanted = np.where(layout.free, np.maximum(self.shares - layout.floor, 0.0), 0.0)
        total = wanted.sum(axis=2)
        undecided = layout.usable.any(axis=2) & (rest > _ROUNDING) & (total <= 0)
        if undecided.any():
            return None
        part = np.where(total > 0, rest / np.where(total > 0, total, 1.0), 0.0)
        placed: Floats = layout.floor + wanted * part[:, :, None]
        return placed
