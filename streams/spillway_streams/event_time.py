"""How far the calls of all partitions have come, in their own time. Pure.

The slowest partition that still brings calls sets the time, so that a backlog which is read one
partition after the other does not run ahead of itself. One that has been silent is left out.
"""

SILENT_S = 5.0


class Watermark:
    """Unix seconds of event time; `wall` is any monotonic clock in seconds."""

    def __init__(self) -> None:
        self._newest: dict[int, tuple[int, float]] = {}

    def note(self, partition: int, newest: int, wall: float) -> None:
        """A partition brought calls, the newest of which started in this second."""
        before = self._newest.get(partition, (newest, wall))[0]
        self._newest[partition] = (max(before, newest), wall)

    def forget(self, partition: int) -> None:
        self._newest.pop(partition, None)

    def now(self, wall: float) -> int | None:
        """The second that the slowest active partition is in; None while there was none."""
        active = [newest for newest, seen in self._newest.values() if wall - seen <= SILENT_S]
        if active:
            return min(active)
        return max((newest for newest, _ in self._newest.values()), default=None)
