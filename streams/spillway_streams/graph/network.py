"""Network times as a logarithmic histogram: bucket i covers (1.04^(i-1), 1.04^i] µs. Pure.

A quantile is off by at most 2 % (the relative-error sketch of Masson, Rim and Lee, DDSketch, VLDB
2019, with gamma = 1.04). The mean is computed from the sum and is exact.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from spillway_streams.batches.arrays import Floats, Ints
from spillway_streams.batches.columns import Columns, take

GAMMA = 1.04


def bucket_of(us: Floats | Ints) -> Ints:
    """Returns the bucket of each time, int64 (n,); 0 for times of at most a microsecond."""
    bucket: Ints = np.ceil(np.log(np.maximum(us, 1.0)) / np.log(GAMMA) - 1e-9).astype(np.int64)
    return bucket


def middle_us(bucket: Ints | int) -> NDArray[np.floating] | float:
    """Returns the value with the same relative distance, at most 2 %, to both bucket ends."""
    return 2 * GAMMA**bucket / (1 + GAMMA)


def of_edges(edges: Columns) -> Columns:
    """Returns columns.NETWORK of a batch of edges, one row for each known network time."""
    known = take(edges, edges["network_us"] >= 0)
    return {
        "at": known["started_at"] // 1_000_000, "source_cluster": known["source_cluster"],
        "destination_cluster": known["destination_cluster"], "bucket": bucket_of(known["network_us"]),
        "calls": known["adjusted_count"], "time_us": known["adjusted_count"] * known["network_us"],
    }  # fmt: skip


def summary(buckets: Mapping[int, Floats]) -> tuple[float, float, float, int]:
    """Returns mean, p50 and p99 in ms, and the number of calls.

    `buckets`: bucket -> (calls, sum of microseconds).
    """
    order = np.array(sorted(buckets))
    sums = np.stack([buckets[i] for i in order.tolist()])
    calls = sums[:, 0]
    total = float(calls.sum())
    if total <= 0:
        return 0.0, 0.0, 0.0, 0
    below = np.cumsum(calls)
    places = np.minimum(np.searchsorted(below, np.array([0.5, 0.99]) * total), len(order) - 1)
    p50, p99 = (float(middle_us(order[place])) / 1000 for place in places.tolist())
    return float(sums[:, 1].sum()) / total / 1000, p50, p99, min(max(round(total), 1), 2**63 - 1)
