"""Reads the class rules in force from ClickHouse, often enough that none is missed."""

import time

from spillway_streams.clients.store import Store
from spillway_streams.ingest.shard import Rules

PERIOD_S = 2.0
# A copy of the table contains all rules of a tick if it was read at most this long before the
# tick's time. See DELAY_MS in classes/rules.py.
FRESH_MS = 8_000
# Of the rules that took effect before the oldest message, only the newest of each key can be in
# force.
_SQL = """
SELECT toUnixTimestamp64Milli(effective_from), service, method, template, becomes, kind
FROM class_rules FINAL
WHERE effective_from > now64(3) - toIntervalSecond(%(oldest_s)s)
   OR (service, method, template, kind IN ('pinned', 'unpinned'), effective_from) IN (
       SELECT service, method, template, kind IN ('pinned', 'unpinned'), max(effective_from)
       FROM class_rules WHERE effective_from <= now64(3) - toIntervalSecond(%(oldest_s)s) GROUP BY 1, 2, 3, 4)
ORDER BY effective_from, service, method, template, kind, becomes"""
_ANY_AGE_S = 10 * 365 * 86_400


class RulesReader:
    """Reads the rules that were in force since the oldest message.

    `oldest_s`: age of the oldest message in seconds; None for any age. A replay applies the rules
    that were in force at the time of its messages.
    """

    def __init__(self, store: Store, oldest_s: int | None) -> None:
        self._store = store
        self._parameters = {"oldest_s": min(oldest_s or _ANY_AGE_S, _ANY_AGE_S)}
        self._read_ms = 0

    def is_fresh(self, clock_ms: int) -> bool:
        """Whether the last read is recent enough for a tick at `clock_ms` (Unix ms)."""
        return self._read_ms >= clock_ms - FRESH_MS

    async def read(self) -> Rules:
        """Returns the rules, in the order in which they took effect."""
        began = int(time.time() * 1000)
        columns = await self._store.select(_SQL, self._parameters)
        self._read_ms = began
        return [*zip(*columns, strict=True)]
