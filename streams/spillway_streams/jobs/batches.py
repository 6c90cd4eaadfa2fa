"""Takes messages from topics, decodes them, and acknowledges them once their rows are stored."""

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import faust
import numpy as np
from faust.types import TP, Message

from spillway_streams import StreamsError
from spillway_streams.batches import columns, positions
from spillway_streams.batches.columns import Columns, Schema
from spillway_streams.batches.parts import Parts
from spillway_streams.batches.positions import Batch
from spillway_streams.batches.strings import Strings
from spillway_streams.clients.dead_letters import Origin
from spillway_streams.jobs import runner
from spillway_streams.process.config import JobSettings
from spillway_streams.process.lag import Lag

log = logging.getLogger("spillway.batches")
_IDENTITY = ("partition", "source", "sequence")
MAX_UNSTORED = 2_000  # messages; at this number consumption pauses
MAX_UNSTORED_ROWS = 200_000
# Messages without payload, per partition; beyond this the oldest are acknowledged early.
MAX_TRAILING = 50_000


@dataclass
class Taken:
    """A message that is already in memory, and what must be stored before it is acknowledged."""

    message: Message
    batch: Batch | None = None
    rows: Any = None


class Unstored:
    """Messages whose rows are not stored yet.

    They are in order of arrival, so that a committed offset covers all messages before it. Payloads
    are released at once.
    """

    def __init__(self, app: faust.App) -> None:
        self._app = app
        self._taken: list[Taken] = []
        self._rows = 0
        self._room = asyncio.Event()
        self._room.set()

    async def room(self) -> None:
        """Waits until there is room for another message."""
        await self._room.wait()

    def add(self, event: faust.EventT, batch: Batch | None = None, rows: Any = None) -> None:
        """Adds a message with its batch and the rows to store."""
        self._taken.append(Taken(_light(event), batch, rows))
        self._rows += len(rows or ())
        if len(self._taken) >= MAX_UNSTORED or self._rows >= MAX_UNSTORED_ROWS:
            self._room.clear()

    def take(self) -> list[Taken]:
        """Removes and returns all messages, so that their rows can be stored."""
        taken, self._taken, self._rows = self._taken, [], 0
        return taken

    def stored(self, taken: Iterable[Taken]) -> None:
        """Acknowledges these messages, whose rows are stored."""
        for entry in taken:
            acknowledge(self._app, entry.message)
        self._room.set()

    def forget(self, revoked: Collection[TP]) -> None:
        """Drops the messages of revoked partitions."""
        self._taken = [entry for entry in self._taken if entry.message.tp not in revoked]
        self._rows = sum(len(entry.rows or ()) for entry in self._taken)
        self._room.set()


@dataclass
class Trailing:
    """Messages from which only memory is made; nothing is stored of them.

    A message is acknowledged when it is `keep_s` seconds of log time behind the newest one of its
    partition. A worker that starts therefore reads again what is still needed.
    """

    keep_s: float
    _held: dict[TP, deque[Taken]] = field(default_factory=lambda: defaultdict(deque))

    def add(self, event: faust.EventT, batch: Batch | None = None) -> None:
        self._held[event.message.tp].append(Taken(_light(event), batch))

    def take(self) -> list[Taken]:
        """Removes and returns the messages that are due, oldest first in each partition."""
        due = []
        for held in self._held.values():
            until = held[-1].message.timestamp - self.keep_s if held else 0.0
            while held and (held[0].message.timestamp < until or len(held) > MAX_TRAILING):
                due.append(held.popleft())
        return due

    def forget(self, revoked: Collection[TP]) -> None:
        for tp in revoked:
            self._held.pop(tp, None)


def parts_columns(taken: Iterable[Taken], names_: Collection[str]) -> list[dict[str, Any]]:
    """Returns the parts among the rows, as columns by name.

    Each row has the identity of its batch.
    """
    return [
        dict(zip([*names_, *_IDENTITY], _columns(entry.rows, entry.batch), strict=True))
        for entry in taken
        if isinstance(entry.rows, Parts) and entry.batch and len(entry.rows)
    ]


def _columns(parts: Parts, batch: Batch) -> list[np.ndarray | Strings]:
    return [*parts.columns(), *(np.full(len(parts), value, np.int64) for value in batch[1:])]


def consume(
    app: faust.App, lag: Lag, name: str, take: Callable[[faust.EventT], Awaitable[None]], acks: bool = True
) -> None:
    """Passes every message of a topic to `take`, and notes it in `lag`.

    `take` is responsible for the acknowledgement. `acks`: see runner.topic.
    """

    async def agent(stream: faust.StreamT) -> None:
        async for event in stream.noack().events():
            try:
                await take(event)
            except Exception as error:
                # Faust would go on with the next message. Once a later position is stored, the
                # repeat of this message would be dropped.
                log.exception("%s %d: %d", name, event.message.partition, event.message.offset)
                await app.crash(error)
                raise
            lag.took(event.message.tp, event.message.offset, event.message.timestamp)

    app.agent(runner.topic(app, name, acks=acks), name=name)(agent)


def _light(event: faust.EventT) -> Message:
    event.message.value = None
    return event.message


def acknowledge(app: faust.App, message: Message) -> None:
    """Acknowledges a message, unless partitions were assigned anew meanwhile.

    In that case the message comes again, to the worker that has the partition now. An
    acknowledgement would move the new owner's committed offset past messages that it has not seen.
    """
    if message.generation_id == app.consumer_generation_id:
        message.ack(app.consumer)


class Reader:
    """Decodes messages.

    Messages that cannot be read go to the dead letters (`letters`) and are counted by reason.
    """

    def __init__(self, app: faust.App, context: runner.Context[JobSettings]) -> None:
        self.dead_letters = runner.dead_letters(app, context)

    async def batch(
        self, event: faust.EventT, schema: Schema, only: Collection[str]
    ) -> tuple[Batch | None, Columns | None]:
        """Returns the identity of a message's batch, and its rows.

        Both are None when the message was dead-lettered.
        """
        message = event.message
        try:
            batch = positions.identify(message.topic, message.partition, message.headers, message.timestamp)
        except StreamsError as error:
            await self.refuse(event, "unidentified", error)
            return None, None
        rows = await self.rows(event, schema, only)
        return (None, None) if rows is None else (batch, rows)

    async def rows(
        self, event: faust.EventT, schema: Schema, only: Collection[str] | None = None
    ) -> Columns | None:
        """Returns the rows of a message; None when it was dead-lettered."""
        try:
            return columns.from_ipc(schema, event.value or b"", only)
        except Exception as error:  # a poison message must not stop its partition
            await self.refuse(event, "undecodable", error)
            return None

    async def refuse(self, event: faust.EventT, reason: str, error: Exception) -> None:
        """Sends a message to the dead letters."""
        message = event.message
        origin = Origin(message.topic, message.partition, message.offset)
        await self.dead_letters.send(origin, reason, f"{type(error).__name__}: {error}", event.value or b"")
