"""ClickHouse from asyncio: clickhouse-driver in one thread, one statement at a time."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from clickhouse_driver import Client
from clickhouse_driver import errors as driver

# Exceptions while ClickHouse is away, is restarting or refuses a statement. EOFError and OSError
# come from the driver's socket.
TROUBLE = (driver.Error, EOFError, OSError)


class ClickHouse:
    """Connects at the first statement, and again after every error."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: Client | None = None
        # A separate thread, so that a hanging server blocks neither the event loop nor other
        # servers' threads.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="clickhouse")

    async def insert(self, statement: str, rows: Sequence[tuple], token: str) -> None:
        """Inserts all rows. On TROUBLE, perhaps none were inserted.

        The token prevents a repeated insert from counting twice in tables that deduplicate.
        """
        await self._call(statement, list(rows), {"insert_deduplication_token": token})

    async def select(self, statement: str, parameters: dict) -> list[tuple]:
        return await self._call(statement, parameters, None)

    def close(self) -> None:
        """Ends a running statement too: a hanging server must not delay the process's exit."""
        client = self._client
        self._thread.shutdown(wait=False, cancel_futures=True)
        if client is not None:
            client.disconnect()

    async def _call(self, statement: str, parameters: list | dict, settings: dict | None) -> list[tuple]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._execute, statement, parameters, settings)

    def _execute(self, statement: str, parameters: list | dict, settings: dict | None) -> list[tuple]:
        if self._client is None:
            self._client = Client.from_url(self._url)
            self._client.connection.connect_timeout = 3
            self._client.connection.send_receive_timeout = 10
        try:
            return self._client.execute(statement, parameters, settings=settings)
        except BaseException:
            self._client.disconnect()
            self._client = None
            raise
