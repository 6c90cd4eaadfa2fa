"""Sends messages that are worth something only while they are new.

A partition without a leader does not hold up the others. Nothing is sent a second time, because a
later message is worth more than one that failed.
"""

import asyncio
from collections import deque
from collections.abc import Iterable

from spillway_streams.clients.sending import Message, Sender
from spillway_streams.process.counters import Counters


class LatestSender:
    """Sends messages to each partition in order.

    While a partition does not answer, its newest `kept` batches wait. Older batches and messages
    that fail are counted as `arrivals_dropped`.
    """

    def __init__(self, sender: Sender, kept: int, counters: Counters) -> None:
        self._sender, self._kept, self._counters = sender, kept, counters
        self._waiting: dict[int | None, deque[list[Message]]] = {}
        self._sending: dict[int | None, asyncio.Task] = {}

    def send(self, messages: Iterable[Message]) -> None:
        """Queues one batch for each partition among the messages.

        Returns at once; tasks of this object do the sending.
        """
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
        """Waits until nothing is being sent."""
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
