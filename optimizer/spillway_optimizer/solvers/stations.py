"""The cost of load at a station (a service in a cluster), and its price.

    phi(n) = alpha * n * queue_factor(n / capacity)  +  what exceeding the utilisation ceiling costs

n is normalised load (rps). phi is in milliseconds of waiting per second, convex and increasing.
Everything works elementwise on arrays of one shape.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from spillway_optimizer.problem.arrays import Bools, Floats, Ints
from spillway_optimizer.problem.objective import U_LINEAR, queue_factor, queue_slope
from spillway_optimizer.problem.penalties import CEILING_MS

_EDGE = 1.0 / (1.0 - U_LINEAR)
_ROOT_STEPS = 30
_SETTLED = 1e-12  # relative step at which a root is found


@dataclass(frozen=True)
class Stations:
    """The cost functions of a number of stations.

    Indexing selects stations, as in the arrays.
    """

    alpha: Floats  # ms, at least 0
    capacity: Floats  # normalised rps
    ceiling: float  # utilisation above which load costs CEILING_MS; inf: no ceiling

    def __getitem__(self, index: Ints | tuple[Ints, Ints]) -> Self:
        return type(self)(self.alpha[index], self.capacity[index], self.ceiling)

    @property
    def priced(self) -> Bools:
        """bool: load has a price there."""
        priced: Bools = (self.alpha > 0) | np.isfinite(self.ceiling)
        return priced

    def phi(self, n: Floats | np.float64) -> Floats:
        """Returns the cost of load, in ms of waiting per second."""
        cost: Floats = self.alpha * n * queue_factor(n / self.capacity) + self.beyond(n)
        return cost

    def beyond(self, n: Floats | np.float64) -> Floats:
        """Returns the part of phi that is the penalty for exceeding the ceiling."""
        over = np.maximum(n / self.capacity - self.ceiling, 0.0)
        penalty: Floats = 0.5 * CEILING_MS * self.capacity * over**2
        return penalty

    def slope(self, n: Floats | np.float64) -> Floats:
        """Returns the price: the ms that one more request of the baseline class costs everybody."""
        u = n / self.capacity
        slope: Floats = self.alpha * (queue_factor(u) + u * queue_slope(u)) + CEILING_MS * np.maximum(
            u - self.ceiling, 0.0
        )
        return slope

    def curvature(self, n: Floats) -> Floats:
        """Returns the derivative of slope."""
        return (self._bend(n) + CEILING_MS * (n >= self.ceiling * self.capacity)) / self.capacity

    def _bend(self, n: Floats) -> Floats:
        """Returns the derivative of the queue's part of slope, by utilisation."""
        u = n / self.capacity
        return self.alpha * np.where(
            u <= U_LINEAR, 2.0 / (1.0 - np.minimum(u, U_LINEAR)) ** 3, 2.0 * _EDGE**2
        )

    def at(self, price: Floats) -> Floats:
        """Returns the load whose slope is `price`, which must be at least alpha.

        It is the largest load that this price pays for.
        """
        if np.isinf(self.ceiling):
            return self._below(price)
        edge = self.ceiling * self.capacity
        bend = np.maximum(edge, U_LINEAR * self.capacity)
        base, top = self.slope(edge), self.slope(bend)
        below = np.where(self.alpha > 0, np.minimum(self._below(price), edge), edge)
        # Beyond both the ceiling and U_LINEAR the slope is linear. Between them it is convex. From
        # the right of the root of a convex increasing function, Newton's method never passes the
        # root.
        steep = 2.0 * self.alpha * _EDGE**2 + CEILING_MS
        n = np.clip(edge + (price - base) / CEILING_MS * self.capacity, edge, bend)
        for _ in range(_ROOT_STEPS):
            step = (self.slope(n) - price) * self.capacity / (self._bend(n) + CEILING_MS)
            n = np.maximum(n - step, edge)
            if (np.abs(step) <= _SETTLED * n).all():
                break
        above = np.where(price > top, bend + (price - top) * self.capacity / steep, n)
        return np.where(price > base, above, below)

    def _below(self, price: Floats) -> Floats:
        """`at` without a ceiling: slope is alpha / (1 - u)^2, and linear beyond U_LINEAR."""
        ratio = np.maximum(price / np.where(self.alpha > 0, self.alpha, np.inf), 1.0)
        beyond = U_LINEAR + (ratio - _EDGE**2) / (2.0 * _EDGE**2)
        return self.capacity * np.where(ratio <= _EDGE**2, 1.0 - np.sqrt(1.0 / ratio), beyond)

    def conjugate(self, price: Floats) -> Floats:
        """Returns the maximum over n of price * n - phi(n)."""
        n = self.at(price)
        return price * n - self.phi(n)

    def root(self, price: Floats) -> Floats:
        """Returns t = sqrt(conjugate(price) / capacity). Below ceiling and U_LINEAR this is
        sqrt(price) - sqrt(alpha)."""
        root: Floats = np.sqrt(np.maximum(self.conjugate(price), 0.0) / self.capacity)
        return root

    def price(self, root: Floats) -> Floats:
        """Returns the price whose `root` this is; the inverse of `root`."""
        a = np.sqrt(self.alpha)
        below = np.where(
            root <= (_EDGE - 1.0) * a,
            (a + root) ** 2,
            2.0 * _EDGE * a * root - _EDGE * (_EDGE - 2.0) * self.alpha,
        )
        crowded = root > self._ceiling_root
        return np.where(crowded, self.slope(self._above(root)), below) if crowded.any() else below

    def gain(self, root: Floats) -> Floats:
        """Returns the derivative of `price` by the root."""
        a = np.sqrt(self.alpha)
        below = 2.0 * np.minimum(a + root, _EDGE * a)
        crowded = root > self._ceiling_root
        if not crowded.any():
            return below
        return np.where(crowded, 2.0 * self.capacity * root / self._above(root), below)

    def bend(self, root: Floats) -> Floats:
        """Returns the derivative of `gain` by the root."""
        below = np.where(root <= (_EDGE - 1.0) * np.sqrt(self.alpha), 2.0, 0.0)
        crowded = root > self._ceiling_root
        if not crowded.any():
            return below
        n = self._above(root)
        gain = 2.0 * self.capacity * root / n
        return np.where(crowded, gain / np.maximum(root, 1e-300) - gain**2 / (n * self.curvature(n)), below)

    @cached_property
    def hyperbolic(self) -> Floats:
        """The greatest root below both ceiling and U_LINEAR."""
        hyperbolic: Floats = np.minimum((_EDGE - 1.0) * np.sqrt(self.alpha), self._ceiling_root)
        return hyperbolic

    @cached_property
    def _ceiling_root(self) -> Floats:
        """The root at the price of the ceiling; inf without one."""
        if np.isinf(self.ceiling):
            return np.full_like(self.alpha, np.inf)
        edge = self.ceiling * self.capacity
        root: Floats = np.sqrt(np.maximum(self.slope(edge) * edge - self.phi(edge), 0.0) / self.capacity)
        return root

    @cached_property
    def _bend_root(self) -> Floats:
        """The root beyond both ceiling and U_LINEAR, where the slope becomes linear."""
        return self.root(self.slope(np.maximum(self.ceiling, U_LINEAR) * self.capacity))

    def _above(self, root: Floats) -> Floats:
        """Returns the load that a root above that of the ceiling pays for.

        The difference of two squared roots is the integral of u * d(slope) between their loads.
        """
        edge = self.ceiling * self.capacity
        bend, top = np.maximum(edge, U_LINEAR * self.capacity), self._bend_root
        # Beyond the bend the slope is linear. Before it the integral is convex in u, and at least
        # that of CEILING_MS alone, from whose solution Newton's method never passes the root.
        steep = 2.0 * self.alpha * _EDGE**2 + CEILING_MS
        linear = np.sqrt((bend / self.capacity) ** 2 + 2.0 * np.maximum(root**2 - top**2, 0.0) / steep)
        over = np.maximum(root**2 - self._ceiling_root**2, 0.0)
        n = np.minimum(np.sqrt(self.ceiling**2 + 2.0 * over / CEILING_MS) * self.capacity, bend)
        for _ in range(_ROOT_STEPS):
            left = (self.slope(n) * n - self.phi(n)) / self.capacity - self._ceiling_root**2 - over
            step = left * self.capacity**2 / (n * (self._bend(n) + CEILING_MS))
            n = np.maximum(n - step, edge)
            if (np.abs(step) <= _SETTLED * n).all():
                break
        return np.where(root > top, linear * self.capacity, n)
