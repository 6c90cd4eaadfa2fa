"""The optimizer's loop: one leader, solving on a period and at once when something changed."""

import asyncio
import logging
import time
from collections.abc import Awaitable
from typing import TypeVar

from spillway.v1.topology_pb2 import Topology
from spillway_contracts.guardrails import GuardrailFile

from spillway_optimizer.clients import hot
from spillway_optimizer.clients.history import History
from spillway_optimizer.clients.lease import Lease, beside
from spillway_optimizer.clients.proposals import Proposals
from spillway_optimizer.inputs import guardrails
from spillway_optimizer.process.health import Health
from spillway_optimizer.process.logs import States
from spillway_optimizer.service import metrics
from spillway_optimizer.service.config import Optimizer
from spillway_optimizer.service.following import Following
from spillway_optimizer.service.reading import NATS_AWAY, REDIS_AWAY, Reader
from spillway_optimizer.service.solving import Solving
from spillway_optimizer.service.triggers import Basis, Trigger, urgent
from spillway_optimizer.solvers.convex import Stop

_TICK_S = 0.5
_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")


class Service:
    """State: when to solve next, and what the last solve was made from."""

    def __init__(
        self, settings: Optimizer, topology: Topology, redis, history: History, proposals: Proposals
    ):
        self.settings, self.redis, self.proposals = settings, redis, proposals
        self.clusters = tuple(cluster.name for cluster in topology.clusters)
        self.states = States(_LOG)
        self.guardrails = GuardrailFile(settings.guardrails, topology)
        self.reader = Reader(redis, history, self.clusters, self.states)
        self.lease = Lease(redis, "optimizer", settings.optimizer_lease_s)
        stop = Stop(relative_gap=settings.optimizer_relative_gap, seconds=settings.optimizer_solve_s)
        self.following = Following(redis, settings.policy, stop, self.states)
        self.solving = Solving(
            settings, topology, redis, history, proposals, self.lease, self.guardrails, self.states
        )
        self.basis: Basis | None = None
        self.due_at = self.free_at = 0.0  # of the monotonic clock: the other may be set
        self.pressing: Trigger | None = None  # noticed, and not yet acted upon
        self.health: Health | None = None
        self._warming: asyncio.Task | None = None

    async def run(self, stop: asyncio.Event) -> None:
        exposition = metrics.exposition("optimizer", self.states, self.lease)
        self.health = Health(self.settings.health_listen, self.states.counters, exposition)
        try:
            while not stop.is_set():
                try:
                    await self._tick()
                except REDIS_AWAY as error:
                    self.states.away("redis", error)
                    self._wait_for("redis")
                try:
                    await asyncio.wait_for(stop.wait(), _TICK_S)
                except TimeoutError:
                    pass
        finally:
            await self._close()

    async def _close(self) -> None:
        if self._warming is not None:
            self._warming.cancel()
        try:
            await self.lease.release()
        except REDIS_AWAY:
            pass  # it runs out by itself
        for ending in (self.reader.flush(), self.proposals.close(), self.redis.aclose()):
            try:
                async with asyncio.timeout(1.5):
                    await ending
            except (*NATS_AWAY, *REDIS_AWAY):
                pass
        self.health.close()

    async def _tick(self) -> None:
        if not self.reader.ready and self.lease.token is None:
            # Who cannot solve does not keep others from leading.
            await self.reader.refresh(0.0)
            if not self.reader.ready:
                guardrails.changed(self.guardrails, self.states)
                self._wait_for("clickhouse")
                return
        if not await self.lease.hold():
            self.states.say("lease", "held by another; standing by")
            # What the leader proposes meanwhile is not ours to compare with.
            self.solving.forget()
            self.basis, self.due_at = None, 0.0
            # A standby knows the file and the model's rows when it takes over.
            guardrails.changed(self.guardrails, self.states)
            self._keep_warm()
            self._wait_for(None)
            return
        self.states.say("lease", f"held under token {self.lease.fencing_token}")
        await self.following.ask()
        trigger = await self._trigger(time.monotonic())
        if trigger is not None:
            await self._solve(trigger)
            await self._beside(self.reader.flush())

    def _keep_warm(self) -> None:
        """In the background: a server that does not answer must not delay a take-over."""
        if self._warming is None or self._warming.done():
            reading = self.reader.refresh(self.settings.optimizer_period_s)
            self._warming = asyncio.create_task(reading)

    async def _beside(self, work: Awaitable[_T]) -> _T:
        return await beside(self.lease, self.settings.optimizer_lease_s / 3, work)

    async def _trigger(self, now: float) -> Trigger | None:
        """Why to solve at this tick. What is urgent waits only for the interval after the last solve."""
        changed = guardrails.changed(self.guardrails, self.states)
        pulse = await hot.pulse(self.redis, self.clusters)
        change = self.settings.optimizer_load_change
        found = urgent(self.basis, pulse, self.following.name, changed, change)
        # A changed file is noticed once; a load that came back needs no solve any more.
        if found is not None or self.pressing is None or self.pressing.kind != "guardrails":
            self.pressing = found
        if self.pressing is not None and now >= self.free_at:
            return self.pressing
        if now >= self.due_at:
            return Trigger("start" if self.basis is None else "period")
        return None

    async def _solve(self, trigger: Trigger) -> None:
        if trigger.kind not in ("start", "period"):
            self.states.counters[f"urgent.{trigger.kind}"] += 1
            _LOG.info("solving at once: %s", trigger)
        started = time.monotonic()
        telemetry = await self._beside(self.reader.read())
        if telemetry is None:
            self._wait_for("clickhouse")
            return
        self.due_at = started + self.settings.optimizer_period_s
        waits_for = await self.solving.run(time.time(), trigger, telemetry, self.following)
        if waits_for is None:  # else nothing is out, and what was urgent still is
            self.basis = Basis(
                self.solving.demand, telemetry.placement, self.following.name, self.solving.unknown
            )
            if trigger is self.pressing:
                self.pressing = None
        # A solver that takes long is not started again at once, whatever changes.
        ended = time.monotonic()
        self.free_at = ended + max(self.settings.optimizer_min_interval_s, ended - started)
        self._wait_for(waits_for)

    def _wait_for(self, server: str | None) -> None:
        """None: all that was asked answered, though there may be nothing to decide yet. A server that is absent
        after the first success is logged, no reason to be restarted."""
        if self.health is not None and (server is None or self.health.waiting_for is not None):
            self.health.waiting_for = server
