"""The cost of a station while its load is on a piece of its range: exact at the ends of the piece.

Within a piece, a class alone costs phi_k between the ends and cannot have other loads. The convex
envelope (envelope.py) of that is tighter than the one over the whole range:

    envelope(n)  =  max over theta of  sum(price_k(theta) * n[k])  -  theta
    theta        =  max over m in the piece of  price_k(theta) * m  -  phi_k(m)
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.solvers.stations import Stations

_BISECTIONS = 60
_NEAR = 1e-9
_LEAST_RPS = 1e-9


@dataclass(frozen=True)
class Piece:
    """The classes [K] of one station, whose normalised load is from `low` to `high` (rps)."""

    classes: Stations
    low: float
    high: float

    def prices(self, theta: float) -> Floats:
        """Returns each class's price [K] of normalised load."""
        root = np.sqrt(max(theta, 0.0) / self.classes.capacity)
        return np.where(
            theta < self._theta(self.low),
            self._through(self.low, theta),
            np.where(
                theta > self._theta(self.high), self._through(self.high, theta), self.classes.price(root)
            ),
        )

    def best(self, n: Floats) -> float:
        """Returns the theta of the tightest tangent at normalised loads [K] on the piece."""
        total, there = float(n.sum()), n > 0
        if not there.any():
            return min(float(self._theta(self.low).min()), 0.0)
        alone = self._theta(total)[there]
        low, high = float(alone.min()), float(alone.max())
        for _ in range(_BISECTIONS):
            if high - low <= _NEAR * max(abs(high), 1e-9):
                break
            theta = 0.5 * (low + high)
            paid = self._pays_for(theta)[there]
            # The derivative of the tangent's value at n by theta
            if float((n[there] / np.maximum(paid, 1e-300)).sum()) > 1.0:
                low = theta
            else:
                high = theta
        return 0.5 * (low + high)

    def thetas(self, count: int) -> list[float]:
        """Returns thetas for the first tangents, from one end of the piece to the other."""
        least, most = float(self._theta(self.low).min()), float(self._theta(self.high).max())
        return [float(x) ** 2 for x in np.linspace(np.sqrt(max(least, 0.0)), np.sqrt(max(most, 0.0)), count)]

    def split(self, at: float) -> tuple[Self, Self]:
        """Returns the pieces below and above a load."""
        return replace(self, high=at), replace(self, low=at)

    def _theta(self, m: float) -> Floats:
        """Returns the conjugate [K] at the price that pays each class, alone, for `m`."""
        n = np.full_like(self.classes.alpha, m)
        theta: Floats = self.classes.slope(n) * n - self.classes.phi(n)
        return theta

    def _through(self, end: float, theta: float) -> Floats:
        """Returns the price [K] at which a load at this end of the piece has this theta."""
        load = np.full_like(self.classes.alpha, end)
        through: Floats = (theta + self.classes.phi(load)) / max(end, _LEAST_RPS)
        return through

    def _pays_for(self, theta: float) -> Floats:
        root = np.sqrt(max(theta, 0.0) / self.classes.capacity)
        paid = np.clip(self.classes.at(self.classes.price(root)), self.low, self.high)
        return np.where((self.classes.alpha > 0) | np.isfinite(self.classes.ceiling), paid, self.high)
