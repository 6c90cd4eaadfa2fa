"""The bound that the prices of a routing give where the objective is not convex.

At any prices of the stations' loads, weak duality gives the bound

    cost of demand, each call the cheapest way  -  sum over stations of  max_n price * n - cost(n)

The envelope's prices (envelope.py) are the best of this kind. The maximum is over any loads, also
those of requests that would have to come from far away. Here each station pays less for a request
by a part of the detour that it would have to make to come there (origins.py). That leaves the cost
of the demand as it is, and lowers the maximum (peaks.py). At the prices of a local minimum, little
is left to gain at a station, and the bound is close to the cost.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.penalties import budget_ms
from spillway_optimizer.solvers.convex import Convex
from spillway_optimizer.solvers.origins import Origins
from spillway_optimizer.solvers.peaks import Offers

_LEAST_NEED = 1e-6  # relative to the greatest
_QUICK = 50_000  # prices by entry cluster, class and cluster: some tenths of a second
_MISS = 0.01  # of what is left to prove: how much too high the peaks may be together


@dataclass(frozen=True)
class Known:
    """What is known of a routing: its cost, and a bound. Both are in ms of waiting per second."""

    value: float
    bound: float


def bound(
    relaxation: Convex,
    need: Floats,
    serving: Floats,
    egress_price: float,
    known: Known | None = None,
    late: Callable[[], bool] = lambda: False,
) -> float:
    """Returns a lower bound on the cost of every routing, in ms of waiting per second.

    `need` [S]: ms per normalised request that the envelope misses at each service. `serving`
    [K, C]: ms that one more request costs where it is served. `egress_price`: at least 1, and 1
    without a budget. These only decide how good the bound is. `known` decides how exact it needs to
    be. If it turns out to be below the known bound, or if the problem is large and the time was
    over (`late`) before it was found, the bound is -inf.
    """
    layout, service = relaxation.layout, relaxation.layout.class_service
    large = layout.demand.size * len(layout.clusters) > _QUICK
    if large and late():
        return -math.inf
    weight, priced = layout.weight, relaxation.priced
    share = np.maximum(need, max(_LEAST_NEED * float(need.max()), 1e-12))[service] * weight
    paid = np.where(priced[service], serving, relaxation.beta)
    hops = replace(relaxation, egress_price=egress_price).hops
    origins = Origins.of(layout, hops, paid, share)
    price = ((paid - relaxation.beta) - origins.detour) / weight[:, None]
    volume = np.broadcast_to((origins.volume * weight)[:, :, None], price.shape)
    alpha = np.broadcast_to(relaxation.alpha, price.shape)
    most = budget_ms(relaxation.problem)
    value = origins.cost - (0.0 if most is None else (egress_price - 1.0) * most)
    miss, lowest = 0.0, -math.inf
    if known is not None:
        lowest = known.bound
        miss = _MISS * max(known.value - lowest, 0.0) / max(int(priced.sum()), 1)
    for s in range(len(layout.services)):
        classes, there = np.flatnonzero(service == s), np.flatnonzero(priced[s])
        items = np.ix_(np.arange(len(price)), classes, there)
        if value <= lowest or (large and late()):
            return -math.inf
        if len(there):
            of_price, of_alpha, of_volume = (
                values[items].reshape(-1, len(there)).T for values in (price, alpha, volume)
            )
            offers = Offers(of_price, of_alpha, of_volume, layout.capacity[s, there], relaxation.ceiling)
            value -= float(offers.peaks(miss, value - lowest).sum())
    return value
