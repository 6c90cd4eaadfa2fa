"""Redis: boards that expire, written by several workers. Only this file talks to Redis.

A worker sets the fields that it owns. It removes its fields that fell silent, including those that
a predecessor left behind. Fields that nobody owns are pruned by age. A board that cannot be written
is dropped, because the next one is due within a second.
"""

import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as TimedOut
from spillway_contracts import names, redis_client
from spillway_contracts.hot_state import (
    DemandEntry,
    LoadBoardEntry,
    NetworkEntry,
    RouteEntry,
    UnknownEntry,
)
from spillway_runtime.status import Status

from spillway_streams.process.counters import Counters

log = logging.getLogger("spillway.hot")
Entry = LoadBoardEntry | DemandEntry | NetworkEntry | RouteEntry | UnknownEntry
Owns = Callable[[str, str], bool]  # (key, field) -> whether this worker owns or keeps it

# Removes fields that still have the value that was read. If a value has changed, its owner has come
# back meanwhile.
_REMOVE = """
local removed = 0
for i = 1, #ARGV, 2 do
  if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then
    removed = removed + redis.call('HDEL', KEYS[1], ARGV[i])
  end
end
return removed"""


def _nobody(*_: str) -> bool:
    return False


class Boards:
    """The boards that this worker writes, and the placements that it reads."""

    NAME = "redis"

    def __init__(
        self,
        url: str,
        expiry_s: float,
        hold_s: float,
        status: Status,
        options: Mapping[str, Any] | None = None,
        counters: Counters | None = None,
    ) -> None:
        """Creates the client.

        `expiry_s`: seconds without a write after which a key expires. `hold_s`: a field that nobody
        owns or keeps is removed once it is this many seconds older than the newest field.
        `options`: options of the connection, beside the URL.
        """
        self._redis = redis_client.connect(url, socket_timeout=2, socket_connect_timeout=2, **(options or {}))
        self._expiry_s, self._hold_s = expiry_s, hold_s
        self._status = status
        self._counters = counters or Counters()
        self._refused = ""  # why a placement could not be read
        self._unannounced = ""  # why a change could not be announced
        self._mine: dict[str, set[str]] = {}
        self._pruned_at = 0.0

    async def reach(self) -> None:
        """Checks that Redis can be reached, when there is nothing to write."""
        await self._try({})

    async def placement(self, clusters: Iterable[str]) -> dict[str, bytes | None]:
        """Returns each cluster's Heartbeat as JSON.

        The value is None where no relay reports or Redis cannot be read. Reads that Redis refuses
        are counted, and shown as a problem until they succeed.
        """
        keys = {cluster: names.REDIS_KEY_PLACEMENT.format(cluster=cluster) for cluster in clusters}
        try:
            async with self._redis.pipeline(transaction=False) as pipe:
                for key in keys.values():
                    pipe.get(key)
                found = await pipe.execute(raise_on_error=False)
        except (Disconnected, TimedOut, OSError):  # `put` reports that Redis is away
            return dict.fromkeys(keys)
        except RedisError as error:
            found = [error] * len(keys)
        refused = {cluster: e for cluster, e in zip(keys, found, strict=True) if isinstance(e, RedisError)}
        self._counters.add("placement_refused", len(refused))
        why = (f"{keys[cluster]}: {type(e).__name__}: {e}" for cluster, e in refused.items())
        self._refused = next(why, "")
        return {c: None if c in refused else text for c, text in zip(keys, found, strict=True)}

    async def put(
        self, boards: Mapping[str, Mapping[str, Entry]], owns: Owns = _nobody, keeps: Owns = _nobody
    ) -> None:
        """Sets these fields of each key's hash, and removes this worker's other fields.

        All changes are made in one transaction, so no reader sees half a board. `owns`: fields that
        belong to this worker, no matter who wrote them. `keeps`: fields that are never removed for
        their age.
        """
        before = self._mine
        silent = {key: mine - set(boards.get(key, ())) for key, mine in before.items()}
        # If `forget` was called meanwhile, the fields may belong to another worker.
        if await self._try(boards, silent, owns, keeps) and self._mine is before:
            self._mine = {key: set(entries) for key, entries in boards.items() if entries}

    async def announce(self, clusters: Iterable[str]) -> None:
        """Announces clusters whose demand has changed at once, after its board was written.

        A reader that misses it finds the change at its next look. So a failure is only counted, and
        logged once.
        """
        try:
            async with self._redis.pipeline(transaction=False) as pipe:
                for cluster in clusters:
                    pipe.publish(names.REDIS_CHANNEL_DEMAND, cluster)
                await pipe.execute()
        except (RedisError, OSError) as error:
            self._counters.add("changes_not_announced")
            why = f"{names.REDIS_CHANNEL_DEMAND}: {type(error).__name__}: {error}"
            if why != self._unannounced:
                log.warning("a change of demand is not announced: %s", why)
            self._unannounced = why

    def forget(self) -> None:
        """Forgets which fields this worker wrote.

        They may belong to another worker from now on, so this worker must not remove them.
        """
        self._mine = {}

    async def _try(
        self,
        boards: Mapping[str, Mapping[str, Entry]],
        silent: Mapping[str, set[str]] | None = None,
        owns: Owns = _nobody,
        keeps: Owns = _nobody,
    ) -> bool:
        try:
            await self._write(boards, silent or {})
            if boards and time.monotonic() - self._pruned_at >= self._expiry_s / 3:
                self._pruned_at = time.monotonic()
                for key, entries in boards.items():
                    await self._prune(key, set(entries), owns, keeps)
        except (RedisError, OSError) as error:
            self._status.failed(self.NAME, f"{type(error).__name__}: {error}")
            if "WRONGTYPE" in str(error):
                await self._remove_others(boards)
            return False
        if self._refused:
            self._status.failed(self.NAME, self._refused)
        else:
            self._status.ok(self.NAME)
        return True

    async def _write(self, boards: Mapping[str, Mapping[str, Entry]], silent: Mapping[str, set[str]]) -> None:
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.ping()
            for key, fields in silent.items():
                if fields:
                    pipe.hdel(key, *sorted(fields))
            for key, entries in boards.items():
                if entries:
                    pipe.hset(key, mapping={name: entry.to_json() for name, entry in entries.items()})
                    pipe.pexpire(key, int(self._expiry_s * 1000))
            await pipe.execute()

    async def _remove_others(self, keys: Iterable[str]) -> None:
        """Removes keys that are not hashes.

        Nobody can read or write them as boards, and they do not expire.
        """
        try:
            async with self._redis.pipeline(transaction=False) as pipe:
                for key in keys:
                    pipe.hget(key, "")
                found = await pipe.execute(raise_on_error=False)
            for key, reply in zip(keys, found, strict=True):
                if isinstance(reply, RedisError):
                    await self._redis.pexpire(key, 0)
        except (RedisError, OSError):
            pass  # tried again at the next write that fails

    async def _prune(self, key: str, current: set[str], owns: Owns, keeps: Owns) -> None:
        # redis-py's types do not say that these replies are bytes.
        fields = cast("dict[bytes, bytes]", await self._redis.hgetall(key))
        stale = {
            name: text
            for name, text in stale_fields(fields, self._hold_s).items()
            if _at(text) == -math.inf or not keeps(key, name.decode(errors="replace"))
        }
        for name in current:
            stale.pop(name.encode(), None)
        for other in fields.keys() - {field.encode() for field in current}:
            if owns(key, other.decode(errors="replace")):
                stale[other] = fields[other]
        if stale:
            await self._redis.eval(_REMOVE, 1, key, *(part for field in stale.items() for part in field))


def stale_fields(fields: Mapping[bytes, bytes], hold_s: float) -> dict[bytes, bytes]:
    """Returns the fields of a board that are stale.

    Their `at` is more than `hold_s` seconds behind the newest one, or cannot be read.
    """
    ats = {name: _at(text) for name, text in fields.items()}
    newest = max(ats.values(), default=0.0)
    return {name: fields[name] for name, at in ats.items() if at < newest - hold_s}


def _at(text: bytes) -> float:
    try:
        return float(json.loads(text)["at"])
    except (ValueError, TypeError, KeyError):
        return -math.inf
