"""Outliers among the seconds of a class in one cluster: forged spans, or a clock that jumped. Pure.

too long   The mean latency is far above the usual one, and calls that arrived later left earlier. A
           queue that is served in order keeps the order of arrivals (Lindley 1952). Its latency may
           jump up within a second, but then falls by at most one second per second. A second
           without neighbours has no queue at all.
too fast   Far more calls than usual, answered faster than usual. More load makes no queue shorter,
           and forged calls must be many to move a mean.

Real services break both rules: they have several workers, several pods, caches and timeouts. Only
what is rare is therefore an outlier. A lasting state, and a recurring one, counts like any other
second.
"""

from dataclasses import dataclass, replace

import numpy as np

from spillway_streams.batches.arrays import Bools, Floats, Ints
from spillway_streams.load import rates
from spillway_streams.load.load import Sum, ratio
from spillway_streams.load.load_rates import Seconds

RUN_S = 30  # seconds: a longer run is a lasting state
RECURS, WITHIN_S = 4, 450  # a state recurs if it is in so many spells of RUN_S within this distance
AROUND_S = 21  # an outlier is replaced by a mean over so many seconds
_NEAR_S, _FAR = 10, 4  # seconds between calls that may share a queue; times the usual gap
_BLOCK, _BLOCKS = 60, 5  # rows in a block; blocks that define what is usual
_LEAST = 30  # smallest number of rows that define what is usual
_LONGER, _FASTER = 4.0, 1.35  # times the median latency
_LONG_ERRORS, _FAST_ERRORS, _COUNT_ERRORS = 6.0, 2.0, 6.0  # standard deviations of one second
_ABSURD = 2.0  # times the calls that chance explains: chance then cannot explain the latency either
_EARLIER_S = 1.0  # a later arrival must have left earlier by so much
# Standard deviations of a normal distribution, per MAD, and between median and first decile.
_MAD, _TENTH = 1.4826, 1.2816


@dataclass(frozen=True)
class Outliers:
    """Seconds and classes of each kind of outlier, bool (n, classes)."""

    long: Bools
    fast: Bools

    @property
    def all(self) -> Bools:
        return self.long | self.fast


def find(seconds: Seconds) -> Outliers:
    """Finds the outliers of every class that has samples in at least _LEAST seconds."""
    found = Outliers(*np.zeros((2, *seconds.sums.shape[:2]), bool))
    alone = _alone(seconds.at)
    for k in range(seconds.sums.shape[1]):
        rows = np.flatnonzero(seconds.sums[:, k, Sum.SAMPLES] > 0)
        if len(rows) >= _LEAST:
            kinds = _of_class(seconds.at[rows], seconds.sums[rows, k], alone[rows])
            found.long[rows, k], found.fast[rows, k] = kinds
    return found


def without(seconds: Seconds, found: Outliers) -> Seconds:
    """Returns the same seconds with outliers replaced by means of the seconds around them.

    Where calls are too fast, all sums are replaced. Where they are too long, only latency is.
    """
    if not found.all.any():
        return seconds
    sums = seconds.sums.copy()
    for k in np.flatnonzero(found.all.any(axis=0)).tolist():
        out, good = found.all[:, k], ~found.all[:, k] & (sums[:, k, Sum.OK] > 0)
        if not good.any():
            continue
        around = rates.moving_mean(seconds.at[good], sums[good, k], AROUND_S)
        beside = np.stack([np.interp(seconds.at, seconds.at[good], column) for column in around.T], axis=1)
        fast = found.fast[:, k]
        sums[fast, k] = beside[fast]
        for what in (Sum.EXCLUSIVE, Sum.EXCLUSIVE_SQUARED):
            sums[out, k, what] = (sums[:, k, Sum.OK] * ratio(beside[:, what], beside[:, Sum.OK]))[out]
    return replace(seconds, sums=sums)


