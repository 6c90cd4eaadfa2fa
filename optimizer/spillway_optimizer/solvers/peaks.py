"""How much a station can gain at given prices when the load that each price is for is limited.

    peak  =  max over 0 <= y <= volume of  sum(price * y)  -  the cost of the loads y together

The items y are loads of classes. The cost is sum(alpha * y) * queue_factor(sum(y) / capacity) and
the penalty beyond the ceiling, which is not convex. But at a given total N = sum(y), and thus at
one queue factor g, the best loads are those of a continuous knapsack. Its value is concave in N and
convex in g. So on a cell of N, from `low` to `high`, any price mu of room gives an upper limit:

    mu * N + S(g(N)),   S(g) = sum(max(price - alpha * g - mu, 0) * volume)

S is convex, so it is below its chord, which falls as g rises. That leaves a concave function of N,
whose maximum is known. What this misses falls with the square of the cell. Cells are divided until
they miss little.

Shapes: D stations, M items of each, R cells.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from spillway_optimizer.problem.arrays import Bools, Floats, Ints
from spillway_optimizer.problem.objective import U_LINEAR, queue_factor
from spillway_optimizer.problem.penalties import CEILING_MS

_FIRST = (0.0, 0.5, 0.75, 0.9, U_LINEAR, 1.1, 2.0)  # utilisations between the first cells
_PARTS = 4  # of a cell that is divided
_ROUNDS = 10  # each quarters what is missed where a small part of an item is taken, more elsewhere
_NEAR = 3e-5  # relative to the peak: what a cell may miss


@dataclass(frozen=True)
class Offers:
    """The loads that stations may take, and what they are paid for them."""

    price: Floats  # [D, M] ms per normalised request
    alpha: Floats  # [D, M] ms
    volume: Floats  # [D, M] normalised rps
    capacity: Floats  # [D] normalised rps
    ceiling: float  # utilisation; inf: none

    def peaks(self, miss: float = 0.0, useless: float = np.inf) -> Floats:
        """Returns upper limits [D] of the peaks, in ms of waiting per second.

        Each is too high by at most `miss`, or by a small part of it, whichever is more. Once loads
        are found that gain more than `useless` together, the limits are not made more exact.
        """
        cells = _Cells.first(self._paying())
        found, peaks = np.zeros(len(self.capacity)), np.zeros(len(self.capacity))
        for left in reversed(range(_ROUNDS)):
            most, reached = cells.limits()
            np.maximum.at(found, cells.station, reached)
            here = found[cells.station]
            open_ = most > here + np.maximum(here * _NEAR, miss)
            if left == 0 or found.sum() > useless:
                open_[:] = False
            np.maximum.at(peaks, cells.station[~open_], most[~open_])
            if not open_.any():
                break
            cells = cells.divided(open_)
        return np.maximum(peaks, found)

    def _paying(self) -> Self:
        """Returns the items that pay for their own time in an idle station.

        The others never raise the peak. Stations with fewer such items than others get some without
        volume.
        """
        pays = (self.price > self.alpha) & (self.volume > 0)
        count = max(int(pays.sum(axis=1).max(initial=0)), 1)
        items = np.argsort(~pays, axis=1, kind="stable")[:, :count]
        row = np.arange(len(items))[:, None]
        pays, alpha = pays[row, items], self.alpha[row, items]
        return replace(
            self,
            price=np.where(pays, self.price[row, items], alpha),
            alpha=alpha,
            volume=np.where(pays, self.volume[row, items], 0.0),
        )


@dataclass(frozen=True)
class _Cells:
    """Ranges of the total load of stations."""

    offers: Offers
    station: Ints  # [R]
    low: Floats  # [R] normalised rps
    high: Floats  # [R]

    @classmethod
    def first(cls, offers: Offers) -> Self:
        """Returns the cells of all totals that the items can have."""
        total = offers.volume.sum(axis=1)[:, None]
        ends = np.minimum(np.array(_FIRST) * offers.capacity[:, None], total)
        ends = np.concatenate([ends, total], axis=1)
        station, at = np.nonzero(np.diff(ends, axis=1) > 1e-9 * offers.capacity[:, None])
        return cls(offers, station, ends[station, at], ends[station, at + 1])

    def divided(self, chosen: Bools) -> Self:
        """Returns the parts of the chosen cells [R]."""
        width = (self.high - self.low)[chosen, None] / _PARTS
        low = (self.low[chosen, None] + width * np.arange(_PARTS)).ravel()
        width, station = np.repeat(width, _PARTS), np.repeat(self.station[chosen], _PARTS)
        return type(self)(self.offers, station, low, low + width)

    def limits(self) -> tuple[Floats, Floats]:
        """Returns an upper limit of what is gained within each cell [R], and a gain in it."""
        middle = 0.5 * (self.low + self.high)
        most, reached = self._limit(middle)
        crowded = self.high > U_LINEAR * self.offers.capacity[self.station]
        if crowded.any():
            # These cells are wide at first. The price of room at their lower end is a better one.
            part = type(self)(self.offers, self.station[crowded], self.low[crowded], self.high[crowded])
            most[crowded] = np.minimum(most[crowded], part._limit(part.low)[0])
        return most, reached

    def _limit(self, at: Floats) -> tuple[Floats, Floats]:
        """Does what `limits` does, at the price of room of the best loads with the total `at`."""
        offers, wanted = self.offers, self.offers.volume[self.station]
        price, alpha = offers.price[self.station], offers.alpha[self.station]
        capacity, row = offers.capacity[self.station], np.arange(len(self.station))

        def surplus(factor: Floats) -> Floats:
            margin = price - alpha * factor[:, None]
            surplus: Floats = np.einsum("rm,rm->r", np.maximum(margin - room[:, None], 0.0), wanted)
            return surplus

        own = price - alpha * queue_factor(at / capacity)[:, None]
        order = np.argsort(-own, axis=1)
        filled = np.cumsum(np.take_along_axis(wanted, order, axis=1), axis=1)
        last = np.minimum((filled < at[:, None]).sum(axis=1), own.shape[1] - 1)
        room = own[row, order[row, last]]
        low, high = queue_factor(self.low / capacity), queue_factor(self.high / capacity)
        at_low = surplus(low)
        fall = np.maximum(at_low - surplus(high), 0.0) / (high - low)
        over = np.maximum(self.low / capacity - offers.ceiling, 0.0)
        slope = room - CEILING_MS * over
        # The limit is slope * N - fall * g(N) and a constant. It is concave in N.
        best = capacity * (1.0 - np.sqrt(fall / np.maximum(slope * capacity, 1e-300)))
        best = np.where(self.low >= U_LINEAR * capacity, self.high, np.clip(best, self.low, self.high))
        gain = slope * (best - self.low) - fall * (queue_factor(best / capacity) - low)
        most = at_low + room * self.low - 0.5 * CEILING_MS * capacity * over**2 + np.maximum(gain, 0.0)
        over = np.maximum(at / capacity - offers.ceiling, 0.0)
        reached = surplus(queue_factor(at / capacity)) + room * at - 0.5 * CEILING_MS * capacity * over**2
        return most, reached
