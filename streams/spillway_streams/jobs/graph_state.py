"""What `graph` remembers of one partition number. No I/O.

This is the call graph of its services, and the pairs of clusters that belong to the number.
"""

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from spillway_streams.batches.parts import Parts
from spillway_streams.batches.positions import Batch, Positions
from spillway_streams.boards.boards import HotTable
from spillway_streams.boards.event_time import Watermark
from spillway_streams.graph import callgraph
from spillway_streams.graph.callgraph import CallGraph
from spillway_streams.graph.outcomes import Board, Outcomes
from spillway_streams.load.recent import Recent
from spillway_streams.process.counters import Counters


@dataclass
class PartitionState:
    """Memory of one partition number.

    A pair of clusters belongs to one number of its own, not to the numbers of its services.
    """

    graph: CallGraph
    hot: HotTable
    outcomes: Outcomes
    restored: list[tuple] = field(default_factory=list)
    positions: Positions = field(default_factory=Positions)
    watermark: Watermark = field(default_factory=Watermark)  # of calls and edges
    network_watermark: Watermark = field(default_factory=Watermark)
    written_watermarks: tuple | None = None
    # Result of network_times, while there is no new data.
    _times: tuple[int, list[tuple]] | None = None
    # First second whose requests are known; None before the first requests.
    requests_from: int | None = None

    def take(self, batch: Batch, counters: Counters) -> bool:
        """Takes a batch if it is new. Returns whether it was."""
        is_new = self.positions.take(batch)
        counters.add(f"batches: {batch.topic}" if is_new else f"repeated_batches: {batch.topic}")
        return is_new

    def add(self, memory: Recent, watermark: Watermark, batch: Batch, parts: Parts) -> None:
        """Adds the parts of a batch to one of the memories, and moves its watermark."""
        memory.add(parts)
        if memory is self.graph.network:
            self._times = None
        if len(parts):
            watermark.note(batch[:3], int(parts.at.max()), time.monotonic())

    def add_requests(self, batch: Batch, parts: Parts, lateness: float) -> None:
        """Adds the requests of a batch of calls.

        Requests are not stored here, while edges are. After a restart, edges are known from before,
        but requests only from after the first batch that is read again. If nothing was counted
        before, requests are known from the first batch on.
        """
        if len(parts) and self.requests_from is None:
            again = any(topic == batch.topic for topic, *_ in self.restored)
            self.requests_from = (
                int(parts.at.max()) + math.ceil(lateness) + 1 if again else int(parts.at.min())
            )
        self.add(self.graph.requests, self.watermark, batch, parts)

    def ratios(self, window: int, lateness: float, wall: float) -> list[tuple]:
        """Returns rows of call ratios over the newest window that calls and edges both cover."""
        now = self.watermark.now(wall)
        if now is None or self.requests_from is None:
            return []
        end = now - int(lateness)
        first = max(end - window, self.requests_from)
        return self.graph.call_ratios(first, end, end * 1000) if first < end else []

    def network_times(self, window: int, lateness: float, wall: float) -> tuple[int, list[tuple]]:
        """Returns the end of the window, and rows of network times over it."""
        now = self.network_watermark.now(wall)
        if now is None:
            return 0, []
        end = now - int(lateness)
        if self._times is None or self._times[0] != end:
            self._times = end, self.graph.network_times(end - window, end, end * 1000)
        return self._times

    def outcomes_board(self, lateness: float, wall: float) -> Board:
        """Returns what callers saw, up to the second that calls and edges have both reached."""
        now = self.watermark.now(wall)
        return {} if now is None else self.outcomes.board(now - int(lateness))

    def restore(self, stored: Iterable[tuple], edges: list[tuple], network: list[tuple]) -> None:
        """Fills the memory from stored rows.

        `stored`: positions of this partition. `edges` and `network`: columns of the parts up to
        them.
        """
        self.restored = list(stored)
        self.positions = Positions(self.restored)
        if edges:
            self.graph.edges.add(callgraph.restored(edges, 6))
        if network:
            self.graph.network.add(callgraph.restored(network, 3))
