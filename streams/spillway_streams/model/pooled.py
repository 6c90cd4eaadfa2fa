"""The samples of one class in all clusters to learn from. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spillway_streams.batches.arrays import Bools, Floats, Ints
from spillway_streams.curves import apart
from spillway_streams.curves.buckets import BLOCK_S, Buckets, collect
from spillway_streams.model.service import Service


@dataclass(frozen=True)
class Pooled:
    """Samples by second and cluster, (n,) each.

    `block`: of time and cluster: blocks of different clusters are distinct, since their queues do
    not depend on each other. `parts`: as the arguments of `collect`. `heard`: samples including
    those in overload. `cluster`: index into `clusters`. `left_out`: not to be learned from.
    """

    clusters: Sequence[str]
    cluster: Ints
    at: Ints
    block: Ints
    parts: Sequence[Floats]
    heard: Floats
    left_out: Bools

    def without(self, times: apart.Times) -> Bools:
        """Returns which seconds are in a time in which their cluster was apart."""
        found = np.zeros(len(self.at), bool)
        for number, cluster in enumerate(self.clusters):
            if cluster in times:
                found |= (self.cluster == number) & apart.mask(times, cluster, self.at)
        return found

    def within(self, first: int, end: int) -> Buckets:
        """Returns the buckets of the Unix seconds from `first` to before `end`."""
        return self._collected((self.at >= first) & (self.at < end) & ~self.left_out)

    def alone(self, first: int) -> dict[str, Buckets]:
        """Returns each cluster's own buckets since the Unix second `first`, also if left out."""
        rows = np.flatnonzero(self.at >= first)
        return {
            cluster: self._collected(rows[self.cluster[rows] == number])
            for number, cluster in enumerate(self.clusters)
        }

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
