"""The audit: every proposal and its outcome go to ClickHouse without ever delaying publishing.

Rows wait in a bounded buffer. When ClickHouse is away so long that the buffer is full, the oldest
rows are dropped, counted and logged. Published versions that a crash kept from being recorded are
found in the bucket's history at the next start, and recorded then.
"""

import asyncio
import uuid
from collections import deque
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from spillway.v1.ruleset_pb2 import Ruleset

from spillway_publisher.bucket.values import Stored
from spillway_publisher.clients import rows
from spillway_publisher.clients.clickhouse import TROUBLE, ClickHouse
from spillway_publisher.process.telemetry import CLICKHOUSE, Telemetry, log

BATCH_RECORDS = 500
RETRY_S = 1.0
KNOWN_VERSIONS = 10_000
RECOVERED = "recovered from the rulesets bucket after a restart"


@dataclass(frozen=True)
class Record:
    """The rows of one proposal."""

    version: int
    ruleset_row: tuple
    rule_rows: list[tuple] = field(default_factory=list)

    @property
    def size(self) -> int:
        return 1 + len(self.rule_rows)


class History:
    """Buffer and writer. `published`, `refused` and `recover` only append."""

    def __init__(self, clickhouse: ClickHouse, telemetry: Telemetry, maximum_rows: int) -> None:
        self._clickhouse, self._telemetry, self._maximum = clickhouse, telemetry, maximum_rows
        self._buffer: deque[Record] = deque()
        # (table, rows, deduplication token) of the current batch. An insert that succeeded is
        # removed.
        self._inserts: deque[tuple[str, list[tuple], str]] = deque()
        self._recoverable: dict[str, Record] = {}  # by ruleset id
        self._known: set[int] = set()
        self._size = 0
        self._filled = asyncio.Event()

    def published(self, ruleset: Ruleset, version: int, reason: str) -> None:
        """Appends the rows of a published version, once per version."""
        if version in self._known:
            return
        self._known.add(version)
        if len(self._known) > KNOWN_VERSIONS:
            self._known = set(sorted(self._known)[-KNOWN_VERSIONS // 2 :])
        at = datetime.now(UTC)
        row = rows.ruleset_row(ruleset, version, rows.PUBLISHED, reason, at)
        self._append(Record(version, row, rows.rule_rows(ruleset, version, at)))

    def refused(self, ruleset: Ruleset, reason: str) -> None:
        """Appends the row of a refused proposal."""
        self._append(Record(0, rows.ruleset_row(ruleset, 0, rows.REFUSED, reason, datetime.now(UTC))))

    def recover(self, stored: list[Stored]) -> None:
        """Appends versions of earlier runs, if ClickHouse turns out not to have them."""
        for old in stored:
            version = old.ruleset.version
            if version not in self._known:
                self._known.add(version)
                row = rows.ruleset_row(old.ruleset, version, rows.PUBLISHED, RECOVERED, old.at)
                self._recoverable[old.ruleset.id] = Record(
                    version, row, rows.rule_rows(old.ruleset, version, old.at)
                )
        self._filled.set()

    def waiting(self) -> int:
        """Returns the number of rows that are not in ClickHouse yet."""
        return self._size

    async def run(self) -> None:
        """Writes for ever. Retries while ClickHouse is away."""
        while True:
            await self._filled.wait()
            try:
                await self._flush()
                self._telemetry.servers.ok(CLICKHOUSE)
            except TROUBLE as error:
                self._telemetry.servers.failed(CLICKHOUSE, error)
                await asyncio.sleep(RETRY_S)

    async def drained(self) -> None:
        """Returns when no row is waiting."""
        while self._filled.is_set():
            await asyncio.sleep(0.02)

    async def _flush(self) -> None:
        """Writes all waiting rows. Rows that fail stay in the buffer. Raises clickhouse.TROUBLE."""
        await self._find_unrecorded()
        while self._inserts or self._buffer:
            if not self._inserts:
                self._take_batch()
            table, table_rows, token = self._inserts[0]
            await self._clickhouse.insert(rows.sql(f"insert_{table}"), table_rows, token)
            self._inserts.popleft()
            self._size -= len(table_rows)
            self._telemetry.counters["history.rows"] += len(table_rows)
        self._filled.clear()

    def _take_batch(self) -> None:
        records = [self._buffer.popleft() for _ in range(min(BATCH_RECORDS, len(self._buffer)))]
        rule_rows = [row for record in records for row in record.rule_rows]
        token = uuid.uuid4().hex
        if rule_rows:
            self._inserts.append(("rules", rule_rows, f"{token}-rules"))
        self._inserts.append(("rulesets", [record.ruleset_row for record in records], token))

    async def _find_unrecorded(self) -> None:
        if not self._recoverable:
            return
        # A crash between the two inserts leaves rules without their ruleset.
        recorded = await self._ids_in("recorded")
        ruled = await self._ids_in("ruled")
        missing = [
            replace(record, rule_rows=[]) if ruleset_id in ruled else record
            for ruleset_id, record in self._recoverable.items()
            if ruleset_id not in recorded
        ]
        self._recoverable = {}
        if missing:
            self._telemetry.counters["history.recovered"] += len(missing)
            log.info("versions without a row recovered from the bucket: %s", [r.version for r in missing])
        for record in missing:
            self._append(record)

    async def _ids_in(self, statement: str) -> set[str]:
        parameters = {"ids": tuple(self._recoverable)}
        return {found for (found,) in await self._clickhouse.select(rows.sql(statement), parameters)}

    def _append(self, record: Record) -> None:
        self._buffer.append(record)
        self._size += record.size
        dropped = []
        while self._size > self._maximum and self._buffer:
            dropped.append(self._buffer.popleft())
            self._size -= dropped[-1].size
        if dropped:
            self._telemetry.counters["history.dropped_rows"] += sum(r.size for r in dropped)
            log.error(
                "ClickHouse is away and the buffer is full: rows of versions %s dropped",
                [r.version for r in dropped],
            )
        self._filled.set()
