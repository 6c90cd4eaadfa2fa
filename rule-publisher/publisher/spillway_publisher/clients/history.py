"""The audit: every proposal and its outcome go to ClickHouse without ever delaying publishing.

Rows wait in a bounded buffer. When ClickHouse is away so long that the buffer is full, the oldest
rows are dropped, counted and logged. Published versions that a crash kept from being recorded are
found in the bucket's history at the next start, and recorded then.
"""

import asyncio
import uuid
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from spillway.v1.ruleset_pb2 import ORIGIN_OPERATOR, Ruleset

from spillway_publisher.bucket.values import Stored
from spillway_publisher.clients import rows
from spillway_publisher.clients.clickhouse import TROUBLE, ClickHouse
from spillway_publisher.process.telemetry import CLICKHOUSE, Telemetry, log

BATCH_RECORDS = 500
RETRY_S = 1.0
KNOWN_VERSIONS = 10_000
RECOVERED = "recovered from the rulesets bucket after a restart"


# In the order of their inserts: a ruleset whose row is there has all of its other rows.
TABLES = ("rules", "transitions", "operator_acts", "rulesets")


@dataclass(frozen=True)
class Record:
    """Rows of one proposal or act, by table."""

    version: int
    rows: Mapping[str, list[tuple]]

    @property
    def size(self) -> int:
        return sum(len(rows) for rows in self.rows.values())


class History:
    """Buffer and writer. `run` writes; everything else only appends."""

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

    def reached(
        self, ruleset: Ruleset, version: int, state: str, reason: str = "", at: datetime | None = None
    ) -> None:
        """Appends the row of a state that a proposal has reached, now unless `at` is given.

        A proposal without an id has no rows, because nothing could tell them apart.
        """
        if ruleset.id:
            row = rows.transition_row(ruleset, version, state, reason, at or datetime.now(UTC))
            self._append(Record(version, {"transitions": [row]}))

    def published(self, ruleset: Ruleset, version: int, reason: str, ended: Ruleset | None = None) -> None:
        """Appends the rows of a published version, once per version.

        `ended`: the ruleset on trial that this version has ended.
        """
        if version in self._known:
            return
        self._known.add(version)
        if len(self._known) > KNOWN_VERSIONS:
            self._known = set(sorted(self._known)[-KNOWN_VERSIONS // 2 :])
        self._append(_published(ruleset, version, reason, datetime.now(UTC), ended))

    def refused(self, ruleset: Ruleset, reason: str) -> None:
        """Appends the rows of a refused proposal."""
        at = datetime.now(UTC)
        self._append(Record(0, {"rulesets": [rows.ruleset_row(ruleset, 0, rows.REFUSED, reason, at)]}))
        self.reached(ruleset, 0, rows.REFUSED, reason, at)

    def acted(self, row: tuple) -> None:
        """Appends a row of an operator's act."""
        self._append(Record(0, {"operator_acts": [row]}))

    def recover(self, stored: list[Stored]) -> None:
        """Appends versions of earlier runs, if ClickHouse turns out not to have them.

        `stored`: in the order of their versions.
        """
        for before, old in zip([None, *stored], stored, strict=False):
            version = old.ruleset.version
            if version not in self._known:
                self._known.add(version)
                # Whatever follows a trial ends it, also an operator's ruleset.
                ended = before.ruleset if before and before.ruleset.HasField("canary") else None
                record = _published(old.ruleset, version, RECOVERED, old.at, ended)
                # What has a version was proposed and checked. Their rows may be lost with it.
                proposed = datetime.fromtimestamp(old.ruleset.created_at.ToNanoseconds() / 1e9, UTC)
                for state, at in ((rows.PROPOSED, proposed), (rows.CHECKED, old.at)):
                    row = rows.transition_row(old.ruleset, 0, state, RECOVERED, at)
                    record.rows["transitions"].append(row)
                self._recoverable[old.ruleset.id] = record
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
        token = uuid.uuid4().hex
        for table in TABLES:
            if table_rows := [row for record in records for row in record.rows.get(table, ())]:
                self._inserts.append((table, table_rows, f"{token}-{table}"))

    async def _find_unrecorded(self) -> None:
        if not self._recoverable:
            return
        # A crash between the two inserts leaves rules without their ruleset.
        recorded = await self._ids_in("recorded")
        ruled = await self._ids_in("ruled")
        missing = [
            replace(record, rows={**record.rows, "rules": []}) if ruleset_id in ruled else record
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


def _published(ruleset: Ruleset, version: int, reason: str, at: datetime, ended: Ruleset | None) -> Record:
    """Returns the rows of a version. Of a trial, the rules are those that it tries."""
    on_trial = ruleset.HasField("canary")
    routed = ruleset.canary.ruleset if on_trial else ruleset
    state = rows.CANARY if on_trial else rows.PUBLISHED
    made = {
        "rules": rows.rule_rows(routed, version, at),
        "transitions": [rows.transition_row(ruleset, version, state, reason, at)],
        "rulesets": [rows.ruleset_row(routed, version, rows.PUBLISHED, reason, at)],
    }
    if ended is not None:
        kept = ruleset.concludes == ended.version and ruleset.origin != ORIGIN_OPERATOR
        why = reason or f"ended by {ruleset.id}"
        row = rows.transition_row(ended, version, rows.KEPT if kept else rows.ROLLED_BACK, why, at)
        made["transitions"].append(row)
    return Record(version, made)
