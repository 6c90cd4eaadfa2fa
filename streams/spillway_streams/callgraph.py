"""The call graph: calls per request, bytes, network time per cluster pair, demand at the entry. Pure.

Sums per event second, so neither arrival order nor batch limits change a result.
"""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
from spillway_contracts.hot_state import DemandEntry, NetworkEntry

from spillway_streams.columns import Columns
from spillway_streams.counters import Counters

CALL_RATIOS = (
    "window_end", "input_window", "source_class", "source_service", "class", "service", "calls_per_request",
    "request_bytes", "response_bytes", "samples",
)  # fmt: skip
NETWORK_TIMES = (
    "window_end", "source_cluster", "destination_cluster", "mean_ms", "p50_ms", "p99_ms", "samples",
)  # fmt: skip


@dataclass
class _Second:
    """Sums of one second; adjusted for sampling, the sample counts excepted."""

    requests: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    demand: dict[tuple, np.ndarray] = field(default_factory=lambda: defaultdict(lambda: np.zeros(4)))
    edges: dict[tuple, np.ndarray] = field(default_factory=lambda: defaultdict(lambda: np.zeros(4)))
    network: dict[tuple, list[float]] = field(default_factory=lambda: defaultdict(list))


class CallGraph:
    """Sums of the newest `memory` seconds that have data; at most `max_network` network samples of
    each cluster pair and second are kept."""

    def __init__(self, memory: int, max_network: int, counters: Counters) -> None:
        self._memory, self._max_network, self._counters = memory, max_network, counters
        self._seconds: dict[int, _Second] = {}
        self._floor = np.iinfo(np.int64).min

    def _second(self, at: int) -> _Second | None:
        if at < self._floor:
            self._counters.add("rows_older_than_memory")
            return None
        if at not in self._seconds:
            self._seconds[at] = _Second()
            if len(self._seconds) > self._memory * 1.1:
                ordered = sorted(self._seconds)
                self._floor = ordered[-self._memory]
                for old in ordered[: -self._memory]:
                    del self._seconds[old]
        return self._seconds.get(at)

    def add_calls(self, calls: Columns) -> None:
        """Folds a batch of calls (columns.CALLS)."""
        names = ("class", "cluster", "source_service", "failed", "duration_us", "adjusted_count")
        rows = zip(
            (calls["started_at"] // 1_000_000).tolist(), *(calls[n].tolist() for n in names), strict=True
        )
        for at, class_id, cluster, source, failed, duration_us, weight in rows:
            second = self._second(at)
            if second is None:
                continue
            second.requests[class_id] += weight
            if not source:
                good = 0.0 if failed else weight
                second.demand[cluster, class_id] += (weight, weight - good, good, good * duration_us / 1000)

    def add_edges(self, edges: Columns) -> None:
        """Folds a batch of edges (columns.EDGES)."""
        names = (
            "source_class", "source_service", "class", "destination_service", "source_cluster",
            "destination_cluster", "network_us", "request_bytes", "response_bytes", "adjusted_count",
        )  # fmt: skip
        rows = zip(
            (edges["started_at"] // 1_000_000).tolist(), *(edges[n].tolist() for n in names), strict=True
        )
        for at, source, caller, class_id, service, here, there, network_us, sent, got, weight in rows:
            second = self._second(at)
            if second is None:
                continue
            if source:
                second.edges[source, caller, class_id, service] += (weight, weight * sent, weight * got, 1)
            if network_us >= 0 and len(second.network[here, there]) < self._max_network:
                second.network[here, there].append(network_us / 1000)

    def _within(self, first: int, end: int) -> list[_Second]:
        return [self._seconds[at] for at in sorted(self._seconds) if first <= at < end]

    def call_ratios(self, first: int, end: int, window_end_ms: int) -> list[tuple]:
        """Rows in the order of CALL_RATIOS over the event seconds first <= s < end."""
        requests: dict[str, float] = defaultdict(float)
        edges: dict[tuple, np.ndarray] = defaultdict(lambda: np.zeros(4))
        for second in self._within(first, end):
            for class_id, count in second.requests.items():
                requests[class_id] += count
            for edge, sums in second.edges.items():
                edges[edge] += sums
        rows = []
        for (source, caller, class_id, service), (count, sent, got, samples) in sorted(edges.items()):
            if requests[source] <= 0:
                self._counters.add("edges_without_requests", int(samples))
                continue
            rows.append((
                window_end_ms, f"{first * 1000}-{end * 1000}", source, caller, class_id, service,
                float(count / requests[source]), float(sent / count), float(got / count), int(samples),
            ))  # fmt: skip
        return rows

    def network_times(self, first: int, end: int, window_end_ms: int) -> list[tuple]:
        """Rows in the order of NETWORK_TIMES, one per ordered pair of clusters seen."""
        found: dict[tuple, list[float]] = defaultdict(list)
        for second in self._within(first, end):
            for pair, values in second.network.items():
                found[pair] += values
        rows = []
        for (here, there), values in sorted(found.items()):
            p50, p99 = np.percentile(values, [50, 99])
            rows.append(
                (window_end_ms, here, there, float(np.mean(values)), float(p50), float(p99), len(values))
            )
        return rows

    def demand(self, first: int, end: int) -> dict[str, dict[str, DemandEntry]]:
        """cluster -> class -> demand of the calls that nobody among us made."""
        totals: dict[tuple, np.ndarray] = defaultdict(lambda: np.zeros(4))
        for second in self._within(first, end):
            for entry, sums in second.demand.items():
                totals[entry] += sums
        board: dict[str, dict[str, DemandEntry]] = {}
        for (cluster, class_id), (count, failed, good, duration_ms) in sorted(totals.items()):
            board.setdefault(cluster, {})[class_id] = DemandEntry(
                at=float(end),
                rps=float(count / (end - first)),
                failed_share=float(failed / count),
                duration_ms=float(duration_ms / good) if good else 0.0,
            )
        return board


def network_board(rows: list[tuple], end: int) -> dict[str, NetworkEntry]:
    """Entries of the Redis hash, from rows of network_times."""
    return {
        f"{here}>{there}": NetworkEntry(at=float(end), mean_ms=mean, samples=samples)
        for _, here, there, mean, _, _, samples in rows
    }
