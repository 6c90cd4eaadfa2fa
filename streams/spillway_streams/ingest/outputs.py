"""Sends what closed to Kafka and ClickHouse: all of it, in order, before any commit."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator

from spillway_contracts import names
from spillway_native import Batch, Closed

from spillway_streams.batches import columns, native_batch
from spillway_streams.batches.columns import Columns, Schema
from spillway_streams.clients.dead_letters import DeadLetters, send_in_order
from spillway_streams.clients.sending import Message, Sender
from spillway_streams.clients.store import Store
from spillway_streams.process.counters import Counters

# For each batch: its schema, the topic that it goes to, and whether it is also a ClickHouse table.
_BATCHES = {
    "calls": (columns.CALLS, names.KAFKA_TOPIC_CALLS, True),
    "edges": (columns.EDGES, names.KAFKA_TOPIC_EDGES, True),
    "network": (columns.NETWORK, names.KAFKA_TOPIC_NETWORK, False),
    "spans": (columns.SPANS, None, True),
}


Headers = tuple[tuple[str, bytes], ...]


def headers(source: int, sequence: int) -> Headers:
    """Returns the headers that identify a batch. A repeated batch has the same ones."""
    return (
        (names.KAFKA_HEADER_SOURCE, b"%d" % source),
        (names.KAFKA_HEADER_SEQUENCE, b"%d" % sequence),
    )


def to_messages(schema: Schema, topic: str, source: int, batch: Batch, rows: Columns) -> Iterator[Message]:
    """Yields a message for each slice of a batch, with the headers that identify it."""
    for sequence, partition, payload in native_batch.messages(schema, batch, rows):
        yield Message(topic, payload, partition, headers(source, sequence))


class Outputs:
    """Sends batches that closed to Kafka, and stores their rows in ClickHouse.

    Messages are sent at once, because boards and curves wait for them. An INSERT costs the same for
    few rows as for thousands. Rows therefore wait for later ones, for at most `period_s`, or until
    there are `most_rows`.
    """

    def __init__(
        self,
        sender: Sender,
        dead_letters: DeadLetters,
        store: Store,
        counters: Counters,
        period_s: float,
        most_rows: int,
    ) -> None:
        self._sender, self._dead_letters, self._store, self._counters = sender, dead_letters, store, counters
        self._period_s, self._most_rows = period_s, most_rows
        self._messages: dict[tuple[str, int | None], list[Message]] = defaultdict(list)
        self._blocks: dict[str, list[Columns]] = defaultdict(list)
        self._due_at = 0.0  # monotonic time at which the rows have waited long enough
        self.rows = 0  # of all tables, not in ClickHouse yet

    def add(self, source: int, closed: Closed) -> None:
        """Adds what closed in one partition of otlp_spans.

        Each call must carry later ticks of that partition than the previous one.
        """
        for name, (schema, topic, is_table) in _BATCHES.items():
            batch = getattr(closed, name)
            if not batch.rows:
                continue
            rows = native_batch.read(schema, batch)
            if topic:
                for message in to_messages(schema, topic, source, batch, rows):
                    self._messages[message.topic, message.partition].append(message)
            if is_table:
                self._keep(name, rows, batch.rows)
            self._counters.add(name, batch.rows)
        self._counters.add("traces", closed.traces)

    def _keep(self, table: str, block: Columns, rows: int) -> None:
        if not self.rows:
            self._due_at = time.monotonic() + self._period_s
        self._blocks[table].append(block)
        self.rows += rows

    async def store(self) -> bool:
        """Returns once Kafka has everything, and ClickHouse the rows that have waited long enough.

        True means that ClickHouse has everything that was ever added.
        """
        sends = [send_in_order(self._sender, some, self._dead_letters) for some in self._messages.values()]
        if self.rows >= self._most_rows or time.monotonic() >= self._due_at:
            sends.append(self._insert())
        await asyncio.gather(*sends)
        self._messages.clear()
        return not self.rows

    async def _insert(self) -> None:
        for table, blocks in self._blocks.items():
            await self._store.insert_columns(table, blocks, self._dead_letters.refused)
        self._blocks.clear()
        self.rows = 0
