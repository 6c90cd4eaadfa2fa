"""Exclusive time by utilisation, in ten buckets (SLATE 4.2). Pure."""

from dataclasses import dataclass, replace

import numpy as np
from spillway_contracts import names

from spillway_streams.batches.arrays import Floats, Ints
from spillway_streams.curves.fit import Points, scatter

N_BUCKETS = names.VALUE_BUCKET_COUNT
BLOCK_S = 20  # seconds in a block: waiting times correlate within a block, hardly between blocks


@dataclass(frozen=True)
class Buckets:
    """Means by utilisation bucket: arrays of length N_BUCKETS; empty buckets hold zeros.

    Means of utilisation, of stretch 1 / (1 - u) and of exclusive time (ms); `sd_ms`: standard
    deviation of the exclusive time; `samples`: number of samples; `seconds`: number of seconds.
    `blocks`, shape (blocks, N_BUCKETS, 4): for each block of time the number of samples, and the
    sums over them of stretch, of exclusive time and of its square.
    """

    utilisation: Floats
    stretch: Floats
    exclusive_ms: Floats
    sd_ms: Floats
    samples: Floats
    seconds: Floats
    blocks: Floats

    def filled(self, at_least: int) -> frozenset[int]:
        """Returns the buckets that hold at least so many samples."""
        return frozenset(np.flatnonzero(self.samples >= at_least).tolist())

    def points(self, used: list[int]) -> Points:
        """Returns what a fit needs of the buckets `used`."""
        blocks = self.blocks[:, used]
        blocks = blocks[blocks[:, :, 0].sum(axis=1) > 0]
        return Points(
            self.stretch[used], self.exclusive_ms[used], self.sd_ms[used], self.samples[used], self.seconds[used],
            *np.moveaxis(blocks[:, :, :3], 2, 0),
        )  # fmt: skip

    def spread_points(self, used: list[int]) -> Points:
        """Returns what a fit of the samples' standard deviation needs of the buckets `used`.

        The standard deviation sd takes the place of the mean. Its square is the variance of the
        bucket's samples (sd_ms^2) plus the variance of their mean, because the samples of a few
        blocks lie nearer to their own mean than to the true one.

        A sample at distance d from the mean has the influence sd + (d^2 - sd_ms^2) / (2 sd). The
        mean of the influences is sd. Their sums by block show how much sd scatters, as the sums of
        exclusive time do for the mean. A single influence scatters by sqrt(2) sd, as for
        exponential times.
        """
        means = self.points(used)
        squares = self.blocks[:, used, 3]
        squares = squares[self.blocks[:, used, 0].sum(axis=1) > 0]
        n, mean = means.block_samples, means.latency
        sd = np.sqrt(means.sd**2 + scatter(means, mean))
        beyond = squares - 2 * mean * means.block_latency + (mean**2 - means.sd**2) * n
        influence = n * sd + np.divide(beyond, 2 * sd, out=np.zeros_like(beyond), where=sd > 0)
        return replace(means, latency=sd, sd=np.sqrt(2) * sd, block_latency=influence)


def collect(block: Ints, u: Floats, exclusive_ms: Floats, sd_ms: Floats, samples: Floats) -> Buckets:
    """Sorts seconds into buckets. All arguments have shape (n,).

    `block`: the block of time of each second (any integers); `u`: utilisation; `exclusive_ms`: mean
    exclusive time; `sd_ms`: its spread within the second; `samples`: number of samples. Seconds
    without samples are left out.
    """
    good = samples > 0
    block = block[good]
    u, exclusive_ms, sd_ms, samples = (v[good] for v in (u, exclusive_ms, sd_ms, samples))
    bins = np.minimum((u * N_BUCKETS).astype(int), N_BUCKETS - 1)
    names_, index = np.unique(block, return_inverse=True)
    cell, cells = index * N_BUCKETS + bins, len(names_) * N_BUCKETS
    stretch = 1 / (1 - u)
    squares = samples * (sd_ms**2 + exclusive_ms**2)
    terms = (samples, samples * stretch, samples * exclusive_ms, squares)
    # Without rows, bincount returns zeros of int64.
    by_cell: Floats = np.stack([np.bincount(cell, term, cells) for term in terms], axis=1)
    blocks = by_cell.reshape(-1, N_BUCKETS, len(terms))
    n, whole_stretch, whole_ms, whole_squares = blocks.sum(axis=0).T
    whole = np.maximum(n, 1e-12)
    mean = whole_ms / whole
    return Buckets(
        utilisation=np.bincount(bins, samples * u, N_BUCKETS) / whole,
        stretch=whole_stretch / whole,
        exclusive_ms=mean,
        sd_ms=np.sqrt(np.maximum(whole_squares / whole - mean**2, 0)),
        samples=n,
        seconds=np.bincount(bins, minlength=N_BUCKETS).astype(float),
        blocks=blocks,
    )
