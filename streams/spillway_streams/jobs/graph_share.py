"""What `graph` remembers of one partition number: the call graph of its services, and the pairs of clusters that
lie there. No IO."""

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
from spillway_streams.load.recent import Recent
from spillway_streams.process.counters import Counters


@dataclass
class Share:
    """Memory of one partition number. A pair of clusters lies in one number, not in that of its services."""

    graph: CallGraph
    hot: HotTable
    restored: list[tuple] = field(default_factory=list)
    positions: Positions = field(default_factory=Positions)
    watermark: Watermark = field(default_factory=Watermark)  # of calls and edges
    network_watermark: Watermark = field(default_factory=Watermark)
    told: tuple | None = None
    _times: tuple[int, list[tuple]] | None = None  # network_times, while there is no news
    requests_from: int | None = None  # the first second whose requests are known; None: no requests are yet

    def take(self, batch: Batch, counters: Counters) -> bool:
        """Whether a batch is new; then it is taken."""
        is_new = self.positions.take(batch)
        counters.add(f"batches: {batch.topic}" if is_new else f"repeated_batches: {batch.topic}")
        return is_new

    def add(self, memory: Recent, watermark: Watermark, batch: Batch, parts: Parts) -> None:
        memory.add(parts)
        if memory is self.graph.network:
            self._times = None
        if len(parts):
            watermark.note(batch[:3], int(parts.at.max()), time.monotonic())

    def add_requests(self, batch: Batch, parts: Parts, lateness: float) -> None:
        """Requests are not stored here: after a restart those are known that began after the first batch that is
        read again, while edges are known from before. What never was counted began with the first of all."""
        if len(parts) and self.requests_from is None:
            again = any(topic == batch.topic for topic, *_ in self.restored)
            self.requests_from = (
                int(parts.at.max()) + math.ceil(lateness) + 1 if again else int(parts.at.min())
            )
        self.add(self.graph.requests, self.watermark, batch, parts)

    def ratios(self, window: int, lateness: float, wall: float) -> list[tuple]:
        """Rows of call ratios over the newest seconds that calls and edges both have reached."""
        now = self.watermark.now(wall)
        if now is None or self.requests_from is None:
            return []
        end = now - int(lateness)
        first = max(end - window, self.requests_from)
        return self.graph.call_ratios(first, end, end * 1000) if first < end else []

    def network_times(self, window: int, lateness: float, wall: float) -> tuple[int, list[tuple]]:
        """The end of the window, and rows of network times over it."""
        now = self.network_watermark.now(wall)
        if now is None:
            return 0, []
        end = now - int(lateness)
        if self._times is None or self._times[0] != end:
            self._times = end, self.graph.network_times(end - window, end, end * 1000)
        return self._times

    def restore(self, stored: Iterable[tuple], edges: list[tuple], network: list[tuple]) -> None:
        """stored: positions of this partition; columns of the parts up to them."""
        self.restored = list(stored)
        self.positions = Positions(self.restored)
        if edges:
            self.graph.edges.add(callgraph.restored(edges, 6))
        if network:
            self.graph.network.add(callgraph.restored(network, 3))
