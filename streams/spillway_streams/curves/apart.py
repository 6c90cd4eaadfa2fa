"""Clusters where a class's times have changed while they have not elsewhere. Pure.

A class has one curve for all clusters (SLATE 4.2). A change that most clusters show is one of the
service, which the curve follows. A change that few show is theirs, such as a slow disk. It must not
change what is expected of the others, so the curve does not rest on it.

Each cluster is compared with its own times of the minutes before, at the same utilisation.
Machines, pods and workers may therefore differ between clusters. Only utilisations below a half set
a cluster apart. Above, most of a time may be waiting, and a change may as well be one of capacity.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from spillway_streams.batches.arrays import Bools, Floats, Ints
from spillway_streams.curves import fit
from spillway_streams.curves.buckets import N_BUCKETS, Buckets
from spillway_streams.curves.curves import CHANCE

APART = 0.5  # change of a time, relative to the time before, from which on a cluster is apart
BACK = 0.5  # of that change: a smaller one is none
BEFORE_S = 600  # what a cluster is compared with: so many seconds before the recent ones
QUIET = N_BUCKETS // 2  # buckets of utilisation below a half
_UNSEEN_S = 600  # a cluster stays apart for so long when no other shows what is normal
_ENDLESS = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class Seen:
    """What one cluster shows: samples of about a minute, and of BEFORE_S before it."""

    recent: Buckets
    before: Buckets

    def before_ms(self, at_least: int) -> Floats:
        """Returns the mean time in each bucket before; NaN where there are too few samples."""
        return np.where(self.before.samples >= at_least, self.before.exclusive_ms, np.nan)

    def scale(self, at_least: int) -> float:
        """Returns how much the times scatter: the scale of the working model of fit.py."""
        points = self.before.points(sorted(self.before.filled(at_least)))
        return fit.scatter_scale(points, points.latency)


@dataclass(frozen=True)
class Apart:
    """A time in which a cluster was apart, in Unix seconds, without its end.

    `witness_at`: the last second in which another cluster was as before. `error_ms`: how much
    longer requests took. `before_ms`: the cluster's times before, by bucket.
    """

    since: int
    witness_at: int
    error_ms: float
    before_ms: tuple[float, ...]
    until: int = _ENDLESS

    @property
    def lasts(self) -> bool:
        return self.until == _ENDLESS


Times = Mapping[str, tuple[Apart, ...]]  # by cluster, in their order; only the last one may last


@dataclass(frozen=True)
class State:
    """When clusters were apart, and when most of them changed, last, in Unix seconds."""

    times: Times = field(default_factory=dict)
    changed_at: int = 0

    def before_from(self, recent: int) -> int:
        """Returns the first second that clusters are compared with.

        What they showed before a change of the service says nothing about what is usual now.
        """
        return max(recent - BEFORE_S, self.changed_at)

    def mask(self, cluster: str, at: Ints) -> Bools:
        """Returns which of the Unix seconds `at` are in a time in which the cluster was apart."""
        found = np.zeros(len(at), bool)
        for each in self.times.get(cluster, ()):
            found |= (at >= each.since) & (at < each.until)
        return found

    def kept(self, oldest: int) -> "State":
        """Returns the state without the times that had ended before the Unix second `oldest`."""
        found = {c: tuple(each for each in its if each.until > oldest) for c, its in self.times.items()}
        return replace(self, times={cluster: its for cluster, its in found.items() if its})

    def described(self) -> str:
        """Describes the clusters that are apart, for the reason of a curve."""
        lasting = sorted((c, its[-1].error_ms) for c, its in self.times.items() if its[-1].lasts)
        named = ", ".join(f"{cluster} by {ms:+.1f} ms" for cluster, ms in lasting)
        return f"; left out, as others have not changed: {named}" if named else ""


@dataclass(frozen=True)
class _Change:
    relative: float
    error_ms: float
    by_chance: bool

    @property
    def is_none(self) -> bool:
        return abs(self.relative) <= BACK * APART

    @property
    def is_large(self) -> bool:
        return abs(self.relative) > APART and not self.by_chance


def update(state: State, seen: Mapping[str, Seen], at_least: int, now: int, since: int) -> State:
    """Returns the state after one more look.

    `at_least`: samples that fill a bucket. `since`: the first of the recent seconds.
    """
    times = state.times
    lasting = {cluster: its[-1] for cluster, its in times.items() if its[-1].lasts}
    changes = {
        cluster: found
        for cluster, each in seen.items()
        if (found := _change(each, lasting.get(cluster), at_least)) is not None
    }
    normal = [c for c, change in changes.items() if c not in lasting and change.is_none]
    large = [c for c, change in changes.items() if change.is_large]
    most = len(large) > max(1, len(changes) / 2)
    result = dict(times)
    for cluster, last in lasting.items():
        later = _later(last, changes.get(cluster), most, bool(normal), now)
        result[cluster] = (*times[cluster][:-1], later)
    if normal and not most:
        for cluster in set(large) - set(lasting):
            before = tuple(seen[cluster].before_ms(at_least).tolist())
            new = Apart(since, now, changes[cluster].error_ms, before)
            result[cluster] = (*times.get(cluster, ()), new)
    return State(result, now if most else state.changed_at)


def _later(last: Apart, change: _Change | None, most: bool, witnessed: bool, now: int) -> Apart:
    """Returns a time that lasted until now.

    `most`: most clusters have changed. `witnessed`: some cluster has not.
    """
    if most or (change is not None and change.is_none):
        return replace(last, until=now)
    if witnessed:
        return replace(last, witness_at=now, error_ms=change.error_ms if change else last.error_ms)
    return replace(last, until=now) if now - last.witness_at > _UNSEEN_S else last


def _change(seen: Seen, lasting: Apart | None, at_least: int) -> _Change | None:
    """Returns how a cluster's times have changed; None where it shows nothing to compare.

    A cluster that is apart is compared with its times before that, at any utilisation: it may have
    become busier.
    """
    before = np.array(lasting.before_ms) if lasting else seen.before_ms(at_least)
    known = np.flatnonzero(~np.isnan(before)).tolist()
    used = sorted(seen.recent.filled(at_least) & set(known if lasting else [b for b in known if b < QUIET]))
    if not used:
        return None
    points, expected = seen.recent.points(used), before[used]
    error, se = fit.mean_error(points, expected, seen.scale(at_least))
    usual = float(np.average(expected, weights=points.samples))
    return _Change(error / max(usual, 1e-9), error, abs(error) <= CHANCE * se)
