"""Identifies the batch that a message carries, and remembers which batches have been taken. Pure.

A batch in a topic partition is identified by its source and its sequence. The source is the
partition of otlp_spans that the batch was computed from. The sequence rises within the source.
After a crash the writer repeats batches unchanged, so a sequence that is not above the last one
taken marks a repeat.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from spillway_contracts import names

from spillway_streams import StreamsError

# Headers of a message, as pairs or by name. None: the message has none.
Headers = Iterable[tuple[str, bytes | str]] | Mapping[str, bytes | str] | None
POSITIONS = ("job", "topic", "partition", "source", "sequence")
TICK_MS, CHUNK_BITS = 500, 10
# Tolerated clock error. A sequence from further ahead would silence its source until then.
_AHEAD_S = 3600
_MAX = {names.KAFKA_HEADER_SOURCE: 2**16 - 1, names.KAFKA_HEADER_SEQUENCE: 2**63 - 1}


class HeaderError(StreamsError):
    """A message whose headers do not identify its batch."""


class Batch(NamedTuple):
    """Identity of a batch: the partition that carries it, its source, and its sequence."""

    topic: str
    partition: int
    source: int
    sequence: int


def identify(topic: str, partition: int, headers: Headers, timestamp: float) -> Batch:
    """Returns the batch that a message's headers name.

    `timestamp`: Unix seconds at which the broker received the message. Raises HeaderError with the
    header, its value and what is allowed.
    """
    found = dict(headers or {})
    source, sequence = (_number(found, name) for name in _MAX)
    made = (sequence >> CHUNK_BITS) * TICK_MS / 1000
    if made > timestamp + _AHEAD_S:
        raise HeaderError(
            f"{names.KAFKA_HEADER_SEQUENCE}: {sequence} is of second {made:.0f}; the message is of second {timestamp:.0f}"
        )
    return Batch(topic, partition, source, sequence)


def source_of(headers: Headers) -> int:
    """Returns the source that a message's headers name. Raises HeaderError."""
    return _number(dict(headers or {}), names.KAFKA_HEADER_SOURCE)


def _number(headers: Mapping[str, bytes | str], name: str) -> int:
    value = headers.get(name)
    if value is None:
        raise HeaderError(f"{name}: missing")
    text = value.encode() if isinstance(value, str) else bytes(value)
    if not text.isdigit() or len(text) > 19 or int(text) > _MAX[name]:
        raise HeaderError(f"{name}: {text[:40]!r} must be a whole number in 0..{_MAX[name]}")
    return int(text)


class Positions:
    """The last sequence taken per (topic, partition, source)."""

    def __init__(self, rows: Iterable[tuple[str, int, int, int]] = ()) -> None:
        """`rows`: topic, partition, source and sequence, as stored."""
        self._last = {(topic, partition, source): sequence for topic, partition, source, sequence in rows}

    def take(self, batch: Batch) -> bool:
        """Takes the batch if it is new. Returns whether it was."""
        place = batch[:3]
        if batch.sequence <= self._last.get(place, -1):
            return False
        self._last[place] = batch.sequence
        return True


def rows(job: str, batches: Iterable[Batch]) -> list[tuple[str, str, int, int, int]]:
    """Returns the rows to store once the parts of these batches are stored.

    Rows are in the order of POSITIONS. For each topic partition and source they hold the highest
    sequence.
    """
    last: dict[tuple[str, int, int], int] = {}
    for batch in batches:
        last[batch[:3]] = max(last.get(batch[:3], 0), batch.sequence)
    return [(job, *place, sequence) for place, sequence in sorted(last.items())]
