"""Which of a request's calls its caller waits for. Pure.

Calls that do not overlap are made one after the other: the caller waits for each. Of calls at the
same time it waits for the one that ends last, and for those that had to end before that one began.
So the path is walked backwards: from the call that ends last to the last one that ended before it
began, and so on. The share of a class's calls on that path is the slope of the requests' mean time
in the time of these calls.

Calls are of one request if the same call of their trace made them. Of a call whose request is
unknown, because its server span is missing, nothing is known here.
"""

import numpy as np

from spillway_streams.batches.arrays import Bools, Floats, Ints
from spillway_streams.batches.columns import Columns, length

# Part of the shorter one of two calls by which clocks and the caller's own work may make them
# overlap, although they are made one after the other.
_TOUCHING = 0.1


def waited(edges: Columns, traces: Ints) -> tuple[Floats, Floats]:
    """Returns two columns (rows,): 1.0 for calls that are waited for, and for calls that are known.

    `traces`: the number of each row's trace. Only known calls are waited for.
    """
    if not length(edges):
        return np.zeros(0), np.zeros(0)
    known, requests = edges["source_call"] > 0, numbered(edges, traces)
    starts = edges["started_at"]
    ends = starts + edges["duration_us"]
    order = np.lexsort((ends, starts, requests))
    found = np.ones(len(order))
    firsts = np.flatnonzero(np.diff(requests[order], prepend=-1))
    overlaps = np.zeros(len(order), bool)
    overlaps[1:] = starts[order][1:] < ends[order][:-1]
    overlaps[firsts] = False
    crowded = np.flatnonzero(np.add.reduceat(overlaps, firsts))
    bounds = np.append(firsts, len(order))
    for group in crowded.tolist():
        rows = order[bounds[group] : bounds[group + 1]]
        found[rows] = _on_path(starts[rows], ends[rows])
    return found * known, known.astype(float)


def numbered(edges: Columns, traces: Ints) -> Ints:
    """Returns the number of the request that made each row's call (rows,).

    `traces`: the number of each row's trace. The unknown requests of a trace have one number.
    """
    values, calls = np.unique(edges["source_call"], return_inverse=True)
    found: Ints = traces * len(values) + calls
    return found


def _on_path(starts: Ints, ends: Ints) -> Bools:
    """Returns which calls of one request lie on its path (calls,). Times are in microseconds."""
    found = np.zeros(len(starts), bool)
    last: int | None = None
    for i in np.lexsort((starts, ends))[::-1].tolist():
        if last is not None:
            shorter = min(ends[i] - starts[i], ends[last] - starts[last])
            if ends[i] - starts[last] > _TOUCHING * shorter:
                continue
        found[i], last = True, i
    return found
