"""ClickHouse: columnar inserts and the few reads that rebuild state. Only this file talks to it."""

import asyncio
import struct
from collections.abc import Callable, Sequence
from typing import Any

from clickhouse_driver import Client
from clickhouse_driver.errors import ServerException
from spillway_runtime import retry
from spillway_runtime.status import Status

from spillway_streams.batches import blocks, sifting
from spillway_streams.batches.sifting import B, Refused, RefusedRows, Rows, Table
from spillway_streams.process.counters import Counters

_SETTINGS = {
    "connect_timeout": 3,
    "send_receive_timeout": 15,
    "sync_request_timeout": 3,
    # Tables are partitioned by day, and one message may hold rows of any days. With a limit, such a
    # message would be refused for ever.
    "max_partitions_per_insert_block": 0,
}
# Error codes that only the rows can cause: text that is not a number or date, a size that does not
# fit, a violated constraint, NULL where it is not allowed, values out of bounds. All other errors
# may pass: an outage, or a table or type that a migration has yet to create.
_OF_ROWS = frozenset({6, 69, 70, 117, 131, 321, 349, 395, 469})
_BEFORE_SENDING = (struct.error, OverflowError, UnicodeEncodeError)


def connect(url: str) -> Client:
    """Returns a client for a ClickHouse URL, with the settings of this file."""
    return Client.from_url(
        url + ("&" if "?" in url else "?") + "&".join(f"{k}={v}" for k, v in _SETTINGS.items())
    )


class Store:
    """One connection, used from a thread by one task at a time and renewed after every error.

    A thread cannot be cancelled: it keeps its connection, and the next task gets another.
    """

    NAME = "clickhouse"

    def __init__(self, url: str, status: Status, counters: Counters | None = None) -> None:
        self._url = url
        self._status = status
        self._counters = counters  # counts the rows that the server has, by table
        self._client: Client | None = None
        self._lock = asyncio.Lock()

    async def insert(
        self,
        table: str,
        names: Sequence[str],
        rows: Rows,
        refused: Refused,
    ) -> None:
        """Inserts rows into a table.

        Returns once the server has them, however long that takes, or once `refused` was called with
        those that it will never accept. If `rows` is a function, it is called anew for each
        attempt. The same rows may be stored twice when an answer is lost; the tables are made for
        that.
        """
        if rows:
            sql = f"INSERT INTO {table} ({', '.join(f'`{name}`' for name in names)}) VALUES"

            def execute(client: Client, some: list[Rows]) -> None:
                [block] = some
                client.execute(sql, list(block() if callable(block) else block))

            await self._insert(table, names, [rows], execute, refused)

    async def insert_columns(self, table: str, batches: list[Table], refused: Refused) -> None:
        """Like `insert`, in one INSERT, for batches of numpy arrays and Strings by name.

        This is the way for many rows.
        """
        if batches := [batch for batch in batches if batch and len(next(iter(batch.values())))]:

            def execute(client: Client, some: list[Table]) -> None:
                blocks.insert(client, table, some)

            await self._insert(table, list(batches[0]), batches, execute, refused)

    async def _insert(
        self,
        table: str,
        names: Sequence[str],
        found: Sequence[B],
        execute: Callable[[Client, list[B]], None],
        refused: Refused,
    ) -> None:
        async def put(some: list[B]) -> None:
            await self._until_done(lambda client: execute(client, some), RefusedRows)
            if self._counters is not None:
                self._counters.add(f"stored_rows: {table}", sum(map(sifting.length, some)))

        await sifting.insert(table, names, list(found), put, refused)

    async def select(self, sql: str, parameters: dict[str, Any] | None = None) -> list[tuple]:
        """Returns the result of a query as columns. Repeats it until the server answers."""
        return await self._until_done(lambda client: client.execute(sql, parameters, columnar=True))

    async def reach(self) -> None:
        """Waits until the server answers a query."""
        await self.select("SELECT 1")

    async def _until_done(self, work: Any, give_up: type[Exception] | tuple = ()) -> Any:
        async with self._lock:
            return await retry.until_done(lambda: self._attempt(work), self.NAME, self._status, give_up)

    async def _attempt(self, work: Any) -> Any:
        client, self._client = self._client, None
        try:
            client, result = await asyncio.to_thread(self._run, client, work)
        except _BEFORE_SENDING as error:
            raise RefusedRows(f"{type(error).__name__}: {error}") from error
        except ServerException as error:
            if error.code in _OF_ROWS:
                raise RefusedRows(str(error)) from error
            raise
        self._client = client
        return result

    def _run(self, client: Client | None, work: Any) -> tuple[Client, Any]:
        if client is None:
            client = connect(self._url)
        try:
            return client, work(client)
        except Exception:
            client.disconnect()
            raise
