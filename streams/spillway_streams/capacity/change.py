"""When a pod last became slower or faster: a change of latency or of CPU use per request. Pure.

A generalised likelihood ratio test over all points of change. Seconds are averaged over blocks of
BLOCK_S. Blocks are compared only with blocks of about the same load, because latency rises with
load by itself. Values are logarithms, so a change is a factor. The test is a function of the
recorded data. It keeps no state, and a restarted process finds the same change. A pod counts as
slower after SLOWER blocks, and as faster after FASTER blocks.
"""

from dataclasses import dataclass

import numpy as np

from spillway_streams.batches.arrays import Floats, Ints

BLOCK_S = 10
SLOWER, FASTER = 2, 12  # blocks after a change
BEFORE = 6  # blocks before it
_SCATTER = 0.05  # lower bound on the standard deviation of blocks, of the logarithm
# Numbers of newest blocks to search. Over all blocks, an older change hides a newer one that
# reverts it.
_LENGTHS = (36, 72, 144)


@dataclass(frozen=True)
class Test:
    """What counts as a change of a value.

    `factor`: the smallest factor; `errors`: the smallest number of standard errors of the
    difference; `bin`: range of the logarithm of load within which loads count as about the same.
    """

    factor: float
    errors: float
    bin: float


LATENCY = Test(1.8, 9.0, 0.12)
CPU = Test(1.5, 8.0, 0.8)


def last(at: Ints, load: Floats, value: Floats, test: Test) -> tuple[int, float] | None:
    """Finds the newest change: the first second after it, and the factor of the values.

    `at`: seconds (n,), ascending; `load`: requests per second; `value`: latency, or CPU use per
    request. Seconds in which load or value is 0 are left out. None when there is no change.
    """
    known = (load > 0) & (value > 0)
    blocks = _Blocks.of(at[known], load[known], value[known], test.bin)
    n = len(blocks.at)
    firsts = {max(n - length, 0) for length in (*_LENGTHS, n)}
    found = [change for first in firsts if (change := _strongest(blocks, first, test))]
    if not found:
        return None
    row, factor = max(found)
    return int(blocks.at[row]), factor


@dataclass(frozen=True)
class _Blocks:
    """Start (blocks,), bin of load, and mean of the logarithm of the values."""

    at: Ints
    bin: Ints
    value: Floats

    @staticmethod
    def of(at: Ints, load: Floats, value: Floats, width: float) -> "_Blocks":
        if not len(at):
            return _Blocks(at, at, value)
        starts, index, seconds = np.unique(at // BLOCK_S * BLOCK_S, return_inverse=True, return_counts=True)
        mean = np.log(np.bincount(index, value) / seconds)
        level = np.log(np.bincount(index, load) / seconds)
        whole = seconds >= BLOCK_S // 2
        _, bins = np.unique(np.floor(level[whole] / width), return_inverse=True)
        return _Blocks(starts[whole], bins, mean[whole])


def _strongest(blocks: _Blocks, first: int, test: Test) -> tuple[int, float] | None:
    """Row of the first block after the clearest change since row `first`, and its factor."""
    n = len(blocks.at) - first
    if n < BEFORE + SLOWER:
        return None
    bins, value = blocks.bin[first:], blocks.value[first:]
    indicator = np.zeros((n, int(blocks.bin.max()) + 1))
    indicator[np.arange(n), bins] = 1
    sums = [np.cumsum(indicator * v[:, None], axis=0)[:-1] for v in (np.ones(n), value, value**2)]
    whole = [(indicator * v[:, None]).sum(axis=0) for v in (np.ones(n), value, value**2)]
    (n1, y1, s1), (n2, y2, s2) = sums, [w - s for w, s in zip(whole, sums, strict=True)]
    both = (n1 > 0) & (n2 > 0)
    weight = np.where(both, n1 * n2 / np.maximum(n1 + n2, 1), 0.0)
    total = weight.sum(axis=1)
    step = np.where(both, y2 / np.maximum(n2, 1) - y1 / np.maximum(n1, 1), 0.0)
    difference = (weight * step).sum(axis=1) / np.maximum(total, 1e-12)
    rest = (s1 - y1**2 / np.maximum(n1, 1)) + (s2 - y2**2 / np.maximum(n2, 1))
    free = np.maximum(n - (n1 > 0).sum(axis=1) - (n2 > 0).sum(axis=1), 1)
    scatter = np.maximum(np.sqrt(np.maximum(rest.sum(axis=1), 0) / free), _SCATTER)
    errors = difference * np.sqrt(total) / scatter
    before, after = np.arange(1, n), n - np.arange(1, n)
    slower = (errors > test.errors) & (difference > np.log(test.factor)) & (after >= SLOWER)
    faster = (errors < -test.errors) & (difference < -np.log(test.factor)) & (after >= FASTER)
    allowed = (slower | faster) & (before >= BEFORE) & (total > 0)
    if not allowed.any():
        return None
    row = int(np.argmax(np.where(allowed, np.abs(errors), 0)))
    return first + row + 1, float(np.exp(difference[row]))
