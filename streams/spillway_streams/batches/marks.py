"""What a batch of arrivals covers: offsets of its source, and the log time reached. Pure.

`exclusive` sends a mark with every batch of arrivals, and a mark without rows when there are no
arrivals. From marks a reader knows whether a silent source has nothing to report, is behind, or has
messages that were never counted.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from spillway_contracts import names

from spillway_streams import StreamsError
from spillway_streams.batches.positions import Headers

HOT_MS = 10_000  # arrivals in messages older than this are not counted
MAX_CLUSTERS = 1000
_MAX_SOURCES = 2**16
_CLUSTER_S = 120.0  # log time without spans after which a mark no longer names a cluster


class MarkError(StreamsError):
    """A mark header that cannot be read, or whose values are impossible."""


@dataclass(frozen=True)
class Mark:
    """What one batch of arrivals covers.

    The offsets first <= o < next of partition `source` are counted. `sources`: number of partitions
    of otlp_spans. `clock`: log time up to which the source has been read, Unix seconds. `newest`:
    newest end of a call by cluster, Unix seconds.
    """

    source: int
    sources: int
    first: int
    next: int
    clock: float
    newest: Mapping[str, float] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        return json.dumps(
            [self.source, self.sources, self.first, self.next, self.clock, dict(self.newest)],
            separators=(",", ":"),
        ).encode()


def from_headers(headers: Headers) -> Mark | None:
    """Returns the mark of a message; None when it has none, like messages of version 0.1.0.

    Raises MarkError when the header is not a valid mark.
    """
    text = dict(headers or {}).get(names.KAFKA_HEADER_MARK)
    if text is None:
        return None
    try:
        source, sources, first, next_, clock, newest = json.loads(text)
        mark = Mark(
            int(source), int(sources), int(first), int(next_), float(clock),
            {str(cluster): float(end) for cluster, end in newest.items()},
        )  # fmt: skip
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise MarkError(f"{names.KAFKA_HEADER_MARK}: {text[:100]!r}: {error}") from error
    if not (0 <= mark.source < mark.sources <= _MAX_SOURCES and 0 <= mark.first <= mark.next):
        raise MarkError(f"{names.KAFKA_HEADER_MARK}: {text[:100]!r}: source or offsets are impossible")
    if not 0 <= mark.clock < 2**32 or len(mark.newest) > MAX_CLUSTERS:
        raise MarkError(f"{names.KAFKA_HEADER_MARK}: {text[:100]!r}: clock or clusters are impossible")
    return mark


class Coverage:
    """What a worker has counted of one partition of otlp_spans.

    Covers the time since the worker began, or since it last had to skip messages.
    """

    def __init__(self) -> None:
        self._begin: int | None = None  # first offset that is counted; there is no gap after it
        self._next = 0
        self._clock = 0.0
        self._newest: dict[str, float] = {}
        self._marked: dict[
            int, int
        ] = {}  # by partition of the arrivals: the source offset that its marks have reached

    def took(self, offset: int, timestamp: float, is_counted: bool) -> None:
        """Notes that a message was read.

        `timestamp`: its log time in Unix seconds. `is_counted`: False for a message that is too old
        to be counted (HOT_MS).
        """
        if not is_counted:
            self._begin, self._marked = None, {}
        elif self._begin is None:
            self._begin = offset
        self._next = offset + 1
        self._clock = max(self._clock, timestamp)

    def idle(self, next_offset: int, clock: float) -> None:
        """Notes that there was nothing to read.

        `next_offset`: the end of the log. `clock`: log time in Unix seconds.
        """
        if self._begin is None:
            self._begin = self._next = next_offset
        if self._next <= next_offset:
            self._next = next_offset
            self._clock = max(self._clock, clock)

    def saw(self, ends: Mapping[str, float]) -> None:
        """Notes that calls ended. `ends`: the newest end by cluster, Unix seconds."""
        for cluster, end in ends.items():
            # A host whose clock is ahead of the broker's must not claim a time that is not known
            # yet.
            end = min(end, self._clock)
            if cluster in self._newest or len(self._newest) < MAX_CLUSTERS:
                self._newest[cluster] = max(end, self._newest.get(cluster, end))

    def mark(self, source: int, sources: int, partition: int) -> Mark | None:
        """Returns the mark for the next message to a partition of the arrivals.

        Returns None while nothing is counted yet.
        """
        if self._begin is None:
            return None
        self._newest = {c: end for c, end in self._newest.items() if end > self._clock - _CLUSTER_S}
        first = self._marked.get(partition, self._begin)
        self._marked[partition] = self._next
        return Mark(source, sources, first, self._next, self._clock, dict(self._newest))
