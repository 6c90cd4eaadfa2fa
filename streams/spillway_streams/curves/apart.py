"""Clusters where a class differs from its curve while it does not elsewhere. Pure.

A class has one curve for all clusters (SLATE 4.2). A change that every cluster shows is one of the
service, which the curve follows. A change that one cluster shows while others do as the curve says
is that cluster's own, such as a slow disk. It must not change what is expected of the others, so
the curve does not rest on it. PAPA, which compares each destination with the curve, leaves such a
cluster.

Clusters are compared below a utilisation of a half, and only where the last fit has data. Above,
most of a time is waiting, and a difference may as well be one of capacity, or of a queue's luck.
Where the fit has no data, it says that the curve's shape was not known there yet.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from spillway_streams.batches.arrays import Bools, Ints
from spillway_streams.curves.buckets import N_BUCKETS, Buckets
from spillway_streams.curves.curves import CHANCE, Curve, prediction_error

APART = 0.5  # difference, relative to the expected time, from which on a cluster is apart
_BACK = 0.5  # of that difference: below it, the cluster is not apart any more
_LEAST_WAITING = frozenset(range(N_BUCKETS // 2))  # buckets of utilisation
_UNSEEN_S = 600  # a cluster stays apart for so long when no other shows what is normal
_ENDLESS = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class Apart:
    """A time in which a cluster was apart, in Unix seconds, without its end.

    `witness_at`: the last second in which another cluster did as the curve says. `error_ms`: how
    much longer requests took.
    """

    since: int
    witness_at: int
    error_ms: float
    until: int = _ENDLESS

    @property
    def lasts(self) -> bool:
        return self.until == _ENDLESS


Times = Mapping[str, tuple[Apart, ...]]  # by cluster, in their order; only the last one may last


def update(
    times: Times,
    curve: Curve,
    recent: Mapping[str, Buckets],
    scale: float,
    at_least: int,
    now: int,
    since: int,
) -> Times:
    """Returns the times in which clusters were apart.

    `recent`: each cluster's own samples since the Unix second `since`, about a minute. `scale`: of
    the working model of fit.py. `at_least`: samples that fill a bucket.
    """
    if curve.phase == "prior":
        return times
    off = {cluster: _off(curve, seen, scale, at_least) for cluster, seen in recent.items()}
    known = {cluster: found for cluster, found in off.items() if found is not None}
    normal = any(abs(error) <= (_BACK if sure else 1) * APART for error, sure, _ in known.values())
    result = {}
    for cluster in times.keys() | known.keys():
        its, last = times.get(cluster, ()), None
        if its and its[-1].lasts:
            its, last = its[:-1], its[-1]
        result[cluster] = (*its, *_now(last, known.get(cluster), normal, now, since))
    return {cluster: found for cluster, found in result.items() if found}


def _now(
    last: Apart | None, found: tuple[float, bool, float] | None, normal: bool, now: int, since: int
) -> tuple[Apart, ...]:
    """Returns the last time of a cluster; nothing if it is not and was not apart."""
    if found is None or not normal:
        if last is None or now - last.witness_at <= _UNSEEN_S:
            return () if last is None else (last,)
        return (replace(last, until=now),)
    relative, sure, error_ms = found
    if last is not None:
        ended = abs(relative) <= _BACK * APART or not sure
        return (replace(last, until=now) if ended else replace(last, witness_at=now, error_ms=error_ms),)
    if sure and abs(relative) > APART:
        return (Apart(since, now, error_ms),)
    return ()


def _off(curve: Curve, seen: Buckets, scale: float, at_least: int) -> tuple[float, bool, float] | None:
    """Returns how far a cluster is from the fitted curve, relative to it, and in ms.

    The second value tells whether it is more than chance. None: the cluster shows nothing where the
    fit has data.
    """
    used = sorted(seen.filled(at_least) & curve.filled & _LEAST_WAITING)
    if not used:
        return None
    error, se, expected = prediction_error(curve, seen.points(used), scale)
    return error / max(expected, 1e-9), abs(error) > CHANCE * se, error


def mask(times: Times, cluster: str, at: Ints) -> Bools:
    """Returns which of the Unix seconds `at` are in a time in which the cluster was apart."""
    found = np.zeros(len(at), bool)
    for each in times.get(cluster, ()):
        found |= (at >= each.since) & (at < each.until)
    return found


def kept(times: Times, oldest: int) -> Times:
    """Returns the times that have not ended before the Unix second `oldest`."""
    found = {cluster: tuple(each for each in its if each.until > oldest) for cluster, its in times.items()}
    return {cluster: its for cluster, its in found.items() if its}


def described(times: Times) -> str:
    """Describes the clusters that are apart, for the reason of a curve."""
    lasting = sorted((cluster, its[-1].error_ms) for cluster, its in times.items() if its[-1].lasts)
    if not lasting:
        return ""
    return "; left out, as only they differ: " + ", ".join(f"{name} by {ms:+.1f} ms" for name, ms in lasting)
