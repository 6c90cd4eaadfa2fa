"""The lease that makes one process the leader of a role."""

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

from redis.asyncio import Redis
from redis.exceptions import RedisError
from spillway_contracts import names

_TIMEOUT_S = 2.0
_T = TypeVar("_T")


class Lease:
    """The lease of one role, with a fencing token that grows from leader to leader.

    Proposals carry the token, and the publisher refuses a token older than the newest it has seen.
    Tokens are Redis's clock in microseconds, but always above the last token. So they also grow if
    the clock is set back or if Redis has lost all data. A last token that is more than an hour
    ahead of the clock is ignored. The publisher refuses such a token too.
    """

    _AHEAD_US = names.VALUE_FENCING_TOKEN_AHEAD_US

    # Only the holder of the token may change the key.
    _IF_MINE = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end "
    _KEEP = _IF_MINE + "return redis.call('pexpire', KEYS[1], ARGV[2])"
    _TAKE = """
        if redis.call('exists', KEYS[1]) == 1 then return false end
        local time = redis.call('time')
        local now = time[1] * 1000000 + time[2]
        local last = tonumber(redis.call('get', KEYS[2])) or 0
        if last > now + tonumber(ARGV[2]) then last = 0 end
        local token = string.format('%.0f', math.max(now, last + 1))
        redis.call('set', KEYS[2], token)
        redis.call('set', KEYS[1], token, 'px', ARGV[1])
        return token
    """
    _DROP = _IF_MINE + "return redis.call('del', KEYS[1])"

    def __init__(self, redis: Redis, role: str, ttl_s: float, clock=time.monotonic):
        self._redis, self._clock = redis, clock
        self._key = names.REDIS_KEY_LEASE.format(role=role)
        self._fence = names.REDIS_KEY_LEASE_FENCE.format(role=role)
        self._ttl_ms = int(ttl_s * 1000)
        self.token: str | None = None
        self._until = 0.0

    def held(self) -> bool:
        """Returns whether the lease holds by our own clock.

        True only while Redis cannot have expired it.
        """
        return self.token is not None and self._clock() < self._until

    async def hold(self) -> bool:
        """Acquires or renews the lease. Returns whether it is held.

        Raises redis.RedisError if Redis is away. The lease then expires.
        """
        asked = self._clock()
        if self.token is not None and await self._redis.eval(
            self._KEEP, 1, self._key, self.token, self._ttl_ms
        ):
            self._until = asked + self._ttl_ms / 1000
            return True
        self.token = await self._redis.eval(
            self._TAKE, 2, self._key, self._fence, self._ttl_ms, self._AHEAD_US
        )
        self._until = asked + self._ttl_ms / 1000 if self.token is not None else 0.0
        return self.token is not None

    @property
    def fencing_token(self) -> int:
        """The token of the lease held now, or held last. 0: none."""
        return int(self.token or 0)

    async def release(self) -> None:
        """Gives the lease up, if it is held."""
        if self.token is not None:
            token, self.token = self.token, None
            async with asyncio.timeout(_TIMEOUT_S):
                await self._redis.eval(self._DROP, 1, self._key, token)


async def beside(lease: Lease, every_s: float, work: Awaitable[_T]) -> _T:
    """Awaits `work` and renews the lease meanwhile, so that long work does not lose it.

    Raises what `work` raises.
    """
    task = asyncio.ensure_future(work)
    try:
        while True:
            done, _ = await asyncio.wait({task}, timeout=every_s)
            if done:
                return task.result()
            try:
                await lease.hold()
            except (RedisError, OSError, TimeoutError):
                pass  # the lease then expires, and nothing is published
    finally:
        task.cancel()
