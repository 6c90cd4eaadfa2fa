"""Faust's Kafka consumer, made to start exactly where it should and to commit what a job decides.

Two behaviours of faust-streaming 0.15 lose messages, and neither can be configured away:

- After a rebalance its consumer drops what it has fetched and seeks to the committed offsets. It
  does not seek partitions whose committed offset is 0 or absent (aiokafka's seek_to_committed
  leaves them out). What was fetched and dropped there is never delivered. Here every partition is
  sought explicitly.
- It commits the offsets of messages that were acknowledged one by one. A job whose state reaches
  back must commit an offset of its own (`commit_to`), far behind what it has read.
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
    """Returns a client's credentials in Faust's form; None when it has none.

    `client`: keyword arguments for a client of aiokafka.
    """
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
    """Where reading of a partition starts.

    `first` and `end`: bounds of the partition's log. `note`: the text that was committed with
    `offset`.
    """

    offset: int
    first: int
    end: int
    note: str

    @property
    def is_log_start(self) -> bool:
        """Whether no message before the start was read by a predecessor.

        Also true when an operator has reset the group, because then there is no note.
        """
        return self.offset == self.first and not self.note


@dataclass(frozen=True)
class Progress:
    """The broker's last answer about a partition: its end offset, and when it came (Unix ms)."""

    end: int
    at_ms: int


Opener = Callable[[TP, Start], int]


class _NothingRead(dict):
    """Takes the place of Faust's record of the last offset read per partition; it is always empty.

    Faust drops all messages up to the recorded offset. After a seek in the middle of a fetch, it
    goes on recording the rest of that fetch. Messages that are read again would then never be
    delivered.
    """

    def __missing__(self, key: TP) -> None:
        return None

    def __setitem__(self, key: TP, value: int | None) -> None:
        pass


class Consumer(driver.Consumer):
    """Seeks every assigned partition, and commits the offsets that a job passes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.transport.opener:  # a job that chooses where to begin also decides what is taken
            self._read_offset = _NothingRead()

    async def perform_seek(self) -> None:
        """Seeks every assigned partition to its start.

        Faust calls this whenever reading begins anew. Everything that it had buffered is gone by
        then.
        """
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
            ):  # never committed, already deleted, or of an earlier topic of that name
                offset, note = first[tp], ""
            starts[TP(*tp)] = Start(offset, first[tp], end[tp], note)
        return starts

    async def commit_to(self, offsets: dict[TP, tuple[int, str]]) -> bool:
        """Commits offsets with notes.

        Returns False when not all of them can be committed now, as during a rebalance.
        """
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
        """Asks the leaders of all assigned partitions for the end offsets.

        Without a partition, asks any broker. Raises what the client raises, and TimeoutError after
        `timeout_s`.
        """
        # Raises if the thread has not started; call_thread would wait for it.
        self._thread._ensure_consumer()
        return await asyncio.wait_for(self._thread.call_thread(self._reach, timeout_s), timeout_s)

    async def _reach(self, timeout_s: float) -> dict[TP, int]:
        consumer = self._thread._ensure_consumer()
        # Empty before the worker has joined the group, and when there are more workers than
        # partitions.
        partitions = consumer.assignment()
        if not partitions:
            await asyncio.wait_for(consumer.topics(), timeout_s)
            return {}
        ends = await asyncio.wait_for(consumer.end_offsets(partitions), timeout_s)
        return {TP(*tp): end for tp, end in ends.items()}

    def progress(self, tp: TP) -> Progress | None:
        """Returns the broker's last answer about a partition.

        Returns None before the first answer, and when the partition is not assigned to this worker.
        """
        consumer = self._thread._ensure_consumer()
        try:
            # The time is read first: an end that is newer than its time does no harm.
            at_ms, end = consumer.last_poll_timestamp(tp), consumer.highwater(tp)
        except (AssertionError, AttributeError):
            return None
        return None if at_ms is None or end is None else Progress(end, at_ms)


class Transport(driver.Transport):
    """Transport with this file's consumer.

    `opener`, when set, is called with every assigned partition and returns the offset to read from.
    `lag`, when set, is given these offsets.
    """

    Consumer = Consumer
    opener: Opener | None = None
    lag: Lag | None = None
