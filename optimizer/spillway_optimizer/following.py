"""Which policy the operator wants, by Redis; and the instance of it that routes."""

import logging

from redis.asyncio import Redis

from spillway_optimizer import hot
from spillway_optimizer.logs import States
from spillway_optimizer.policies import REGISTRY, SPILLWAY
from spillway_optimizer.solution import Policy
from spillway_optimizer.solvers.convex import Stop


class Following:
    """`name` is the policy followed. One instance lives as long as its policy is followed: some remember."""

    def __init__(self, redis: Redis, name: str, stop: Stop, states: States):
        self._redis, self._stop, self._states = redis, stop, states
        self._told: str | None = None  # the last valid one that Redis said
        self._router: Policy | None = None
        self.name = name

    async def ask(self) -> None:
        """Takes over what Redis says. Raises one of REDIS_AWAY."""
        wanted = await hot.policy(self._redis)
        if wanted is None and self._told:
            # Redis has lost it, the operator has not taken it back: their choice goes on.
            await hot.restore_policy(self._redis, self._told)
            wanted = self._told
        elif wanted in REGISTRY:
            self._told = wanted
        wanted = wanted or self.name
        if wanted not in REGISTRY:
            allowed = ", ".join(sorted(REGISTRY))
            said = f"unknown {wanted!r} in Redis, staying with {self.name!r}; allowed: {allowed}"
            self._states.say("policy", said, logging.WARNING, "unknown_policy")
            return
        self._states.say("policy", wanted)
        if wanted != self.name:
            self.name, self._router = wanted, None

    def router(self) -> Policy:
        if self._router is None:
            kind = REGISTRY[self.name]
            self._router = kind(self._stop) if self.name == SPILLWAY else kind()
        return self._router
