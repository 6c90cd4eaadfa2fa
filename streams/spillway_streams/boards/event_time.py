"""How far the calls of all sources have come, in their own time. Pure.

The slowest source that still brings calls determines the time. A backlog that is read one partition
after the other therefore does not run ahead of itself. A source that has been silent is left out.
"""

from collections.abc import Hashable

SILENT_S = 5.0


class Watermark:
    """Event time in Unix seconds. `wall` is any monotonic clock in seconds."""

    def __init__(self) -> None:
        self._newest: dict[Hashable, tuple[int, float]] = {}

    def note(self, source: Hashable, newest: int, wall: float) -> None:
        """Notes that a source brought calls, the newest of which started in this second."""
        before = self._newest.get(source, (newest, wall))[0]
        self._newest[source] = (max(before, newest), wall)

    def forget(self, source: Hashable) -> None:
        self._newest.pop(source, None)

    def now(self, wall: float) -> int | None:
        """Returns the second that the slowest active source has reached.

        If no source is active, returns the newest second of all; None if there was never a source.
        """
        active = [newest for newest, seen in self._newest.values() if wall - seen <= SILENT_S]
        if active:
            return min(active)
        return max((newest for newest, _ in self._newest.values()), default=None)
