"""Messages that are worth something only while they are new: a partition without a leader holds up no others.

No repetition: a later message is worth more than one that failed.
"""

import asyncio
from collections import deque
from collections.abc import Iterable

from spillway_streams.clients.sending import Message, Sender
from spillway_streams.process.counters import Counters


class News:
    """Sends what it is told to each partition, in order. While one does not answer, its newest `kept` batches wait;
    what is older, or fails, is counted as `arrivals_dropped`."""

    def __init__(self, sender: Sender, kept: int, counters: Counters) -> None:
        self._sender, self._kept, self._counters = sender, kept, counters
        self._waiting: dict[int | None, deque[list[Message]]] = {}
        self._sending: dict[int | None, asyncio.Task] = {}

    def tell(self, messages: Iterable[Message]) -> None:
        """One batch to each partition among the messages. Returns at once; sends in tasks of its own."""
        batches: dict[int | None, list[Message]] = {}
        for message in messages:
            batches.setdefault(message.partition, []).append(message)
        for partition, batch in batches.items():
            waiting = self._waiting.setdefault(partition, deque())
            waiting.append(batch)
            if len(waiting) > self._kept:
                self._drop(len(waiting.popleft()))
            if partition not in self._sending:
                self._sending[partition] = asyncio.create_task(self._send(partition))

    async def settled(self) -> None:
        """Until nothing is on its way."""
        await asyncio.gather(*self._sending.values())

    async def _send(self, partition: int | None) -> None:
        waiting = self._waiting[partition]
        try:
            while waiting:
                sent = map(self._sender.once, waiting.popleft())
                results = await asyncio.gather(*sent, return_exceptions=True)
                self._drop(sum(isinstance(result, Exception) for result in results))
        finally:
            del self._sending[partition]

    def _drop(self, messages: int) -> None:
        self._counters.add("arrivals_dropped", messages)
