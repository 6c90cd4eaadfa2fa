"""The lease that makes one process the leader of a role."""

import asyncio
import secrets
import time

from redis.asyncio import Redis
from spillway_contracts import names

_TIMEOUT_S = 2.0


class Lease:
    """One leader per role. The token grows from leader to leader (Redis time, then chance), so that a
    reader can tell a late leader's word from the present one's."""

    # Only the holder of the token may touch the key.
    _IF_MINE = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end "
    _KEEP = _IF_MINE + "return redis.call('pexpire', KEYS[1], ARGV[2])"
    _DROP = _IF_MINE + "return redis.call('del', KEYS[1])"

    def __init__(self, redis: Redis, role: str, ttl_s: float, clock=time.monotonic):
        self._redis, self._clock = redis, clock
        self._key = names.REDIS_KEY_LEASE.format(role=role)
        self._ttl_ms = int(ttl_s * 1000)
        self.token: str | None = None
        self._until = 0.0

    def held(self) -> bool:
        """Whether the lease holds by our own clock: true only while Redis cannot have let it go."""
        return self.token is not None and self._clock() < self._until

    async def hold(self) -> bool:
        """Acquires or renews. Raises redis.RedisError when Redis is away; the lease then runs out."""
        asked = self._clock()
        if self.token is not None and await self._redis.eval(
            self._KEEP, 1, self._key, self.token, self._ttl_ms
        ):
            self._until = asked + self._ttl_ms / 1000
            return True
        seconds, micros = await self._redis.time()
        token = f"{seconds * 1_000_000 + micros:020d}-{secrets.token_hex(8)}"
        taken = await self._redis.set(self._key, token, nx=True, px=self._ttl_ms)
        self.token = token if taken else None
        self._until = asked + self._ttl_ms / 1000 if taken else 0.0
        return bool(taken)

    async def release(self) -> None:
        if self.token is not None:
            token, self.token = self.token, None
            async with asyncio.timeout(_TIMEOUT_S):
                await self._redis.eval(self._DROP, 1, self._key, token)
