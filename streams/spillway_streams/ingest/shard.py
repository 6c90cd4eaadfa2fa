"""One partition of otlp_spans in this worker: its native engine, its offsets and its commits."""

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from spillway_native import Closed, Partition, PayloadError

from spillway_streams.batches.marks import HOT_MS, Coverage
from spillway_streams.clients.transport import Progress, Start
from spillway_streams.ingest.offsets import Offsets, noted
from spillway_streams.process.config import TICK_MS, ExclusiveSettings

log = logging.getLogger("spillway.shard")
Rules = list[tuple[int, str, str, str, str, str]]
# Rows per flush, or one tick of each partition if that is more. While they are sent and stored,
# rows exist four times.
MAX_ROWS = 100_000


class NativeError(Exception):
    """An undocumented failure of the native code: a panic, or an exception of its own."""


def is_panic(error: BaseException) -> bool:
    """Whether this is a Rust panic: a BaseException of a class that cannot be imported."""
    return type(error).__name__ == "PanicException"


@contextmanager
def _native() -> Iterator[None]:
    """Turns exceptions that the engine does not document into NativeError."""
    try:
        yield
    except PayloadError:
        raise
    except BaseException as error:
        if isinstance(error, Exception) or is_panic(error):
            raise NativeError(f"{type(error).__name__}: {error}") from error
        raise


@dataclass
class Rejected:
    """Spans that were set aside: the reason, and a payload of their own."""

    reason: str
    payload: bytes
    spans: int


@dataclass
class Shard:
    """State of one partition of otlp_spans.

    The state is a function of the partition's log. It stays valid if another worker had the
    partition for a while.
    """

    engine: Partition
    offsets: Offsets
    dead_lettered: int  # dead letters have been sent for every message before this offset
    sent: int = -1  # Kafka has all output of messages before this offset
    done: int = -1  # ClickHouse has it, too
    committed: int = -1
    coverage: Coverage = field(default_factory=Coverage)  # what the arrivals sent so far cover
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # the engine serves one task at a time

    def take(
        self, payload: bytes, offset: int, timestamp_ms: int, cluster: str | None = None
    ) -> list[Rejected]:
        """Adds a message to the engine, and returns the spans that were set aside.

        `cluster`: the cluster that the spans belong to; None for the cluster that each names.
        Raises PayloadError when the payload holds no spans at all, and NativeError when the engine
        must be replaced.
        """
        now_ms = round(time.time() * 1000)
        self.coverage.took(offset, timestamp_ms / 1000, now_ms - timestamp_ms < HOT_MS)
        with _native():
            found = self.engine.add(payload, offset, timestamp_ms, now_ms, cluster)
            return [Rejected(*fields) for fields in found]

    def idle(self, progress: Progress | None, clock_skew_ms: int) -> None:
        """Advances the clock while there is nothing to read.

        The clock never passes a message that could still come.
        """
        if progress and self.offsets.next_offset >= progress.end:
            self.engine.advance(progress.at_ms - clock_skew_ms)
            self.coverage.idle(self.offsets.next_offset, (progress.at_ms - clock_skew_ms) / 1000)

    def close(self, max_rows: int) -> Closed | None:
        """Returns what is due, oldest first: whole ticks, with about `max_rows` rows.

        Raises NativeError when the engine must be replaced.
        """
        with _native():
            return self.engine.close(max_rows)


class Shards:
    """Creates shards from the settings."""

    def __init__(self, settings: ExclusiveSettings, partitions: int) -> None:
        self._options: dict[str, Any] = {
            "partitions": partitions,
            "window_ms": round(settings.window_s * 1000),
            "hold_ms": round(settings.hold_s * 1000),
            "life_ms": round(settings.life_s * 1000),
            "remember_ms": round(settings.remember_s * 1000),
            "tick_ms": TICK_MS,
            "max_trace_spans": settings.max_trace_spans,
            "max_tick_spans": settings.max_tick_spans,
            "classes_per_service": settings.classes_per_service,
            "span_sample": settings.span_sample_share,
            "hot_ms": HOT_MS,
        }
        self.horizon_ms = sum(self._options[name] for name in ("life_ms", "hold_ms", "remember_ms"))
        self.rules: Rules = []

    def open(self, start: Start) -> Shard:
        """Returns a new shard, which warms up first.

        A shard that begins at the start of the log needs no warm-up and reports everything.
        """
        note = noted(start.note)
        engine = self._engine(start.offset, start.is_log_start, note.horizon_ms)
        return Shard(engine, Offsets(start.offset), note.read)

    def replace(self, shard: Shard) -> None:
        """Replaces the engine after an internal error, so that the partition does not stop.

        Open traces are forgotten. Ticks go on rising.
        """
        shard.engine = self._engine(shard.offsets.next_offset, True)

    def _engine(self, offset: int, log_start: bool, follows_ms: int | None = None) -> Partition:
        engine = Partition(first_offset=offset, log_start=log_start, follows_ms=follows_ms, **self._options)
        engine.set_rules(self.rules)
        return engine
