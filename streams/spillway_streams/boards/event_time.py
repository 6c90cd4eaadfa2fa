"""How far the calls of all sources have come, in their own time. Pure.

The slowest source that still brings calls sets the time, so that a backlog which is read one
partition after the other does not run ahead of itself. One that has been silent is left out.
"""

from collections.abc import Hashable

SILENT_S = 5.0


class Watermark:
    """Unix seconds of event time; `wall` is any monotonic clock in seconds."""

    def __init__(self) -> None:
        self._newest: dict[Hashable, tuple[int, float]] = {}

    def note(self, source: Hashable, newest: int, wall: float) -> None:
        """A source brought calls, the newest of which started in this second."""
        before = self._newest.get(source, (newest, wall))[0]
        self._newest[source] = (max(before, newest), wall)

    def forget(self, source: Hashable) -> None:
        self._newest.pop(source, None)

    def now(self, wall: float) -> int | None:
        """The second that the slowest active source is in; None while there was none."""
        active = [newest for newest, seen in self._newest.values() if wall - seen <= SILENT_S]
        if active:
            return min(active)
        return max((newest for newest, _ in self._newest.values()), default=None)
