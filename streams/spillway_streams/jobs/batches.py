"""Taking Arrow batches from a topic, and acknowledging them once they are stored."""

import asyncio

import faust
from faust.types import TP
from spillway_contracts import names

from spillway_streams import columns, runner
from spillway_streams.columns import Columns, Schema

MAX_UNSTORED = 2_000  # messages; then consumption pauses


class Unstored:
    """Messages that are folded into memory but whose rows are not stored yet."""

    def __init__(self) -> None:
        self._events: list[faust.EventT] = []
        self._room = asyncio.Event()
        self._room.set()

    async def room(self) -> None:
        await self._room.wait()

    def add(self, event: faust.EventT) -> None:
        self._events.append(event)
        if len(self._events) >= MAX_UNSTORED:
            self._room.clear()

    def take(self) -> list[faust.EventT]:
        events, self._events = self._events, []
        return events

    def stored(self, events: list[faust.EventT]) -> None:
        """In order of arrival, so that a committed offset covers all before it."""
        for event in events:
            event.ack()
        self._room.set()

    def forget(self, revoked: set[TP]) -> None:
        self._events = [event for event in self._events if event.message.tp not in revoked]


class DeadLetters:
    """Where payloads go that do not decode, with the reason."""

    def __init__(self, app: faust.App, context: runner.Context) -> None:
        self._topic = runner.topic(app, names.KAFKA_TOPIC_DEAD_LETTERS)
        self._status = context.status

    async def bury(self, event: faust.EventT, reason: str, payload: bytes) -> None:
        message = event.message
        headers = {
            names.KAFKA_HEADER_DEAD_LETTER_REASON: reason.encode()[:1000],
            names.KAFKA_HEADER_DEAD_LETTER_TOPIC: message.topic.encode(),
            names.KAFKA_HEADER_DEAD_LETTER_PARTITION: str(message.partition).encode(),
            names.KAFKA_HEADER_DEAD_LETTER_OFFSET: str(message.offset).encode(),
        }
        await runner.deliver(self._topic, payload, b"", self._status, headers)


async def decode(
    schema: Schema, event: faust.EventT, letters: DeadLetters, context: runner.Context
) -> Columns:
    """The batch of one message; an empty one when it went to the dead letters."""
    try:
        return columns.from_ipc(schema, event.value or b"")
    except Exception as error:  # a poison message must not stop its partition
        context.counters.add("dead_letters: undecodable")
        await letters.bury(event, f"{type(error).__name__}: {error}", event.value or b"")
        return columns.from_rows(schema, [])
