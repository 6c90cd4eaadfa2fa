"""Seconds of calls that no queue explains: forged spans, or a clock that jumped. Pure.

Two kinds are found, per class and cluster. Both are compared with the seconds around them.

too long   The mean latency is far above the usual one, and calls that arrived later left earlier. In a queue that is
           served in order, departures keep the order of arrivals (Lindley 1952): latency may jump up within a second,
           but then falls by at most one second per second. A second that stands alone has no queue at all.
too short  Far more calls than usual, answered faster than usual. More load makes no queue shorter, and whoever adds
           forged calls to real ones needs many of them to move a mean.

States that last are believed, whatever they are: a run of more than RUN_S seconds is not an outlier. Heavy tails are
no outliers either, because limits are in units of how the class itself scatters.
"""

from dataclasses import replace

import numpy as np

from spillway_streams import rates
from spillway_streams.load import Sum, ratio
from spillway_streams.load_rates import Seconds

RUN_S = 30
AROUND = 21  # seconds whose mean stands for one that is left out
_BLOCK, _BLOCKS = 60, 5  # rows in a block; blocks whose rows tell what is usual
_LEAST = 30  # rows: of fewer nothing is usual
_LONGER, _SHORTER = 4.0, 1.35  # times the median latency
_LONG_ERRORS, _SHORT_ERRORS, _COUNT_ERRORS = 6.0, 2.0, 6.0  # standard deviations of one second
_ABSURD = 2.0  # times as many calls as chance explains: then chance does not explain their latency either
_EARLIER_S = 1.0  # by so much a later arrival must have left earlier
_MAD, _TENTH = 1.4826, 1.2816  # a normal distribution's deviation over its MAD, and over its first decile


def outliers(seconds: Seconds) -> np.ndarray:
    """Which seconds and classes no queue explains, bool (n, classes)."""
    found = np.zeros(seconds.sums.shape[:2], bool)
    alone = _alone(seconds.at)
    for k in range(found.shape[1]):
        rows = np.flatnonzero(seconds.sums[:, k, Sum.SAMPLES] > 0)
        if len(rows) >= _LEAST:
            found[rows, k] = _of_class(seconds.at[rows], seconds.sums[rows, k], alone[rows])
    return found


def without(seconds: Seconds, outlying: np.ndarray) -> Seconds:
    """The same with the mean of the seconds around in place of each outlier, and no samples there: load goes on, and
    nothing is learned from its latency."""
    if not outlying.any():
        return seconds
    first, end, _ = rates.windows(seconds.at, AROUND)
    kept = ~outlying
    count = rates.sums(kept.astype(float), first, end)[:, :, None]
    around = rates.sums(seconds.sums * kept[:, :, None], first, end)
    mean = ratio(around, np.broadcast_to(count, around.shape))
    mean[:, :, Sum.SAMPLES] = 0
    return replace(seconds, sums=np.where(outlying[:, :, None], mean, seconds.sums))


def _alone(at: np.ndarray) -> np.ndarray:
    """Seconds (n,) with no other within half of AROUND."""
    gaps = np.diff(at, prepend=-np.inf, append=np.inf)
    return np.minimum(gaps[:-1], gaps[1:]) > AROUND // 2


def _of_class(at: np.ndarray, sums: np.ndarray, alone: np.ndarray) -> np.ndarray:
    """at: (n,), ascending; sums: (n, len(Sum)), all with samples."""
    ms = np.maximum(ratio(sums[:, Sum.EXCLUSIVE], sums[:, Sum.OK]), 1e-6)
    count, per_sample = sums[:, Sum.OK], ratio(sums[:, Sum.OK], sums[:, Sum.SAMPLES])
    level, scatter, busy = _usual(np.log(ms), count)
    above = np.log(ms) - level
    long = above > np.maximum(np.log(_LONGER), _LONG_ERRORS * scatter)
    left = at + ms / 1000
    earliest = np.append(np.minimum.accumulate(left[::-1])[::-1][1:], np.inf)
    long &= alone | (left > earliest + _EARLIER_S)
    many = busy + _COUNT_ERRORS * np.sqrt(busy * np.maximum(per_sample, 1.0))
    chance = np.where(count > _ABSURD * many, 0.0, _SHORT_ERRORS * scatter)
    short = (count > many) & (above < -np.maximum(np.log(_SHORTER), chance))
    return _brief(at, long) | _brief(at, short)


def _usual(log_ms: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of the rows around each, (n,): median of the logarithm of latency, how it scatters, and the upper quartile of the
    counts. Rows of one block share theirs."""
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


def _brief(at: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Without runs of more than RUN_S seconds, in which nothing else was found."""
    starts = np.flatnonzero(found & ~np.append(False, found[:-1]))
    ends = np.flatnonzero(found & ~np.append(found[1:], False))
    kept = found.copy()
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if end > start and RUN_S < at[end] - at[start] + 1 <= (end - start + 1) * 2:
            kept[start : end + 1] = False
    return kept
