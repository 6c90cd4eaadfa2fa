"""Redis: boards that expire. Only this file talks to it. A board that cannot be written is dropped,
the next one is due within a second."""

from collections.abc import Mapping

from redis.asyncio import Redis
from redis.exceptions import RedisError
from spillway_contracts.hot_state import DemandEntry, LoadBoardEntry, NetworkEntry

from spillway_streams.health import Status

Entry = LoadBoardEntry | DemandEntry | NetworkEntry


class Boards:
    NAME = "redis"

    def __init__(self, url: str, expiry_s: float, status: Status) -> None:
        self._redis = Redis.from_url(url, socket_timeout=2, socket_connect_timeout=2)
        self._expiry_ms = int(expiry_s * 1000)
        self._status = status

    async def reach(self) -> None:
        """Nothing to write; only sees whether Redis is there."""
        await self.put({})

    async def put(self, boards: Mapping[str, Mapping[str, Entry]]) -> None:
        """Replaces each key's hash (field -> entry) at once, so that no reader sees half a board."""
        try:
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.ping()
                for key, entries in boards.items():
                    pipe.delete(key)
                    if entries:
                        pipe.hset(key, mapping={name: entry.to_json() for name, entry in entries.items()})
                        pipe.pexpire(key, self._expiry_ms)
                await pipe.execute()
        except (RedisError, OSError) as error:
            self._status.failed(self.NAME, f"{type(error).__name__}: {error}")
        else:
            self._status.ok(self.NAME)
