"""The rate at which each class of a service arrives in a cluster. Pure.

A stamp is the arrival rate that the filter writes on a call: what one proxy counted over the second
before the call arrived. The rate of a class comes from the class's own stamps. Without them, it is
the rate from the service's stamps times the class's share. Spans of other tracers have no stamps;
their own timestamps are counted.

A stamp covers its own proxy only, and a stamp on one of many calls of the same request includes the
sibling calls. Counts over a minute correct both. When only a sample of the spans is kept, counts
are exact in the long run, and stamps are precise in the short run.
"""

from dataclasses import dataclass

import numpy as np

from spillway_streams.batches.arrays import Floats, Ints
from spillway_streams.load import rates
from spillway_streams.load.load import Sum, ratio

CALIBRATION_S = 61
_ALL = 0.99  # share of the spans from which on all of them count as kept


@dataclass(frozen=True)
class Seconds:
    """One service in one cluster: seconds (n,) and, per class, sums (n, classes, len(Sum))."""

    at: Ints
    sums: Floats

    def total(self, what: Sum) -> Floats:
        total: Floats = self.sums[:, :, what].sum(axis=1)
        return total


def class_rates(seconds: Seconds) -> Floats:
    """Arrivals per second of each class around each second, shape (n, classes)."""
    if not len(seconds.at):
        return np.zeros(seconds.sums.shape[:2])
    best = rates.widest(seconds.at, seconds.total(Sum.ARRIVALS), _really_counted(seconds))
    return rates.pick(best, [_within(seconds, width) for width in rates.WIDTHS])


def served(seconds: Seconds) -> Floats:
    """Calls per second and class that did not fail, over the shortest window, shape (n, classes).

    They are counted where every span was kept. A stamp does not count its own call, which in a
    quiet service is most of the work.
    """
    if not len(seconds.at):
        return np.zeros(seconds.sums.shape[:2])
    first, end, length = rates.windows(seconds.at, rates.WIDTHS[0])
    good, all_, kept = (
        rates.sums(seconds.sums[:, :, what], first, end) for what in (Sum.OK, Sum.ARRIVALS, Sum.SAMPLES)
    )
    sampled = _within(seconds, rates.WIDTHS[0]) * ratio(good, all_)
    return np.where(kept >= _ALL * good, good / length[:, None], sampled)


def proxies(seconds: Seconds) -> Floats:
    """Number of proxies that share the service's arrivals, shape (n,).

    It is the counted rate divided by the stamped rate; 1 without stamps.
    """
    if not len(seconds.at):
        return np.ones(0)
    return np.maximum(np.rint(_multiple(seconds, Sum.STAMPED, Sum.RATE)[:, 0]), 1)


def stamped(seconds: Seconds) -> bool:
    """Whether calls of the newest CALIBRATION_S seconds have stamps: `proxies` is then measured."""
    recent = seconds.at > seconds.at[-1] - CALIBRATION_S if len(seconds.at) else seconds.at > 0
    return bool(seconds.total(Sum.STAMPED)[recent].sum() > 0)


def _really_counted(seconds: Seconds) -> Floats:
    """Number of observations of a rate: all requests where there are stamps, else kept spans."""
    arrivals, good = seconds.total(Sum.ARRIVALS), seconds.total(Sum.OK)
    kept = np.where(good > 0, ratio(seconds.total(Sum.SAMPLES), good), 1.0)
    return np.where(seconds.total(Sum.STAMPED) > 0, arrivals, arrivals * kept)


def _within(seconds: Seconds, width: int) -> Floats:
    first, end, length = rates.windows(seconds.at, width)

    def window(what: Sum) -> Floats:
        return rates.sums(seconds.sums[:, :, what], first, end)

    plain = window(Sum.ARRIVALS) / length[:, None]
    share = ratio(plain, np.broadcast_to(plain.sum(axis=1, keepdims=True), plain.shape))
    stamped = window(Sum.STAMPED).sum(axis=1, keepdims=True)
    service = ratio(window(Sum.RATE).sum(axis=1, keepdims=True), stamped)
    service = service * _multiple(seconds, Sum.STAMPED, Sum.RATE)
    by_class = ratio(window(Sum.CLASS_RATE), window(Sum.CLASS_STAMPED))
    by_class = by_class * _multiple(seconds, Sum.CLASS_STAMPED, Sum.CLASS_RATE, per_class=True)
    found = np.where(stamped > 0, service * share, plain)
    return np.where(window(Sum.CLASS_STAMPED) > 0, by_class, found)


def _multiple(seconds: Seconds, calls: Sum, rate: Sum, per_class: bool = False) -> Floats:
    """Counted rate divided by stamped rate within CALIBRATION_S, shape (n, 1) or (n, classes).

    The value is rounded to a whole number where chance may explain the difference.

    A mean of stamps is over calls, so a busy second has more weight in it. The counted rate is
    therefore weighted by calls as well: each call contributes the count of the two seconds beside
    its own. The call's own second is left out, because there chance would agree with itself.
    """
    first, end, _ = rates.windows(seconds.at, CALIBRATION_S)

    def all_(what: Sum) -> Floats:
        found = seconds.sums[:, :, what]
        return found if per_class else found.sum(axis=1, keepdims=True)

    arrivals, stamp = all_(Sum.ARRIVALS), ratio(all_(rate), all_(calls))
    known = np.where(all_(calls) > 0, arrivals, 0)
    beside = known * _beside(seconds.at, arrivals)
    found = ratio(rates.sums(beside, first, end), rates.sums(known * stamp, first, end))
    return rates.snapped(np.where(found > 0, found, 1.0), rates.sums(all_(Sum.SAMPLES), first, end))


def _beside(at: Ints, counts: Floats) -> Floats:
    """Mean of the counts (n, k) of the second before and the second after each second.

    Absent seconds count as empty. At both ends the one neighbour is used twice.
    """
    near = np.diff(at) == 1
    before, after = np.zeros_like(counts), np.zeros_like(counts)
    before[1:][near], after[:-1][near] = counts[:-1][near], counts[1:][near]
    if len(at) > 1:
        before[0], after[-1] = after[0], before[-1]
    return (before + after) / 2
