"""Dead letters: payloads that cannot be processed, with the reason and their origin."""

import logging
from collections.abc import Iterable
from typing import NamedTuple

from spillway_contracts import names

from spillway_streams.clients.sending import Message, Sender, TooLargeError
from spillway_streams.process.counters import Counters

log = logging.getLogger("spillway.dead_letters")
_HEADERS_ROOM = 4096  # bytes of a record beside its value
_SMALLEST = 1024


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
        await self.send(Origin(table, 0, -1), "refused row", reason, payload)

    async def send(self, origin: Origin, kind: str, reason: str, payload: bytes) -> None:
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


async def send_in_order(sender: Sender, messages: Iterable[Message], dead_letters: DeadLetters) -> None:
    """Sends the messages one after the other.

    Order therefore needs no idempotent producer. A repeat after a lost answer has the same
    sequence, and readers drop it. A message that the broker refuses for its size becomes a dead
    letter, so that the others are still sent.
    """
    for message in messages:
        try:
            await sender.send(message)
        except TooLargeError as error:
            log.error("%s", error)
            await dead_letters.send(
                Origin(message.topic, message.partition or 0, -1), "oversized", str(error), message.value
            )
