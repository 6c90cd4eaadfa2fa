"""The samples of one class in all clusters to learn from. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spillway_streams.batches.arrays import Bools, Floats, Ints
from spillway_streams.curves import apart
from spillway_streams.curves.buckets import BLOCK_S, N_BUCKETS, Buckets, collect
from spillway_streams.model.service import Service


@dataclass(frozen=True)
class Pooled:
    """Samples by second and cluster, (n,) each.

    `block`: of time and cluster: blocks of different clusters are distinct, since their queues do
    not depend on each other. `parts`: as the arguments of `collect`. `cluster`: index into
    `clusters`. `left_out`: not to be learned from.
    """

    clusters: Sequence[str]
    cluster: Ints
    at: Ints
    block: Ints
    parts: Sequence[Floats]
    samples_including_overload: Floats
    left_out: Bools

    def mask(self, state: apart.State) -> Bools:
        """Returns which seconds are in a time in which their cluster was apart."""
        found = np.zeros(len(self.at), bool)
        for number, cluster in enumerate(self.clusters):
            if cluster in state.times:
                found |= (self.cluster == number) & state.mask(cluster, self.at)
        return found

    def within(self, first: int, end: int) -> Buckets:
        """Returns the buckets of the Unix seconds from `first` to before `end`."""
        return self._collected((self.at >= first) & (self.at < end) & ~self.left_out)

    def changes(self, before: int, recent: int) -> bool:
        """Returns whether the times of a cluster may have changed since the Unix second `recent`.

        They are compared with those since the Unix second `before`.
        This quick look at means costs less than `by_cluster`.
        """
        u, exclusive_ms, _, samples = self.parts
        rows = np.flatnonzero((self.at >= before) & (samples > 0) & (u < apart.QUIET / N_BUCKETS))
        bucket = self.cluster[rows] * apart.QUIET + (u[rows] * N_BUCKETS).astype(int)
        now, n, sum_ms = self.at[rows] >= recent, samples[rows], samples[rows] * exclusive_ms[rows]
        shape = (len(self.clusters), apart.QUIET)

        def summed(values: Floats, which: Bools) -> Floats:
            found = np.bincount(bucket[which], values[which], shape[0] * shape[1])
            return found.reshape(shape).astype(float)

        n_before, n_now = summed(n, ~now), summed(n, now)
        both = (n_before > 0) & (n_now > 0)
        usual_ms = np.where(both, summed(sum_ms, ~now) / np.maximum(n_before, 1e-12) * n_now, 0.0).sum(axis=1)
        seen_ms = np.where(both, summed(sum_ms, now), 0.0).sum(axis=1)
        return bool((np.abs(seen_ms - usual_ms) > apart.BACK * apart.APART * usual_ms).any())

    def by_cluster(self, before: int, recent: int) -> dict[str, apart.Seen]:
        """Returns what each cluster shows from the Unix seconds `recent` and `before` on.

        What it shows before `recent` is without what is left out.
        """
        rows = np.flatnonzero(self.at >= before)
        now, left_out = self.at[rows] >= recent, self.left_out[rows]
        found = {}
        for number, cluster in enumerate(self.clusters):
            its = self.cluster[rows] == number
            earlier = self._collected(rows[its & ~now & ~left_out])
            found[cluster] = apart.Seen(self._collected(rows[its & now]), earlier)
        return found

    def _collected(self, rows: Bools | Ints) -> Buckets:
        u, exclusive_ms, sd_ms, samples = (part[rows] for part in self.parts)
        return collect(self.block[rows], u, exclusive_ms, sd_ms, samples)


def pooled(model: Service, class_id: str) -> Pooled:
    clusters = model.measured()
    samples = [model.samples(class_id, cluster) for cluster in clusters]
    at = np.concatenate([s.at for s in samples])
    return Pooled(
        clusters,
        np.repeat(np.arange(len(samples)), [len(s.at) for s in samples]),
        at,
        np.concatenate([s.at // BLOCK_S * len(samples) + i for i, s in enumerate(samples)]),
        [
            np.concatenate(part)
            for part in zip(*((s.u, s.exclusive_ms, s.sd_ms, s.samples) for s in samples), strict=True)
        ],
        np.concatenate([s.samples_including_overload for s in samples]),
        np.zeros(len(at), bool),
    )
