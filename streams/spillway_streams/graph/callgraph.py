"""The call graph: calls per request, their outcome and bytes, network time per cluster pair. Pure.

Sums are per second of event time, so neither the order of arrival nor the limits of batches change
a result.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from spillway_contracts.hot_state import NetworkEntry

from spillway_streams.batches.arrays import Floats, Ints
from spillway_streams.batches.columns import Columns, length
from spillway_streams.batches.parts import Parts, column_of, fold
from spillway_streams.graph import network, waits
from spillway_streams.load.recent import Recent
from spillway_streams.process.counters import Counters

CALL_RATIOS = (
    "window_end", "input_window", "source_class", "source_service", "class", "service", "calls_per_request",
    "request_bytes", "response_bytes", "samples", "probability", "success_rate",
    "wait_share",
)  # fmt: skip
NETWORK_TIMES = (
    "window_end", "source_cluster", "destination_cluster", "mean_ms", "p50_ms", "p99_ms", "samples",
)  # fmt: skip
# Rows in the order of CALL_RATIOS and NETWORK_TIMES.
CallRatio = tuple[int, str, str, str, str, str, float, float, float, int, float, float, float]
NetworkTime = tuple[int, str, str, float, float, float, int]
EDGE_PARTS = (
    "at", "source_class", "source_service", "class", "service", "source_cluster", "cluster", "calls", "failed",
    "request_bytes", "response_bytes", "samples", "callers", "known", "wait_calls",
)  # fmt: skip
NETWORK_PARTS = ("at", "source_cluster", "destination_cluster", "bucket", "calls", "time_us")
CALL_COLUMNS = frozenset({"started_at", "class", "adjusted_count"})
EDGE_COLUMNS = frozenset({
    "started_at", "trace_id", "source_call", "source_class", "source_service", "class", "destination_service",
    "source_cluster", "destination_cluster", "duration_us", "failed", "request_bytes", "response_bytes", "adjusted_count",
})  # fmt: skip
_CALLS, _FAILED, _SENT, _GOT, _SAMPLES, _CALLERS, _KNOWN, _WAITED = range(8)


def request_parts(calls: Columns) -> Parts:
    """Returns the requests served per second and class, of a batch of calls; key: (class,)."""
    return fold(calls["started_at"] // 1_000_000, (calls["class"],), (calls["adjusted_count"],))


def edge_parts(edges: Columns) -> Parts:
    """Returns the parts of a batch of edges (columns.EDGES).

    columns() are in the order of EDGE_PARTS. Calls whose caller is unknown, because its server span
    is missing, are left out.
    """
    by = (
        "source_class",
        "source_service",
        "class",
        "destination_service",
        "source_cluster",
        "destination_cluster",
    )
    rows = ~(edges["source_class"] == "")
    edges = {name: column if rows.all() else column[rows] for name, column in edges.items()}
    weight, traces = edges["adjusted_count"], _numbered(edges)
    waited, known = waits.waited(edges, traces)
    terms = (
        weight, np.where(edges["failed"], weight, 0.0), weight * edges["request_bytes"],
        weight * edges["response_bytes"], np.ones(len(weight)), weight * _firsts(edges, traces),
        weight * known, weight * waited,
    )  # fmt: skip
    return fold(edges["started_at"] // 1_000_000, [edges[name] for name in by], terms)


def _numbered(edges: Columns) -> Ints:
    """Returns the number of each row's trace (rows,), in the order of their first rows."""
    traces: dict[str, int] = {}
    return np.array([traces.setdefault(t, len(traces)) for t in edges["trace_id"].tolist()], dtype=np.int64)


def _firsts(edges: Columns, traces: Ints) -> Floats:
    """Marks the first row in which a request calls a class: 1.0, else 0.0; (rows,).

    `traces`: the number of each row's trace. Where a trace does not show which request made a call,
    its calls of one source class count as one request's.
    """
    n = length(edges)
    source, target = edges["source_class"], edges["class"]
    callers = waits.numbered(edges, traces) * len(source.values) + source.codes
    pairs = callers * len(target.values) + target.codes
    firsts = np.zeros(n)
    firsts[np.unique(pairs, return_index=True)[1]] = 1.0
    return firsts


def network_parts(batch: Columns) -> Parts:
    """Returns the parts of columns.NETWORK; columns() are in the order of NETWORK_PARTS."""
    by = (batch["source_cluster"], batch["destination_cluster"], batch["bucket"])
    return fold(batch["at"], by, (batch["calls"], batch["time_us"]))


def restored(columns: Sequence[Sequence[Any]], names: int) -> Parts:
    """Returns parts from stored columns of edge_parts or network_parts.

    `columns`: the second, then `names` columns of the key, then the sums.
    """
    at, *rest = columns
    by = [column_of([*column]) for column in rest[:names]]
    return fold(np.array(at, np.int64), by, [np.array(column, float) for column in rest[names:]])


class CallGraph:
    """Sums of the newest `memory` seconds that have data, for at most `max_keys` edges."""

    def __init__(self, memory: int, max_keys: int, counters: Counters) -> None:
        self._counters = counters
        self.requests = Recent("requests", 1, memory, max_keys, counters)
        self.edges = Recent("edges", len(EDGE_PARTS) - 7, memory, max_keys, counters)
        self.network = Recent("network", 2, memory, max_keys, counters)

    def call_ratios(self, first: int, end: int, window_end_ms: int) -> list[CallRatio]:
        """Returns rows in the order of CALL_RATIOS, over all clusters together.

        They cover the event seconds first <= s < end.
        """
        requests = self.requests.total(first, end)
        edges: dict[tuple[str, str, str, str], Floats] = defaultdict(lambda: np.zeros(8))
        for (source, caller, class_id, service, _, _), sums in self.edges.total(first, end).items():
            edges[source, caller, class_id, service] += sums
        rows = []
        for (source, caller, class_id, service), sums in sorted(edges.items()):
            served = float(requests[(source,)][0]) if (source,) in requests else 0.0
            if served <= 0:
                self._counters.add("edges_without_requests", int(sums[_SAMPLES]))
                continue
            calls, failed, sent, got, samples, callers, known, waited = (float(value) for value in sums)
            rows.append((
                window_end_ms, f"{first * 1000}-{end * 1000}", source, caller, class_id, service, calls / served,
                sent / calls, got / calls, int(samples), min(callers / served, 1.0), 1 - failed / calls,
                waited / known if known > 0 else math.nan,
            ))  # fmt: skip
        return rows

    def network_times(self, first: int, end: int, window_end_ms: int) -> list[NetworkTime]:
        """Returns rows in the order of NETWORK_TIMES, one for each ordered pair of clusters.

        `samples` counts calls.
        """
        pairs: dict[tuple[str, str], dict[int, Floats]] = defaultdict(dict)
        for (here, there, bucket), sums in self.network.total(first, end).items():
            pairs[here, there][bucket] = sums
        rows = []
        for (here, there), buckets in sorted(pairs.items()):
            found = network.summary(buckets)
            rows.append((window_end_ms, here, there, *found))
        return rows


def network_board(rows: list[NetworkTime], end: int) -> dict[str, NetworkEntry]:
    """Returns the entries of the Redis hash, from rows of network_times."""
    return {
        f"{here}>{there}": NetworkEntry(at=float(end), mean_ms=mean, samples=samples)
        for _, here, there, mean, _, _, samples in rows
    }
