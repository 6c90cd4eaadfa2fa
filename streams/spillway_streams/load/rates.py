"""The request rate around each second, estimated from random counts. Pure.

The count of one second is a poor measure of the rate that a queue experiences. At 50 per second it
is off by 14 %, and a curve fitted over an axis with such noise is too flat. Averaging over a longer
time helps only while the rate does not change. Each second therefore takes the longest of several
windows around it whose mean agrees with those of all shorter windows, within what chance explains
(intersection of confidence intervals: Goldenshluger & Nemirovski 1997).
"""

import numpy as np

from spillway_streams.batches.arrays import Floats, Ints

WIDTHS = (5, 11, 21)  # seconds; the first is for rates that change faster than chance explains
GAP_S = 5
# If gaps are exponential, one in 10 000 is longer than four times the 90th percentile.
_USUAL, _FAR = 0.9, 4
_SIGMAS = 1.0


def windows(at: Ints, width: int) -> tuple[Ints, Ints, Ints]:
    """Returns first row, last row plus one, and length in seconds of the window around each second.

    `at`: ascending int64, shape (n,). A window does not reach across a gap in which recording
    stopped. Such a gap is longer than GAP_S seconds and far longer than the usual gap, because a
    quiet service may be silent for more than GAP_S.
    """
    gaps = np.diff(at)
    usual = float(np.quantile(gaps, _USUAL, method="lower")) if len(gaps) else 0.0
    breaks = np.flatnonzero(gaps > max(GAP_S, _FAR * usual))
    segment = np.searchsorted(breaks, np.arange(len(at)), side="left")
    first_at = at[np.concatenate([[0], breaks + 1])][segment]
    last_at = at[np.concatenate([breaks, [len(at) - 1]])][segment]
    low, high = np.maximum(at - width // 2, first_at), np.minimum(at + width // 2, last_at)
    return np.searchsorted(at, low, side="left"), np.searchsorted(at, high, side="right"), high - low + 1


def sums(values: Floats, first: Ints, end: Ints) -> Floats:
    """Returns the sums of values (n,) or (n, k) over the rows first <= i < end."""
    running: Floats = np.concatenate([np.zeros_like(values[:1]), np.cumsum(values, axis=0)])
    return running[end] - running[first]


def moving_mean(at: Ints, values: Floats, width: int = WIDTHS[0]) -> Floats:
    """Mean of the values of the seconds within a window around each second."""
    if not len(at):
        return values
    first, end, _ = windows(at, width)
    return (sums(values, first, end).T / (end - first)).T


def most(at: Ints, values: Floats, width: int) -> Floats:
    """Largest of the values of the seconds within a window around each second."""
    if not len(at):
        return values
    first, end, _ = windows(at, width)
    padded = np.append(values, -np.inf)
    found = padded[first]
    for step in range(1, width):
        found = np.maximum(found, padded[np.where(first + step < end, first + step, len(values))])
    return found


def widest(at: Ints, counts: Floats, samples: Floats) -> Ints:
    """Returns, for each second, the index into WIDTHS of the longest window with a steady rate.

    `counts` may be adjusted for sampling. `samples`: the number of observations behind them, which
    determines how far chance may reach.
    """
    best = np.zeros(len(at), dtype=int)
    if not len(at):
        return best
    low, high, steady = np.full(len(at), -np.inf), np.full(len(at), np.inf), np.ones(len(at), dtype=bool)
    for i, width in enumerate(WIDTHS):
        first, end, seconds = windows(at, width)
        rate, seen = sums(counts, first, end) / seconds, sums(samples, first, end)
        # Poisson: the relative error of a count of n observations is 1 / sqrt(n). No observation
        # has the error of one.
        reach = _SIGMAS * np.maximum(rate, 1 / seconds) / np.sqrt(np.maximum(seen, 1))
        low, high = np.maximum(low, rate - reach), np.minimum(high, rate + reach)
        steady &= low <= high
        best[steady] = i
    return best


def pick(best: Ints, by_width: list[Floats]) -> Floats:
    """Returns, for each second, the row (n, ...) of the width that `best` names."""
    return np.stack(by_width)[best, np.arange(len(best))] if len(best) else by_width[0]


def snapped(ratio: Floats, samples: Floats) -> Floats:
    """Rounds a measured multiple to the nearest whole number, at least 1.

    The measured value is kept where chance does not explain the difference.
    """
    whole = np.maximum(np.rint(ratio), 1)
    return np.where(np.abs(ratio - whole) <= 3 * ratio / np.sqrt(np.maximum(samples, 1)), whole, ratio)
