"""What a millisecond of each class counts if a millisecond of users' p99 has a price. Pure.

The p99 of an entry class (tails.py) is the sum of the means of all times that a request waits for,
and a function of the sums of their variances and third moments. A ms of a call's mean therefore
counts the price of a ms of the p99. A ms of its standard deviation counts the price times the
derivative of the p99 by it, which grows with the standard deviation: it is the derivative at one
routing. With a constant price, the cost of a class is still a multiple of 1 / (1 - u) and a
constant, so that each solver and each bound works as without tail targets.
"""

from collections.abc import Mapping

import numpy as np

from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.layout import Layout
from spillway_optimizer.problem.objective import queue_factor, utilisation
from spillway_optimizer.problem.tail_targets import Target
from spillway_optimizer.problem.tails import moments, quantile, shape, spread
from spillway_optimizer.problem.values import TailPrice

_RISING = 3.0  # d(sd^3) / d(sd) = 3 * sd^2; a call's third moment is 2 * sd^3


def tail_prices(
    layout: Layout, flows: Floats, load: Floats, multipliers: Mapping[Target, float]
) -> Mapping[str, TailPrice]:
    """Returns the prices by class at the routing of flows [E, C, C] and loads [K, C], in rps.

    `multipliers`: what one ms of the p99 counts per request, in ms, by target. Calls that belong to
    several entry classes have one price, the mean by volume.
    """
    queueing = queue_factor(utilisation(layout, load))
    by_variance, by_third = _slopes(layout, flows, queueing)
    total = load.sum(axis=1)
    served = np.where(total > 0, total, np.inf)
    sd = np.where(load > 0, load * spread(layout, queueing), 0.0).sum(axis=1) / served  # [K]
    mean, width = np.zeros_like(total), np.zeros_like(total)
    for target, multiplier in multipliers.items():
        part = multiplier * _waited(layout, flows, served, target.k) / served
        weight = layout.demand[target.k] / layout.demand[target.k].sum()
        variance, third = (float((weight * s[target.k])[weight > 0].sum()) for s in (by_variance, by_third))
        mean += part
        width += np.where(part > 0, part * (2.0 * variance * sd + 2.0 * _RISING * third * sd**2), 0.0)
    return {
        layout.classes[k]: TailPrice(float(mean[k]), max(float(width[k]), 0.0))
        for k in np.flatnonzero(mean > 0)
    }


def _slopes(layout: Layout, flows: Floats, queueing: Floats) -> tuple[Floats, Floats]:
    """Returns the derivatives [K, C] of the p99 by a request's variance and third moment."""
    sd, skewness = shape(moments(layout, flows, queueing))
    multiple, slope = quantile(skewness)
    sd = np.where(sd > 0, sd, np.inf)
    return (multiple - 3.0 * skewness * slope) / (2.0 * sd), slope / sd**2


def _waited(layout: Layout, flows: Floats, served: Floats, k: int) -> Floats:
    """[K] calls per second that requests of entry class `k` cause and wait for.

    `served` [K]: calls per second of all requests; inf without any.
    """
    waited = np.zeros_like(served)
    waited[k] = layout.demand[k].sum()
    made = layout.edge_wait * flows.sum(axis=(1, 2)) / served[layout.edge_source]
    for source, edges in enumerate(layout.out_edges):
        for e in edges:
            waited[layout.edge_target[e]] += made[e] * waited[source]
    return waited
