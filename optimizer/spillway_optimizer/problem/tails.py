"""Estimates the p99 of users' requests by entry class and cluster, from the spread of calls. Pure.

The time of a request has a mean, a variance and a third central moment. Up the call tree, those of
independent parts add. A call goes to one of its destinations at random, so its moments are those of
a mixture. Of a fractional number of calls per request, the fraction is the probability of one more
call, and of a call that is waited for in part, the share is the probability that it counts.

The time of one call at its service has the mean and the standard deviation of its curve, and the
skewness of an exponential distribution, which is that of waiting in a busy queue. Network times are
constant. The p99 is that of a gamma distribution that is shifted to have these three moments. It is
exact for M/M/1 queues in a row with equal rates, whatever the network adds.
"""

from dataclasses import dataclass

import numpy as np

from spillway_optimizer.problem.arrays import Floats, Ints
from spillway_optimizer.problem.layout import Layout

Z_99 = 2.3263478740408408  # quantile of the standard normal distribution
_SKEWNESS = 2.0  # of an exponential distribution
_MOST_SKEWNESS = 4.0  # up to it, the quantile below grows with the skewness


@dataclass(frozen=True)
class Tail:
    """The estimated p99 of an entry class's requests that enter in one cluster.

    `k`, `c`: indices of class and cluster. `p99_ms` is NaN if it is unknown. `target_ms`: inf if
    there is no target. `price`: what one ms above the target counts per request, in ms.
    """

    k: int
    c: int
    rps: float
    p99_ms: float
    target_ms: float = np.inf
    price: float = 0.0

    @property
    def exceeded_ms(self) -> float:
        """How far the p99 is above the target; 0 if it is not, or unknown."""
        over = self.p99_ms - self.target_ms
        return over if over > 0 else 0.0

    @property
    def penalty_ms_rps(self) -> float:
        """What that counts, in ms of waiting per second."""
        return self.price * self.exceeded_ms * self.rps


@dataclass(frozen=True)
class Moments:
    """Mean, variance and third central moment of a request's time, in powers of ms, all [K, C].

    NaN where the spread of a class in the call tree is unknown.
    """

    mean: Floats
    variance: Floats
    third: Floats


def targeted(layout: Layout, flows: Floats, queueing: Floats) -> tuple[Tail, ...]:
    """Returns the tails of all enforced targets, for each entry cluster with requests.

    `flows` [E, C, C] are in rps. `queueing` [S, C] is the factor 1 / (1 - u).
    """
    at, demand = p99(moments(layout, flows, queueing)), layout.demand
    return tuple(
        Tail(t.k, int(c), float(demand[t.k, c]), float(at[t.k, c]), t.p99_ms, t.price)
        for t in layout.targets
        for c in np.flatnonzero(demand[t.k] > 0)
    )


def estimates(layout: Layout, flows: Floats, queueing: Floats) -> tuple[Tail, ...]:
    """Returns the tails of all entry classes and clusters with requests. See `targeted`."""
    at, demand = p99(moments(layout, flows, queueing)), layout.demand
    targets = {t.k: (t.p99_ms, t.price) for t in layout.targets}
    return tuple(
        Tail(int(k), int(c), float(demand[k, c]), float(at[k, c]), *targets.get(int(k), ()))
        for k, c in zip(*np.nonzero(demand > 0), strict=True)
    )


def spread(layout: Layout, queueing: Floats) -> Floats:
    """[K, C] standard deviation of one call in ms, at the queueing factors [S, C]; NaN: unknown."""
    factor = queueing[layout.class_service]
    sd: Floats = np.maximum(layout.sd_a[:, None] * factor + layout.sd_b[:, None], 0.0)
    return sd


def moments(layout: Layout, flows: Floats, queueing: Floats) -> Moments:
    """Returns the moments of a request of each class in each cluster. Arguments: see targeted.

    Rows without calls count as if they made none.
    """
    mean = layout.a[:, None] * queueing[layout.class_service] + layout.b[:, None]
    sd = spread(layout, queueing)
    found = Moments(mean, sd**2, _SKEWNESS * sd**3)
    calls = flows.sum(axis=2, keepdims=True)
    shares = flows / np.where(calls > 0, calls, np.inf)
    busy = (calls[:, :, 0] > 0) & (layout.ratio > 0)[:, None]
    for edges in layout.up:
        raw = np.where(busy[edges], _mixed(found, layout, edges, shares), 0.0)
        whole = np.floor(layout.ratio[edges])
        part, wait = layout.ratio[edges] - whole, layout.edge_wait[edges]
        added = whole[:, None] * _thinned(raw, wait) + _thinned(raw, part * wait)
        for total, more in zip((found.mean, found.variance, found.third), added, strict=True):
            np.add.at(total, layout.edge_source[edges], more)
    return found


def _mixed(found: Moments, layout: Layout, edges: Ints, shares: Floats) -> Floats:
    """Returns the first three moments [3, n, from] about 0 of one call over each of `edges` [n].

    A call goes to each destination with the probability of its share [E, from, to].
    """
    to, network = layout.edge_target[edges], np.where(np.isfinite(layout.rtt), layout.rtt, 0.0)
    mean = found.mean[to][:, None, :] + network
    variance, third = found.variance[to][:, None, :], found.third[to][:, None, :]
    raw = np.stack([mean, variance + mean**2, third + 3.0 * variance * mean + mean**3])
    mixed: Floats = (shares[edges] * raw).sum(axis=3)
    return mixed


def _thinned(raw: Floats, probability: Floats) -> Floats:
    """Returns mean, variance and third central moment [3, n, C] of calls made with a probability.

    `raw`: moments about 0 of a call that is made, [3, n, C]. `probability`: [n].
    """
    first, second, third = probability[:, None] * raw
    return np.stack([first, second - first**2, third - 3.0 * first * second + 2.0 * first**3])


def p99(of: Moments) -> Floats:
    """[K, C] ms: mean plus a multiple of the standard deviation that grows with the skewness."""
    sd, skewness = shape(of)
    return of.mean + sd * quantile(skewness)[0]


def shape(of: Moments) -> tuple[Floats, Floats]:
    """Returns standard deviation in ms, and skewness limited to what `quantile` takes."""
    sd = np.sqrt(np.maximum(of.variance, 0.0))
    skewness = of.third / np.where(sd > 0, sd, np.inf) ** 3
    return sd, np.clip(skewness, 0.0, _MOST_SKEWNESS)


def quantile(skewness: Floats) -> tuple[Floats, Floats]:
    """Returns the p99 in standard deviations above the mean, and its derivative by the skewness.

    Of a shifted gamma distribution, by the approximation of Wilson and Hilferty. It is within 0.5 %
    of it up to a skewness of 2, and within 5 % up to 4.
    """
    rest = Z_99 - skewness / 6.0
    h = skewness * rest / 6.0
    h_slope = (Z_99 - skewness / 3.0) / 6.0
    series = 1.0 + h + h**2 / 3.0
    slope = -series / 6.0 + rest * h_slope * (1.0 + 2.0 * h / 3.0)
    return rest * series, np.where(skewness < _MOST_SKEWNESS, slope, 0.0)
