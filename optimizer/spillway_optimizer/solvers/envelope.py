"""The convex envelope of what the classes at a station cost together.

The classes k that load a station with n[k] cost

    sum(alpha[k] * n[k]) * counted(sum(n) / capacity)  +  the penalty beyond the ceiling

which is not convex unless all alpha are equal. A class alone costs phi_k(n), which is convex
(stations.py). The largest convex function that equals phi_k on each axis is never above the cost:
the mixture of the axes in the proportions n[k] / sum(n) costs exactly as much. Its conjugate is the
greatest of the conjugates of phi_k. One number t per station therefore gives the prices of all its
classes:

    envelope(n)  =  max over t of  sum(price_k(t) * n[k])  -  capacity * t^2

price_k(t) is the price at which the conjugate of phi_k is capacity * t^2. Below the ceiling,
U_LINEAR and what is extrapolated with caution, it is (sqrt(alpha[k]) + t)^2, and the envelope is

    sum(alpha * n)  +  sum(sqrt(alpha) * n)^2 / (capacity - sum(n))

Prices are stated as those of a reference station, whose alpha lies among those of the classes.
Where all alpha are equal they are the prices of all classes.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from spillway_optimizer.problem.arrays import Bools, Floats, Ints
from spillway_optimizer.solvers.stations import Stations

_STEPS = 40
_NEAR = 1e-10


@dataclass(frozen=True)
class Envelope:
    """The classes K in clusters C, and the stations D that they load."""

    stations: Stations  # [D] the reference
    classes: Stations  # [K, C] each class alone
    station: Ints  # [K, C] index below D, or -1: no price

    @cached_property
    def even(self) -> bool:
        """Whether the alphas at each station are equal, so that the cost is convex itself."""
        return bool(self._same.all())

    @cached_property
    def _ones(self) -> Floats:
        return np.ones(self.station.shape)

    @cached_property
    def _same(self) -> Bools:
        """[K, C] bool: alpha is the reference's, or there is no price."""
        same: Bools = (self.station < 0) | (self.classes.alpha == self._spread(self.stations.alpha))
        return same

    @cached_property
    def uneven(self) -> Bools:
        """[D] bool: the alphas of the station's classes differ."""
        uneven = np.zeros(self.stations.alpha.shape, dtype=bool)
        uneven[self.station[~self._same]] = True
        return uneven

    def total(self, n: Floats) -> Floats:
        """Returns the sum [D] over the classes of each station, from [K, C]."""
        count = len(self.stations.alpha)
        total: Floats = np.bincount(self._number, np.ravel(n), count + 1)[:count].astype(float)
        return total

    @cached_property
    def _number(self) -> Ints:
        """The stations of the classes in one row; D: no price."""
        number: Ints = np.where(self.station < 0, len(self.stations.alpha), self.station).ravel()
        return number

    def prices(self, price: Floats) -> Floats:
        """Returns each class's price [K, C] of normalised load, from the reference's [D]."""
        prices = self._spread(price)
        if self.even:
            return prices
        root = self._spread(self.stations.root(price))
        return np.where(self._same, prices, self.classes.price(root))

    def pull(self, price: Floats) -> Floats:
        """Returns the derivative [K, C] of `prices` by the reference's price [D]."""
        if self.even:
            return self._ones
        root = self.stations.root(price)
        base = self._spread(self.stations.gain(root))
        gain = self.classes.gain(self._spread(root))
        return np.where(self._same, 1.0, gain / np.where(base > 0, base, 1.0))

    def stiffening(self, price: Floats, n: Floats) -> Floats:
        """Returns how much less the stations draw [D] per price because the pull of loads falls.

        `n`: normalised loads [K, C]. Where the pull rises, 0.
        """
        if self.even:
            return np.zeros_like(price)
        root = self.stations.root(price)
        gain, there = self.stations.gain(root), self._spread(root)
        rise = self.stations.bend(root) / np.where(gain > 0, gain, 1.0)
        own = self.classes.bend(there) - self.classes.gain(there) * self._spread(rise)
        change = self.total(np.where(self._same, 0.0, own * n)) / np.where(gain > 0, gain, 1.0) ** 2
        stiffening: Floats = np.maximum(-change, 0.0)
        return stiffening

    def reference(self, n: Floats) -> Floats:
        """Returns the reference's price [D] at which the classes pay for normalised loads [K, C].

        It is the maximum's t, as a price.
        """
        total = self.total(n)
        slope = self.stations.slope(total)
        if self.even:
            return slope
        return np.where(self.uneven, self.stations.price(self._root(n, total)), slope)

    def cost(self, n: Floats) -> Floats:
        """Returns the envelope [D] at normalised loads [K, C]."""
        total = self.total(n)
        phi = self.stations.phi(total)
        if self.even:
            return phi
        root = self._root(n, total)
        priced = self.total(self.classes.price(self._spread(root)) * n)
        return np.where(self.uneven, priced - self.stations.capacity * root**2, phi)

    def left(self, price: Floats, n: Floats, conjugate: float) -> float:
        """Returns what better prices [D] could still gain at normalised loads [K, C].

        It is the stations' costs, plus the sum of their conjugates, minus what the loads pay
        (Fenchel).
        """
        if self.even:
            paid = (price * self.total(n)).sum()
        else:
            paid = (self.prices(price) * n).sum()
        return float(self.cost(n).sum() + conjugate - paid)

    def _spread(self, values: Floats) -> Floats:
        """Returns values [D] for each class [K, C]; 0 where there is no price."""
        spread: Floats = np.append(values, 0.0)[self.station]
        return spread

    def _root(self, n: Floats, total: Floats) -> Floats:
        """Returns the t [D] of the maximum: sum(n / load that t pays for) = 1."""
        capacity, there = self.stations.capacity, (n > 0) & (self.station >= 0)
        room = np.maximum(capacity - total, 0.0)
        mean = self.total(np.sqrt(self.classes.alpha) * n)
        root = np.where(mean > 0, mean / np.maximum(room, 1e-300), 0.0)
        # The closed form holds where each class that is there is below these limits.
        beyond = self._spread(total) > self._spread(self.stations.ceiling * capacity)
        crowded = there & (beyond | (self._spread(root) > self.classes.hyperbolic))
        at = np.unique(self.station[crowded])
        if not len(at):
            return root
        alone = self.classes.root(self.classes.slope(self._spread(total)))
        low, high = np.full(len(capacity) + 1, np.inf), np.zeros(len(capacity) + 1)
        np.minimum.at(low, self.station[there], alone[there])
        np.maximum.at(high, self.station[there], alone[there])
        found = self._between(n, low[:-1], high[:-1])
        root[at] = found[at]
        return root

    def _between(self, n: Floats, low: Floats, high: Floats) -> Floats:
        """Finds t between two bounds [D] by false position (Illinois)."""
        low = np.where(np.isfinite(low), low, 0.0)

        def missing(root: Floats) -> Floats:
            gain = self.total(n * self.classes.gain(self._spread(root)))
            missing: Floats = gain - 2.0 * self.stations.capacity * root
            return missing

        at_low, at_high = np.maximum(missing(low), 0.0), np.minimum(missing(high), 0.0)
        root, side = high, np.zeros(len(low))
        for _ in range(_STEPS):
            span = at_low - at_high
            part = np.where(span > 0, at_low / np.where(span > 0, span, 1.0), 0.0)
            root = low + part * (high - low)
            left = missing(root)
            if (np.abs(left) <= _NEAR * self.stations.capacity * root).all():
                break
            over = left > 0
            at_high = np.where(over & (side > 0), 0.5 * at_high, np.where(over, at_high, left))
            at_low = np.where(~over & (side < 0), 0.5 * at_low, np.where(over, left, at_low))
            low, high = np.where(over, root, low), np.where(over, high, root)
            side = np.where(over, 1.0, -1.0)
        return root