def _alone(at: Ints) -> Bools:
    """Seconds (n,) far from any other, in a service whose seconds are usually close together."""
    gaps = np.diff(at)
    usual = float(np.quantile(gaps, 0.9, method="lower")) if len(gaps) else 0.0
    nearest = np.minimum(np.append(np.inf, gaps), np.append(gaps, np.inf))
    found: Bools = nearest > max(_NEAR_S, _FAR * usual)
    return found


def _of_class(at: Ints, sums: Floats, alone: Bools) -> tuple[Bools, Bools]:
    """Returns which seconds of one class are too long, and which are too fast, each (n,).

    `at`: (n,), ascending; `sums`: (n, len(Sum)). Every second must have samples.
    """
    ms = np.maximum(ratio(sums[:, Sum.EXCLUSIVE], sums[:, Sum.OK]), 1e-6)
    level, scatter, busy = _usual(np.log(ms), sums[:, Sum.OK])
    above = np.log(ms) - level
    long = above > np.maximum(np.log(_LONGER), _LONG_ERRORS * scatter)
    left = at + ms / 1000
    earliest = np.append(np.minimum.accumulate(left[::-1])[::-1][1:], np.inf)
    long &= alone | (left > earliest + _EARLIER_S)
    per_sample = float(np.median(sums[:, Sum.OK] / sums[:, Sum.SAMPLES]))
    many = busy + _COUNT_ERRORS * np.sqrt(busy * max(per_sample, 1.0))
    chance = np.where(sums[:, Sum.OK] > _ABSURD * many, 0.0, _FAST_ERRORS * scatter)
    fast = (sums[:, Sum.OK] > many) & (above < -np.maximum(np.log(_FASTER), chance))
    return _rare(at, long, ms), _rare(at, fast, ms)


def _usual(log_ms: Floats, count: Floats) -> tuple[Floats, Floats, Floats]:
    """What is usual around each row: three arrays of shape (n,).

    The median of the logarithm of latency, its standard deviation, and the upper quartile of the
    counts. Rows of one block share the values.
    """
    n = len(log_ms)
    size = min(_BLOCK * _BLOCKS, n)
    first = np.clip((np.arange(-(-n // _BLOCK)) - _BLOCKS // 2) * _BLOCK, 0, n - size)
    rows = first[:, None] + np.arange(size)
    values = np.sort(log_ms[rows], axis=1)
    level, tenth = values[:, size // 2], values[:, size // 10]
    deviation = np.median(np.abs(values - level[:, None]), axis=1)
    scatter = np.minimum(_MAD * deviation, (level - tenth) / _TENTH)
    busy = np.sort(count[rows], axis=1)[:, size * 3 // 4]
    block = np.arange(n) // _BLOCK
    return level[block], scatter[block], busy[block]


def _rare(at: Ints, found: Bools, ms: Floats) -> Bools:
    """Keeps those of `found` (n,) that are in short runs and do not recur."""
    first = np.flatnonzero(found & ~np.append(False, found[:-1]))
    last = np.flatnonzero(found & ~np.append(found[1:], False))
    length = at[last] - at[first] + 1
    # Rows of a rare class may lie far apart: only seconds that are near each other make a run.
    dense = (last > first) & (length <= 2 * (last - first + 1))
    kept = found.copy()
    for a, b, seconds in zip(first[dense], last[dense], length[dense], strict=True):
        # Draining a queue takes as long as its requests wait.
        if seconds > max(RUN_S, np.median(ms[a : b + 1]) / 1000):
            kept[a : b + 1] = False
    rows = np.flatnonzero(kept)
    spells = np.unique(at[rows] // RUN_S)
    low = np.searchsorted(spells, (at[rows] - WITHIN_S) // RUN_S, "left")
    high = np.searchsorted(spells, (at[rows] + WITHIN_S) // RUN_S, "right")
    kept[rows[high - low >= RECURS]] = False
    return kept
