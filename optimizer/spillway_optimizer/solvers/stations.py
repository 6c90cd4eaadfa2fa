"""What load at a station (a service in a cluster) costs, and its price; elementwise on arrays of one shape.

    phi(n) = alpha * n * queue_factor(n / capacity)  +  what exceeding the utilisation ceiling costs

n is normalised load (rps), phi milliseconds of waiting per second; convex and increasing.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from spillway_optimizer.problem.objective import U_LINEAR, queue_factor, queue_slope
from spillway_optimizer.problem.penalties import CEILING_MS

_EDGE = 1.0 / (1.0 - U_LINEAR)
_ROOT_STEPS = 30


@dataclass(frozen=True)
class Stations:
    alpha: np.ndarray  # ms, at least 0
    capacity: np.ndarray  # normalised rps
    ceiling: float  # utilisation from which on load costs CEILING_MS; inf: none

    def __getitem__(self, index) -> Self:
        return type(self)(self.alpha[index], self.capacity[index], self.ceiling)

    @property
    def priced(self) -> np.ndarray:
        """bool: where load has a price at all."""
        return (self.alpha > 0) | np.isfinite(self.ceiling)

    def phi(self, n: np.ndarray) -> np.ndarray:
        return self.alpha * n * queue_factor(n / self.capacity) + self.beyond(n)

    def beyond(self, n: np.ndarray) -> np.ndarray:
        """What exceeding the ceiling counts in phi."""
        return 0.5 * CEILING_MS * self.capacity * np.maximum(n / self.capacity - self.ceiling, 0.0) ** 2

    def slope(self, n: np.ndarray) -> np.ndarray:
        """The price: what one more request of the baseline class costs everybody, ms."""
        u = n / self.capacity
        return self.alpha * (queue_factor(u) + u * queue_slope(u)) + CEILING_MS * np.maximum(
            u - self.ceiling, 0.0
        )

    def curvature(self, n: np.ndarray) -> np.ndarray:
        return (self._bend(n) + CEILING_MS * (n >= self.ceiling * self.capacity)) / self.capacity

    def _bend(self, n: np.ndarray) -> np.ndarray:
        """Of the queue alone, per utilisation."""
        u = n / self.capacity
        return self.alpha * np.where(
            u <= U_LINEAR, 2.0 / (1.0 - np.minimum(u, U_LINEAR)) ** 3, 2.0 * _EDGE**2
        )

    def at(self, price: np.ndarray) -> np.ndarray:
        """The load whose slope is `price`, which is at least alpha; the largest that this price pays for."""
        if np.isinf(self.ceiling):
            return self._below(price)
        edge = self.ceiling * self.capacity
        bend = np.maximum(edge, U_LINEAR * self.capacity)
        base, top = self.slope(edge), self.slope(bend)
        below = np.where(self.alpha > 0, np.minimum(self._below(price), edge), edge)
        # Beyond both the ceiling and U_LINEAR the slope is linear; between them it is convex, and Newton's method
        # from the right of the root of a convex increasing function never passes it.
        steep = 2.0 * self.alpha * _EDGE**2 + CEILING_MS
        n = np.clip(edge + (price - base) / CEILING_MS * self.capacity, edge, bend)
        for _ in range(_ROOT_STEPS):
            step = (self.slope(n) - price) * self.capacity / (self._bend(n) + CEILING_MS)
            n = np.maximum(n - step, edge)
        above = np.where(price > top, bend + (price - top) * self.capacity / steep, n)
        return np.where(price > base, above, below)

    def _below(self, price: np.ndarray) -> np.ndarray:
        """`at` without a ceiling: slope is alpha / (1 - u)^2, and linear beyond U_LINEAR."""
        ratio = np.maximum(price / np.where(self.alpha > 0, self.alpha, np.inf), 1.0)
        beyond = U_LINEAR + (ratio - _EDGE**2) / (2.0 * _EDGE**2)
        return self.capacity * np.where(ratio <= _EDGE**2, 1.0 - np.sqrt(1.0 / ratio), beyond)

    def conjugate(self, price: np.ndarray) -> np.ndarray:
        """max over n of price * n - phi(n)."""
        n = self.at(price)
        return price * n - self.phi(n)
