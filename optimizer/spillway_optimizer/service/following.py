"""Follows the policy that the operator sets in Redis."""

import logging

from redis.asyncio import Redis

from spillway_optimizer.clients import hot
from spillway_optimizer.policies import REGISTRY
from spillway_optimizer.process.states import States
from spillway_optimizer.solvers.convex import Stop
from spillway_optimizer.solving.routers import Routers


class Following(Routers):
    """Routers of the policy that Redis names, `name` until it names one."""

    def __init__(self, redis: Redis, name: str, stop: Stop, states: States):
        super().__init__(name, stop)
        self._redis, self._states = redis, states
        self._last_valid: str | None = None  # the last valid policy read from Redis

    async def ask(self) -> None:
        """Reads the policy from Redis and adopts it. Raises one of REDIS_AWAY."""
        wanted = await hot.policy(self._redis)
        if wanted is None and self._last_valid:
            # Redis has lost the policy, but the operator has not withdrawn it. So it stays in
            # effect.
            await hot.restore_policy(self._redis, self._last_valid)
            wanted = self._last_valid
        elif wanted in REGISTRY:
            self._last_valid = wanted
        wanted = wanted or self.name
        if wanted not in REGISTRY:
            allowed = ", ".join(sorted(REGISTRY))
            message = f"unknown {wanted!r} in Redis, staying with {self.name!r}; allowed: {allowed}"
            self._states.log("policy", message, logging.WARNING, "unknown_policy")
            return
        self._states.log("policy", wanted)
        self.follow(wanted)
