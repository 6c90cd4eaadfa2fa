"""Distance as the baselines see it: the own cluster first, then the others by round-trip time."""

import numpy as np

from spillway_optimizer.problem.arrays import Bools, Floats
from spillway_optimizer.problem.layout import Layout
from spillway_optimizer.problem.problem import Problem


def nearest_first(layout: Layout, usable: Bools, i: int) -> list[int]:
    """Returns the indices of the `usable` [C] clusters, nearest to cluster `i` first.

    Ties keep the problem's order.
    """
    return sorted(np.flatnonzero(usable).tolist(), key=lambda j: (j != i, layout.rtt[i, j], j))


def nearest_shares(problem: Problem) -> Floats:
    """[E, from, to] shares that send everything to the nearest cluster that can serve it."""
    layout = problem.layout
    shares = np.zeros(layout.usable.shape)
    for e, usable in enumerate(layout.usable):
        for i in np.flatnonzero(usable.any(axis=1)):
            shares[e, i, nearest_first(layout, usable[i], int(i))[0]] = 1.0
    return shares
