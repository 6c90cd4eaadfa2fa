"""How far a job is behind the topics that it reads.

For each partition: how many records wait, and how long the oldest of them has waited. Brokers
report the end offsets once a second, also while nothing is fetched. A waiting record arrived after
the last record that was taken, and after the last check that found none waiting.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from faust.types import TP


@dataclass
class _Partition:
    next_offset: int
    since: float  # Unix seconds: when this worker began to read it
    taken_at: float = 0.0  # Unix seconds, broker's clock: timestamp of the newest record taken
    level_at: float = 0.0  # Unix seconds: the last time that no record waited
    waiting: int = 0


class Lag:
    """Lag by partition. The job's event loop writes it; scrapes of the metrics read it."""

    def __init__(self) -> None:
        self._partitions: dict[TP, _Partition] = {}

    def starts(self, offsets: Mapping[TP, int], now: float) -> None:
        """Notes a new assignment: these partitions are read from these offsets.

        All other partitions are forgotten. `now`: Unix seconds.
        """
        self._partitions = {tp: _Partition(offset, now) for tp, offset in offsets.items()}

    def took(self, tp: TP, offset: int, timestamp: float) -> None:
        """Notes that a record was taken. `timestamp`: its Kafka timestamp in Unix seconds."""
        partition = self._partitions.get(tp)
        if partition is not None and offset >= partition.next_offset:
            partition.waiting = max(0, partition.waiting - (offset + 1 - partition.next_offset))
            partition.next_offset, partition.taken_at = offset + 1, timestamp

    def ends(self, ends: Mapping[TP, int], now: float) -> None:
        """Notes the end offsets of the partitions, as the brokers report them now."""
        for tp, partition in self._partitions.items():
            partition.waiting = max(0, ends.get(tp, 0) - partition.next_offset)
            if not partition.waiting:
                partition.level_at = now

    def records(self) -> Iterator[tuple[TP, int]]:
        """Yields the number of waiting records of each partition."""
        for tp, partition in list(self._partitions.items()):
            yield tp, partition.waiting

    def seconds(self, now: float) -> Iterator[tuple[TP, float]]:
        """Yields how many seconds the oldest waiting record of each partition has waited at most.

        The value is 0 when no record waits.
        """
        for tp, partition in list(self._partitions.items()):
            before = max(partition.taken_at, partition.level_at) or partition.since
            yield tp, max(0.0, now - before) if partition.waiting else 0.0

    def newest(self) -> dict[str, float]:
        """Returns the Kafka timestamp (Unix seconds) of the newest record taken, by topic."""
        newest: dict[str, float] = {}
        for tp, partition in list(self._partitions.items()):
            if partition.taken_at:
                newest[tp.topic] = max(newest.get(tp.topic, 0.0), partition.taken_at)
        return newest
