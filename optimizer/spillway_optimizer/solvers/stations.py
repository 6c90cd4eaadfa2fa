"""The cost of load at a station (a service in a cluster), and its price.

    phi(n) = alpha * n * counted(n / capacity)  +  what exceeding the utilisation ceiling costs

n is normalised load (rps). counted is queue_factor, and what it has above its tangent at `seen`
again, times the caution. phi is in milliseconds of waiting per second, convex and increasing.
Everything works elementwise on arrays of one shape.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from spillway_optimizer.problem.arrays import Bools, Floats, Ints
from spillway_optimizer.problem.objective import U_LINEAR, extrapolated, queue_factor, queue_slope
from spillway_optimizer.problem.penalties import CEILING_MS

_EDGE = 1.0 / (1.0 - U_LINEAR)
_CORNER = U_LINEAR * (1.0 + 1e-12)  # the derivative at U_LINEAR is that below it, also if rounded
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
    seen: Floats  # highest utilisation that curves were fitted to; inf: unknown
    caution: float  # factor of what is extrapolated beyond it; 0: none

    def __getitem__(self, index: Ints | tuple[Ints, Ints]) -> Self:
        return type(self)(
            self.alpha[index], self.capacity[index], self.ceiling, self.seen[index], self.caution
        )

    @property
    def priced(self) -> Bools:
        """bool: load has a price there."""
        priced: Bools = (self.alpha > 0) | np.isfinite(self.ceiling)
        return priced

    def phi(self, n: Floats | np.float64) -> Floats:
        """Returns the cost of load, in ms of waiting per second."""
        cost: Floats = self.alpha * n * self._counted(n / self.capacity)[0] + self.beyond(n)
        return cost

    def _counted(self, u: Floats) -> tuple[Floats, Floats]:
        """Returns the factor by which queueing counts, and its derivative by utilisation."""
        if self.caution == 0.0:
            return queue_factor(u), queue_slope(u)
        factor, slope = extrapolated(u, self.seen)
        return queue_factor(u) + self.caution * factor, queue_slope(u) + self.caution * slope

    def beyond(self, n: Floats | np.float64) -> Floats:
        """Returns the part of phi that is the penalty for exceeding the ceiling."""
        over = np.maximum(n / self.capacity - self.ceiling, 0.0)
        penalty: Floats = 0.5 * CEILING_MS * self.capacity * over**2
        return penalty

    def slope(self, n: Floats | np.float64) -> Floats:
        """Returns the price: the ms that one more request of the baseline class costs everybody."""
        u = n / self.capacity
        factor, steep = self._counted(u)
        slope: Floats = self.alpha * (factor + u * steep) + CEILING_MS * np.maximum(u - self.ceiling, 0.0)
        return slope

    def curvature(self, n: Floats) -> Floats:
        """Returns the derivative of slope."""
        return (self._bend(n) + CEILING_MS * (n >= self.ceiling * self.capacity)) / self.capacity

    def _bend(self, n: Floats) -> Floats:
        """Returns the derivative of the queue's part of slope, by utilisation.

        It falls at U_LINEAR. There it is the derivative from below: Newton's method often begins
        there, and with the other one it passes the root.
        """
        u = n / self.capacity
        bend = np.where(u <= _CORNER, 2.0 / (1.0 - np.minimum(u, U_LINEAR)) ** 3, 2.0 * _EDGE**2)
        if self.caution > 0.0:
            edge = np.minimum(self.seen, U_LINEAR)
            bend = bend + self.caution * (u >= edge) * (bend - 2.0 * queue_slope(edge))
        return self.alpha * bend

    def at(self, price: Floats) -> Floats:
        """Returns the load whose slope is `price`, which must be at least alpha.

        It is the largest load that this price pays for.
        """
        below = self._below(price)
        if not self._bounded:
            return below
        past = self.ceiling + np.maximum(price - self._ceiling_price, 0.0) / CEILING_MS
        start = np.minimum(np.where(self.alpha > 0, below, np.inf), past * self.capacity)
        above = self._found(price, start, self.slope, self.curvature, self._on_line(price))
        idle = (self.alpha == 0) & np.isfinite(self._edge)
        return np.where(
            price > self._edge_price, above, np.where(idle, self._edge, np.minimum(below, self._edge))
        )

    def _found(
        self,
        value: Floats,
        start: Floats,
        function: Callable[[Floats], Floats],
        derivative: Callable[[Floats], Floats],
        line: Floats,
    ) -> Floats:
        """Returns the load beyond `_edge`, where there is one, at which an increasing function has
        this value.

        Up to U_LINEAR the function is convex, and `start` is not left of the root. So Newton's
        method never passes the root. `line`: the root if it is beyond U_LINEAR.
        """
        there = np.isfinite(self._edge)
        corner, edge = U_LINEAR * self.capacity, np.where(there, self._edge, 0.0)
        n = np.maximum(np.minimum(start, corner), edge)
        for _ in range(_ROOT_STEPS):
            before = n
            n = np.clip(n - _over(function(n) - value, derivative(n), 0.0), edge, corner)
            if (np.abs(n - before) <= _SETTLED * n).all():
                break
        return np.where(there & (value > function(corner)), line, n)

    def _on_line(self, price: Floats) -> Floats:
        """Returns the load of a price beyond U_LINEAR.

        Slope consists of two lines there: before the ceiling and beyond it.
        """
        return np.minimum(*(
            end + _over((price - self.slope(end)) * self.capacity, steep, np.inf)
            for end, steep in self._lines
        ))  # fmt: skip

    @cached_property
    def _lines(self) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
        """The lines of slope beyond U_LINEAR: the load where each begins, and its derivative by
        utilisation."""
        corner = U_LINEAR * self.capacity
        queue = self._bend(2.0 * corner)  # the same at any load beyond the corner
        second = corner if np.isinf(self.ceiling) else np.maximum(corner, self.ceiling * self.capacity)
        penalty = 0.0 if np.isinf(self.ceiling) else CEILING_MS
        return (corner, queue + CEILING_MS * (self.ceiling <= U_LINEAR)), (second, queue + penalty)

    def _below(self, price: Floats) -> Floats:
        """`at` without ceiling and caution.

        slope is alpha / (1 - u)^2, and linear beyond U_LINEAR.
        """
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
        crowded = root > self._edge_root
        return np.where(crowded, self.slope(self._above(root)), below) if crowded.any() else below

    def gain(self, root: Floats) -> Floats:
        """Returns the derivative of `price` by the root."""
        a = np.sqrt(self.alpha)
        below = 2.0 * np.minimum(a + root, _EDGE * a)
        crowded = root > self._edge_root
        if not crowded.any():
            return below
        return np.where(crowded, _over(2.0 * self.capacity * root, self._above(root), 0.0), below)

    def bend(self, root: Floats) -> Floats:
        """Returns the derivative of `gain` by the root."""
        below = np.where(root <= (_EDGE - 1.0) * np.sqrt(self.alpha), 2.0, 0.0)
        crowded = root > self._edge_root
        if not crowded.any():
            return below
        n = self._above(root)
        gain = _over(2.0 * self.capacity * root, n, 0.0)
        bend = _over(gain, root, 0.0) - _over(gain**2, n * self.curvature(n), 0.0)
        return np.where(crowded, bend, below)

    @cached_property
    def hyperbolic(self) -> Floats:
        """The greatest root below ceiling, U_LINEAR, and what was seen where there is caution."""
        hyperbolic: Floats = np.minimum((_EDGE - 1.0) * np.sqrt(self.alpha), self._edge_root)
        return hyperbolic

    @cached_property
    def _edge(self) -> Floats:
        """The load above which the slope is more than that of the queue; inf: nowhere."""
        cautious = (self.alpha > 0) & (self.seen < U_LINEAR) & (self.caution > 0)
        edge: Floats = np.minimum(np.where(cautious, self.seen, np.inf), self.ceiling) * self.capacity
        return edge

    @cached_property
    def _bounded(self) -> bool:
        return bool(np.isfinite(self._edge).any())

    def _of_edge(self, function: Callable[[Floats], Floats]) -> Floats:
        finite = np.isfinite(self._edge)
        return np.where(finite, function(np.where(finite, self._edge, 0.0)), np.inf)

    @cached_property
    def _ceiling_price(self) -> Floats:
        return self.slope(self.capacity * min(self.ceiling, 1.0))

    @cached_property
    def _ceiling_area(self) -> Floats:
        return self._area(self.capacity * min(self.ceiling, 1.0))

    @cached_property
    def _edge_price(self) -> Floats:
        return self._of_edge(self.slope)

    @cached_property
    def _edge_root(self) -> Floats:
        """The root at the price of the edge; inf without one."""
        return self._of_edge(lambda n: np.sqrt(self._area(n)))

    def _area(self, n: Floats) -> Floats:
        """Returns the square of the root at the price of a load: the integral of u * d(slope)."""
        u = n / self.capacity
        penalty = (
            0.0 if np.isinf(self.ceiling) else 0.5 * CEILING_MS * np.maximum(u**2 - self.ceiling**2, 0.0)
        )
        area: Floats = self.alpha * u**2 * self._counted(u)[1] + penalty
        return area

    def _above(self, root: Floats) -> Floats:
        """Returns the load that a root above that of the edge pays for."""
        area = root**2
        a = np.sqrt(self.alpha)
        past = np.sqrt(self.ceiling**2 + 2.0 * np.maximum(area - self._ceiling_area, 0.0) / CEILING_MS)
        start = self.capacity * np.minimum(_over(root, a + root, 0.0), past)
        line = np.minimum(*(
            np.sqrt((end / self.capacity) ** 2 + _over(2.0 * np.maximum(area - self._area(end), 0.0), steep, np.inf))
            for end, steep in self._lines
        ))  # fmt: skip
        return self._found(
            area, start, self._area, lambda n: n * self.curvature(n) / self.capacity, line * self.capacity
        )


def _over(value: Floats, by: Floats, default: float) -> Floats:
    """Returns the quotient, and `default` where it would be by 0."""
    return np.where(by > 0, value / np.where(by > 0, by, 1.0), default)
