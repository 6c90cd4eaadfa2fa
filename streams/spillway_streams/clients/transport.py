"""Faust's Kafka consumer, made to start exactly where it should, and to commit what a job says.

Two things of faust-streaming 0.15 lose messages, and neither can be configured away:

- After a rebalance its consumer drops what it has fetched and seeks to the committed offsets, but a partition whose
  committed offset is 0 or absent is not sought (aiokafka's seek_to_committed leaves it out): what was fetched
  and dropped there is never delivered. Here every partition is sought, explicitly.
- What it commits is what was acknowledged message by message. A job whose state reaches back needs an offset
  of its own (`commit`), far behind what it has read.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from faust.auth import OAuthCredentials, SASLCredentials, SSLCredentials
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from spillway_streams.process.lag import Lag


def credentials(client: dict[str, Any]) -> OAuthCredentials | SASLCredentials | SSLCredentials | None:
    """The same as Faust takes it: `client` are keyword arguments for a client of aiokafka."""
    match client["security_protocol"]:
        case "SASL_SSL" if "sasl_oauth_token_provider" in client:
            return OAuthCredentials(
                oauth_cb=client["sasl_oauth_token_provider"], ssl_context=client["ssl_context"]
            )
        case "SASL_SSL":
            return SASLCredentials(
                username=client["sasl_plain_username"],
                password=client["sasl_plain_password"],
                mechanism=client["sasl_mechanism"],
                ssl_context=client["ssl_context"],
            )
        case "SSL":
            return SSLCredentials(client["ssl_context"])
    return None


@dataclass(frozen=True)
class Start:
    """Where reading of a partition starts. `first` and `end`: of its log; `note`: what was committed with `offset`."""

    offset: int
    first: int
    end: int
    note: str

    @property
    def is_log_start(self) -> bool:
        """Nothing that a predecessor of ours has read lies before: also when an operator reset the group (no note)."""
        return self.offset == self.first and not self.note


@dataclass(frozen=True)
class Progress:
    """What the broker said about a partition when it last answered: offset of its end, and when that was (Unix ms)."""

    end: int
    at_ms: int


Opener = Callable[[TP, Start], int]


class _NothingRead(dict):
    """What Faust takes for the last offset read of a partition. It drops all before that, and goes on noting what is
    left of a fetch after a seek in the middle of it: what is read again would never come."""

    def __missing__(self, key: TP) -> None:
        return None

    def __setitem__(self, key: TP, value: int | None) -> None:
        pass


class Consumer(driver.Consumer):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.transport.opener:  # whoever says where to begin says what is taken
            self._read_offset = _NothingRead()

    async def perform_seek(self) -> None:
        """Called by Faust whenever reading begins anew; all that it had buffered is gone then."""
        starts = await self._thread.call_thread(self._find_starts)
        opener = self.transport.opener
        offsets = {tp: opener(tp, start) if opener else start.offset for tp, start in starts.items()}
        self._committed_offset.update({tp: start.offset for tp, start in starts.items()})
        if self.transport.lag is not None:
            self.transport.lag.starts(offsets, time.time())
        if offsets:
            await self.seek_wait(offsets)

    async def _find_starts(self) -> dict[TP, Start]:
        consumer = self._thread._ensure_consumer()
        partitions = [TopicPartition(*tp) for tp in consumer.assignment()]
        if not partitions:
            return {}
        committed = await consumer._coordinator.fetch_committed_offsets(partitions)
        first, end = await consumer.beginning_offsets(partitions), await consumer.end_offsets(partitions)
        starts = {}
        for tp in partitions:
            offset, note = committed.get(tp, OffsetAndMetadata(-1, ""))
            if (
                not first[tp] <= offset <= end[tp]
            ):  # never committed, already deleted, or another topic's of that name
                offset, note = first[tp], ""
            starts[TP(*tp)] = Start(offset, first[tp], end[tp], note)
        return starts

    async def commit_to(self, offsets: dict[TP, tuple[int, str]]) -> bool:
        """Commits offsets with notes; False when it could not be done now, as during a rebalance."""
        return await self._thread.call_thread(self._commit_to, offsets)

    async def _commit_to(self, offsets: dict[TP, tuple[int, str]]) -> bool:
        consumer = self._thread._ensure_consumer()
        assigned = consumer.assignment()
        wanted = {
            TopicPartition(*tp): OffsetAndMetadata(*value) for tp, value in offsets.items() if tp in assigned
        }
        try:
            if wanted:
                await consumer.commit(wanted)
        except (CommitFailedError, IllegalStateError, KafkaError):
            return False
        return len(wanted) == len(offsets)

    async def reach(self, timeout_s: float) -> dict[TP, int]:
        """Asks the leaders of all assigned partitions for their ends, without one any broker; raises what the client
        raises, TimeoutError after this long."""
        self._thread._ensure_consumer()  # a call to a thread that has not begun would wait for it
        return await asyncio.wait_for(self._thread.call_thread(self._reach, timeout_s), timeout_s)

    async def _reach(self, timeout_s: float) -> dict[TP, int]:
        consumer = self._thread._ensure_consumer()
        partitions = consumer.assignment()  # none before it has joined, nor as one worker too many
        if not partitions:
            await asyncio.wait_for(consumer.topics(), timeout_s)
            return {}
        ends = await asyncio.wait_for(consumer.end_offsets(partitions), timeout_s)
        return {TP(*tp): end for tp, end in ends.items()}

    def progress(self, tp: TP) -> Progress | None:
        """None before the first answer, and when the partition is not (or no longer) ours."""
        consumer = self._thread._ensure_consumer()
        try:
            # In this order: an end that is newer than its time does no harm.
            at_ms, end = consumer.last_poll_timestamp(tp), consumer.highwater(tp)
        except (AssertionError, AttributeError):
            return None
        return None if at_ms is None or end is None else Progress(end, at_ms)


class Transport(driver.Transport):
    """`opener`, when set, is told of every assigned partition and answers with the offset to read from; `lag`, when
    set, is told where that is."""

    Consumer = Consumer
    opener: Opener | None = None
    lag: Lag | None = None
