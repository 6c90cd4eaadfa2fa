"""How far a job is behind the topics that it reads: records that wait, and how long the oldest of them has waited.

Ends are what the brokers last said of them, once a second also while nothing is fetched. A record that waits came
after the last one that was taken, and after the last look that found none waiting.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from faust.types import TP


@dataclass
class _Partition:
    next_offset: int
    since: float  # Unix seconds: when we began to read it
    taken_at: float = 0.0  # Unix seconds, the broker's: of the newest record taken
    level_at: float = 0.0  # Unix seconds: when last none waited
    waiting: int = 0


class Lag:
    """Written by the job's event loop, read by whoever scrapes."""

    def __init__(self) -> None:
        self._partitions: dict[TP, _Partition] = {}

    def starts(self, offsets: Mapping[TP, int], now: float) -> None:
        """Partitions were assigned, and are read from here; all others are not ours any more."""
        self._partitions = {tp: _Partition(offset, now) for tp, offset in offsets.items()}

    def took(self, tp: TP, offset: int, timestamp: float) -> None:
        """A record was taken; timestamp: its Kafka timestamp in Unix seconds."""
        partition = self._partitions.get(tp)
        if partition is not None and offset >= partition.next_offset:
            partition.waiting = max(0, partition.waiting - (offset + 1 - partition.next_offset))
            partition.next_offset, partition.taken_at = offset + 1, timestamp

    def ends(self, ends: Mapping[TP, int], now: float) -> None:
        """The offsets after the last record of each partition, as the brokers say now."""
        for tp, partition in self._partitions.items():
            partition.waiting = max(0, ends.get(tp, 0) - partition.next_offset)
            if not partition.waiting:
                partition.level_at = now

    def records(self) -> Iterator[tuple[TP, int]]:
        for tp, partition in list(self._partitions.items()):
            yield tp, partition.waiting

    def seconds(self, now: float) -> Iterator[tuple[TP, float]]:
        for tp, partition in list(self._partitions.items()):
            before = max(partition.taken_at, partition.level_at) or partition.since
            yield tp, max(0.0, now - before) if partition.waiting else 0.0

    def newest(self) -> dict[str, float]:
        """By topic, the Kafka timestamp (Unix seconds) of the newest record taken."""
        newest: dict[str, float] = {}
        for tp, partition in list(self._partitions.items()):
            if partition.taken_at:
                newest[tp.topic] = max(newest.get(tp.topic, 0.0), partition.taken_at)
        return newest
