"""How far the arrivals of each cluster are known, in the cluster's own time. Pure.

Marks of every source (a partition of otlp_spans) state up to which log time it has been read. A
cluster is known up to the newest call that had ended when the slowest source was at that time. A
missing source therefore stops all clusters, and a silent or late cluster stops only itself. Nothing
is assumed about what has not been reported.
"""

import math
from dataclasses import dataclass

from spillway_streams.batches.marks import MAX_CLUSTERS, Mark
from spillway_streams.process.counters import Counters

_UNMARKED_S = 5.0  # a source of version 0.1.0 sends no marks; silent for longer, it is left out
_FRONTIERS = 256
_RECREATED_S = 60.0


@dataclass
class _Source:
    next: int
    clock: float
    since: float  # log time since which nothing is missing
    is_marked: bool


class EventTimes:
    """Sources and clusters, as one partition of the arrivals shows them."""

    def __init__(self, slack: float, counters: Counters) -> None:
        """slack: seconds that the slowest source may lag behind a call that counts as known.

        Rates leave out as many seconds.
        """
        self._slack, self._counters = slack, counters
        self._count = 0  # partitions of otlp_spans; 0: no source has reported the number yet
        self._sources: dict[int, _Source] = {}
        # Cluster -> (log time, newest end), both rising.
        self._frontiers: dict[str, list[tuple[float, float]]] = {}

    def take(self, mark: Mark) -> float:
        """Notes a mark. Returns the share of its rows that is new.

        A worker that takes over repeats rows that its predecessor sent.
        """
        self._count = max(self._count, mark.sources)
        share, source = 1.0, self._sources.get(mark.source)
        if source and mark.next < source.next and mark.clock > source.clock + _RECREATED_S:
            source = None  # the topic was created anew
        if source is None or not source.is_marked:
            since = -math.inf if mark.first == 0 else mark.clock
            self._sources[mark.source] = _Source(mark.next, mark.clock, since, True)
        else:
            if mark.first > source.next:
                self._counters.add("arrivals_missing_of_a_source")
                source.since = mark.clock
            elif mark.first < source.next:
                share = max(mark.next - source.next, 0) / max(mark.next - mark.first, 1)
                self._counters.add("arrivals_repeated_of_a_source")
            source.next, source.clock = max(source.next, mark.next), max(source.clock, mark.clock)
        for cluster, end in mark.newest.items():
            self._note(cluster, mark.clock, end)
        return share

    def take_unmarked(self, source: int, clock: float, newest: dict[str, float]) -> None:
        """Notes a batch without a mark, which the broker took at `clock`.

        A source of version 0.1.0 sends no marks. If the source does send marks, the batch is part
        of a larger one whose last message has the mark, and is ignored here.
        """
        known = self._sources.setdefault(source, _Source(0, clock, -math.inf, False))
        if known.is_marked:
            return
        known.clock = max(known.clock, clock)
        for cluster, end in newest.items():
            self._note(cluster, clock, end)

    def _note(self, cluster: str, clock: float, end: float) -> None:
        frontier = self._frontiers.get(cluster)
        if frontier is None:
            if len(self._frontiers) >= MAX_CLUSTERS:
                self._counters.add("beyond_memory: clusters")
                return
            frontier = self._frontiers[cluster] = []
        end = min(end, clock)
        if frontier and (end <= frontier[-1][1] or clock < frontier[-1][0]):
            return
        if len(frontier) >= _FRONTIERS:
            frontier.pop()
        frontier.append((clock, end))

    def clusters(self) -> list[str]:
        return list(self._frontiers)

    def behind(self) -> tuple[float, list[int]]:
        """Returns the log time that all sources have reached, and the sources that are no further.

        -inf while a source has never reported.
        """
        newest = max((source.clock for source in self._sources.values()), default=-math.inf)
        clocks = {n: source.clock for n, source in self._sources.items() if self._counts(source, newest)}
        clocks |= {n: -math.inf for n in range(self._count) if n not in self._sources}
        reached = min(clocks.values(), default=-math.inf)
        return reached, sorted(n for n, clock in clocks.items() if clock == reached)

    def _counts(self, source: _Source, newest: float) -> bool:
        return source.is_marked or newest - source.clock <= _UNMARKED_S

    def at(self, cluster: str) -> float | None:
        """Returns the time up to which the cluster's arrivals are known; None if none are."""
        reached, _ = self.behind()
        frontier = self._frontiers.get(cluster, [])
        passed = sum(clock <= reached + self._slack for clock, _ in frontier)
        if not passed:
            return None
        del frontier[: passed - 1]
        return frontier[0][1]

    def newest_arrival(self, cluster: str) -> float:
        """Returns the log time at which the cluster's newest call arrived."""
        return self._frontiers[cluster][-1][0]

    def complete_from(self) -> tuple[float, list[int]]:
        """Returns the log time since which no source misses anything.

        Also returns the sources that missed something before that time.
        """
        since = max((source.since for source in self._sources.values()), default=-math.inf)
        return since, sorted(n for n, source in self._sources.items() if source.since == since)

    def forget(self, cluster: str) -> None:
        self._frontiers.pop(cluster, None)
