"""The audit: every proposal and what became of it, into ClickHouse, without ever holding up publishing.

Rows wait in a bounded buffer; when ClickHouse is away for so long that it is full, the oldest are
dropped, counted and said. Versions that a crash kept from being recorded are found in the bucket's
history at the next start and recorded then.
"""

import asyncio
import uuid
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime

from spillway.v1.ruleset_pb2 import Ruleset

from spillway_publisher import rows
from spillway_publisher.bucket import Stored
from spillway_publisher.clickhouse import TROUBLE, ClickHouse
from spillway_publisher.telemetry import Telemetry, log

BATCH_RECORDS = 500
RETRY_S = 1.0
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
        self._batch: tuple[str, list[Record]] | None = None  # token and records of the insert under way
        self._recoverable: dict[int, Record] = {}
        self._known: set[int] = set()
        self._size = 0
        self._filled = asyncio.Event()

    def published(self, ruleset: Ruleset, version: int, reason: str) -> None:
        if version in self._known:
            return
        self._known.add(version)
        at = datetime.now(UTC)
        row = rows.ruleset_row(ruleset, version, rows.PUBLISHED, reason, at)
        self._append(Record(version, row, rows.rule_rows(ruleset, version, at)))

    def refused(self, ruleset: Ruleset, reason: str) -> None:
        self._append(Record(0, rows.ruleset_row(ruleset, 0, rows.REFUSED, reason, datetime.now(UTC))))

    def recover(self, stored: list[Stored]) -> None:
        """Versions published before this start: those without a row get one when ClickHouse is there."""
        for old in stored:
            version = old.ruleset.version
            if version not in self._known:
                self._known.add(version)
                row = rows.ruleset_row(old.ruleset, version, rows.PUBLISHED, RECOVERED, old.at)
                self._recoverable[version] = Record(
                    version, row, rows.rule_rows(old.ruleset, version, old.at)
                )
        self._filled.set()

    async def run(self) -> None:
        """Writes for ever; retries while ClickHouse is away."""
        while True:
            await self._filled.wait()
            try:
                await self.flush()
                self._telemetry.up("clickhouse")
            except TROUBLE as error:
                self._telemetry.down("clickhouse", error)
                await asyncio.sleep(RETRY_S)

    async def flush(self) -> None:
        """Writes everything that waits. Raises clickhouse.TROUBLE."""
        await self._find_unrecorded()
        while self._batch or self._buffer:
            if self._batch is None:
                count = min(BATCH_RECORDS, len(self._buffer))
                self._batch = (uuid.uuid4().hex, [self._buffer.popleft() for _ in range(count)])
            token, records = self._batch
            rule_rows = [row for record in records for row in record.rule_rows]
            if rule_rows:
                await self._clickhouse.insert(rows.sql("insert_rules"), rule_rows, f"{token}-rules")
            await self._clickhouse.insert(
                rows.sql("insert_rulesets"), [r.ruleset_row for r in records], token
            )
            self._batch = None
            self._size -= sum(record.size for record in records)
            self._telemetry.counters["history.rows"] += sum(record.size for record in records)
        self._filled.clear()

    async def _find_unrecorded(self) -> None:
        if not self._recoverable:
            return
        found = await self._clickhouse.select(
            rows.sql("recorded_versions"), {"versions": tuple(self._recoverable)}
        )
        recorded = {version for (version,) in found}
        missing = [record for version, record in sorted(self._recoverable.items()) if version not in recorded]
        self._recoverable = {}
        if missing:
            self._telemetry.counters["history.recovered"] += len(missing)
            log.info(
                "versions without a row recovered from the bucket: %s", [record.version for record in missing]
            )
        for record in missing:
            self._append(record)

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
