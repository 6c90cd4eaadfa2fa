"""The optimizer's loop: one leader that solves periodically, and at once after a change."""

import asyncio
import logging
import time
from collections.abc import Awaitable
from typing import TypeVar

from redis.asyncio import Redis
from spillway.v1.topology_pb2 import Topology
from spillway_contracts.guardrails import GuardrailFile
from spillway_runtime import health

from spillway_optimizer.clients import hot
from spillway_optimizer.clients.history import History
from spillway_optimizer.clients.lease import Lease, beside
from spillway_optimizer.clients.proposals import Proposals
from spillway_optimizer.inputs import guardrails
from spillway_optimizer.process.states import States
from spillway_optimizer.service.auditing import Auditing
from spillway_optimizer.service.following import Following
from spillway_optimizer.service.live import LiveMesh
from spillway_optimizer.service.reading import NATS_AWAY, REDIS_AWAY, Reader
from spillway_optimizer.solvers.convex import Stop
from spillway_optimizer.solving import metrics
from spillway_optimizer.solving.config import Optimizer
from spillway_optimizer.solving.schedule import Schedule
from spillway_optimizer.solving.solving import Solving
from spillway_optimizer.solving.triggers import Trigger
from spillway_optimizer.workers.parallel import Parallel

_TICK_S = 0.5
_LISTEN_AGAIN_S = 5.0
_ROWS_PERIODS = 2.0  # age at which a change of load does not use the model's rows any more, in periods
_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")


class Service:
    """The running optimizer: reads, solves when the schedule says so, and publishes."""

    def __init__(
        self, settings: Optimizer, topology: Topology, redis: Redis, history: History, proposals: Proposals
    ):
        self.settings, self.redis, self.proposals = settings, redis, proposals
        self.clusters = tuple(cluster.name for cluster in topology.clusters)
        self.states = States(_LOG)
        self.guardrails = GuardrailFile(settings.guardrails, topology)
        self.reader = Reader(redis, history, self.clusters, self.states, outcomes=True)
        self.lease = Lease(redis, "optimizer", settings.lease_s)
        stop = Stop(relative_gap=settings.relative_gap, seconds=settings.solve_s)
        self.following = Following(redis, settings.policy, stop, self.states)
        self.parallel = Parallel(settings.processes, settings.solve_s, self.following.keep, self.states)
        mesh = LiveMesh(redis, self.clusters, history, proposals, self.lease, settings.lease_s, self.states)
        self.solving = Solving(settings, topology, mesh, self.guardrails, self.states, self.parallel)
        self.auditing = Auditing(settings, self.lease, history, self.states, self.following)
        self.schedule = Schedule(settings)  # by the monotonic clock: the wall clock may be set
        self._warming: asyncio.Task | None = None
        self._flushing: asyncio.Task | None = None
        self._changed = asyncio.Event()  # demand has changed since the last tick

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until `stop` is set. Continues when Redis is away."""
        exposition = metrics.exposition("optimizer", self.states, self.lease)
        server = health.Server(self.settings.health_listen, self.states.report, exposition)
        listening = asyncio.create_task(self._listen())
        try:
            while not stop.is_set():
                try:
                    await self._tick()
                except REDIS_AWAY as error:
                    self.states.away("redis", error)
                    self.states.wait_for("redis")
                    if not self.lease.held():
                        await self.auditing.stop()
                await self._rest(stop)
        finally:
            listening.cancel()
            await self._close()
            server.close()

    async def _listen(self) -> None:
        """Lets the next tick come at once when streams announce a change of demand.

        Without announcements, a change is found at the next regular tick.
        """
        while True:
            try:
                async for _ in hot.changes(self.redis):
                    self.states.log("announcements", "are heard")
                    self._changed.set()
            except REDIS_AWAY as error:
                self.states.log("announcements", f"are not heard: {type(error).__name__}: {error}")
            await asyncio.sleep(_LISTEN_AGAIN_S)

    async def _rest(self, stop: asyncio.Event) -> None:
        """Waits for a regular tick, a change of demand, or an urgent solve that is due."""
        seconds = min(_TICK_S, self.schedule.rest_s(time.monotonic()))
        waiting = [asyncio.create_task(event.wait()) for event in (stop, self._changed)]
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        self._changed.clear()

    async def _close(self) -> None:
        for task in (self._warming, self._flushing):
            if task is not None:
                task.cancel()
        self.parallel.close()
        await self.auditing.stop()
        try:
            await self.lease.release()
        except REDIS_AWAY:
            pass  # the lease expires by itself
        for ending in (self.reader.flush(), self.proposals.close(), self.redis.aclose()):
            try:
                async with asyncio.timeout(1.5):
                    await ending
            except (*NATS_AWAY, *REDIS_AWAY):
                pass

    async def _tick(self) -> None:
        if not self.reader.ready and self.lease.token is None:
            # Do not take the lease until there is a model to solve.
            await self.reader.refresh(0.0)
            if not self.reader.ready:
                guardrails.changed(self.guardrails, self.states)
                self.states.wait_for("clickhouse")
                return
        if not await self.lease.hold():
            self.states.log("lease", "held by another; standing by")
            self.parallel.close()
            await self.auditing.stop()
            # The proposals of another leader cannot be compared with ours.
            self.solving.forget()
            self.schedule.forget()
            # Keep the guardrail file and the model's rows current, ready for a take-over.
            guardrails.changed(self.guardrails, self.states)
            self._keep_warm()
            self.states.wait_for(None)
            return
        self.states.log("lease", f"held under token {self.lease.fencing_token}")
        await self.following.ask()
        trigger = await self._trigger(time.monotonic())
        if trigger is not None:
            await self._solve(trigger)
            self._flush()

    def _flush(self) -> None:
        """Writes history in the background. A change of demand must not wait for ClickHouse."""
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self.reader.flush())

    def _keep_warm(self) -> None:
        """Reads the model's rows in the background.

        A server that does not answer must not delay a take-over.
        """
        if self._warming is None or self._warming.done():
            reading = self.reader.refresh(self.settings.period_s)
            self._warming = asyncio.create_task(reading)

    async def _beside(self, work: Awaitable[_T]) -> _T:
        return await beside(self.lease, self.settings.lease_s / 3, work)

    async def _trigger(self, now: float) -> Trigger | None:
        """Returns why to solve at this tick, or None."""
        changed = guardrails.changed(self.guardrails, self.states)
        pulse = await hot.pulse(self.redis, self.clusters)
        return self.schedule.trigger(pulse, self.following.name, changed, now)

    async def _solve(self, trigger: Trigger) -> None:
        if trigger.kind not in ("start", "period"):
            self.states.counters[f"urgent.{trigger.kind}"] += 1
            _LOG.info("solving at once: %s", trigger)
        started = time.monotonic()
        # Curves and capacities change slowly. Reading them again would delay the answer to a load.
        refresh_s = _ROWS_PERIODS * self.settings.period_s if trigger.kind == "load" else None
        telemetry = await self._beside(self.reader.read(refresh_s))
        if telemetry is None:
            self.states.wait_for("clickhouse")
            return
        self.schedule.begun(started)
        waits_for = await self.solving.run(time.time(), trigger, telemetry, self.following)
        basis = None if waits_for else self.solving.basis(telemetry, self.following.name)
        if self.solving.concluded is not None:
            self.auditing.offer(*self.solving.concluded)
        self.schedule.solved(trigger, basis, started, time.monotonic())
        self.states.wait_for(waits_for)
