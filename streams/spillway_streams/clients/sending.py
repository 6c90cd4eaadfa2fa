"""Sends messages to Kafka, in order per partition, until the brokers have them; also dead letters.

Order needs no idempotent producer: the next message to a partition is sent once the previous one is
acknowledged (`in_order`). A repeat after a lost answer has the same sequence, and readers drop it.
"""

import logging
from collections.abc import Iterable
from typing import NamedTuple

import faust
from aiokafka.errors import MessageSizeTooLargeError, RecordListTooLargeError
from aiokafka.structs import RecordMetadata
from faust.exceptions import ProducerSendError
from spillway_contracts import names

from spillway_streams import StreamsError
from spillway_streams.process import backoff, health
from spillway_streams.process.counters import Counters
from spillway_streams.process.health import Status

log = logging.getLogger("spillway.sending")
_TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)
_HEADERS_ROOM = 4096  # bytes of a record beside its value
_SMALLEST = 1024


class TooLargeError(StreamsError):
    """A message above the broker's limit. No retry will get it through."""


class Message(NamedTuple):
    """A record to send. Without a partition, the producer chooses one."""

    topic: str
    value: bytes
    partition: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


class Sender:
    """Sends with the app's producer."""

    def __init__(self, app: faust.App, status: Status) -> None:
        self._app, self._status = app, status

    async def send(self, message: Message) -> RecordMetadata:
        """Returns where the record is, once all in-sync replicas have it, however long that takes.

        Raises TooLargeError when the brokers refuse the message for its size.
        """
        done = await backoff.until_done(lambda: self._attempt(message), health.KAFKA, self._status)
        if isinstance(done, str):
            raise TooLargeError(f"{message.topic}: {len(message.value)} bytes: {done}")
        return done

    async def _attempt(self, message: Message) -> RecordMetadata | str:
        """Returns where the record is, or why the broker will never accept it."""
        try:
            return await self.once(message)
        except _TOO_LARGE as error:
            return str(error)
        except ProducerSendError as error:
            if isinstance(error.__cause__, _TOO_LARGE):
                return str(error.__cause__)
            raise

    async def once(self, message: Message) -> RecordMetadata:
        """Makes one attempt. Raises what the client raises."""
        producer = await self._app.maybe_start_producer()
        topic, value, partition, headers = message
        return await producer.send_and_wait(topic, None, value, partition, None, list(headers))

    async def in_order(self, messages: Iterable[Message], letters: "DeadLetters") -> None:
        """Sends the messages one after the other.

        A message that the broker refuses for its size becomes a dead letter, so that the others are
        still sent.
        """
        for message in messages:
            try:
                await self.send(message)
            except TooLargeError as error:
                log.error("%s", error)
                await letters.bury(
                    Origin(message.topic, message.partition or 0, -1), "oversized", str(error), message.value
                )


class Origin(NamedTuple):
    """Where a payload was read or, with offset -1, where it was to be written."""

    topic: str
    partition: int
    offset: int


class DeadLetters:
    """Sends payloads that cannot be processed, with the reason and their origin.

    Dead letters are counted by kind.
    """

    def __init__(self, sender: Sender, counters: Counters, max_bytes: int) -> None:
        self._sender, self._counters, self._max_bytes = sender, counters, max_bytes

    async def refused(self, table: str, reason: str, rows: int, payload: bytes) -> None:
        """Sends rows that ClickHouse never accepts (see sifting.Refused)."""
        log.error("%s: %d rows refused: %s", table, rows, reason)
        self._counters.add(f"refused_rows: {table}", rows)
        await self.bury(Origin(table, 0, -1), "refused row", reason, payload)

    async def bury(self, origin: Origin, kind: str, reason: str, payload: bytes) -> None:
        """Sends one dead letter. Never fails.

        A payload above the broker's limit is cut to it, and a header says so.
        """
        self._counters.add(f"dead_letters: {kind}")
        headers: tuple[tuple[str, bytes], ...] = (
            (names.KAFKA_HEADER_DEAD_LETTER_REASON, reason.encode()[:1000]),
            (names.KAFKA_HEADER_DEAD_LETTER_TOPIC, origin.topic.encode()),
            (names.KAFKA_HEADER_DEAD_LETTER_PARTITION, b"%d" % origin.partition),
            (names.KAFKA_HEADER_DEAD_LETTER_OFFSET, b"%d" % origin.offset),
        )
        room = max(self._max_bytes - _HEADERS_ROOM, _SMALLEST)
        while True:
            kept, marked = payload[:room], headers
            if len(kept) < len(payload):
                marked += ((names.KAFKA_HEADER_DEAD_LETTER_TRUNCATED, b"%d" % len(payload)),)
            try:
                await self._sender.send(Message(names.KAFKA_TOPIC_DEAD_LETTERS, kept, None, marked))
            except TooLargeError:
                room = min(room, len(payload)) // 2
                if room < _SMALLEST:
                    self._counters.add("dead_letters_lost: the broker takes no message of this size")
                    return
            else:
                if marked is not headers:
                    self._counters.add("dead_letters_truncated")
                return
