"""ClickHouse: columnar inserts and the few reads that rebuild state. Only this file talks to it."""

import asyncio
from typing import Any

from clickhouse_driver import Client

from spillway_streams import backoff
from spillway_streams.health import Status

_SETTINGS = {"connect_timeout": 3, "send_receive_timeout": 15, "sync_request_timeout": 3}


class Store:
    """One connection, used by one task at a time from a thread, renewed after every error."""

    NAME = "clickhouse"

    def __init__(self, url: str, status: Status) -> None:
        self._url = url
        self._status = status
        self._client: Client | None = None
        self._lock = asyncio.Lock()

    async def insert(self, table: str, names: list[str], values: list[list[Any]]) -> None:
        """Inserts columns into a table; returns once the server has them, however long that takes.

        The same rows may arrive twice when an answer is lost; the tables are made for that.
        """
        if values and values[0]:
            sql = f"INSERT INTO {table} ({', '.join(f'`{name}`' for name in names)}) VALUES"
            await self._until_done(lambda client: client.execute(sql, values, columnar=True))

    async def select(self, sql: str, parameters: dict[str, Any] | None = None) -> list[tuple]:
        """Rows of a query (as columns), repeated until the server answers."""
        return await self._until_done(lambda client: client.execute(sql, parameters, columnar=True))

    async def reach(self) -> None:
        await self.select("SELECT 1")

    async def _until_done(self, work: Any) -> Any:
        async with self._lock:
            return await backoff.until_done(
                lambda: asyncio.to_thread(self._run, work), self.NAME, self._status
            )

    def _run(self, work: Any) -> Any:
        if self._client is None:
            url = self._url + ("&" if "?" in self._url else "?")
            self._client = Client.from_url(url + "&".join(f"{k}={v}" for k, v in _SETTINGS.items()))
        try:
            return work(self._client)
        except Exception:
            self._client.disconnect()
            self._client = None
            raise
