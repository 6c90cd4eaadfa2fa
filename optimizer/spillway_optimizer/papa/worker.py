"""PAPA as a process: the lease, its servers, and its loop."""

import asyncio
import logging
from collections.abc import Collection

from redis.asyncio import Redis
from spillway.v1.topology_pb2 import Topology
from spillway_contracts.guardrails import GuardrailFile
from spillway_runtime import health

from spillway_optimizer.clients.history import History
from spillway_optimizer.clients.lease import Lease, beside
from spillway_optimizer.clients.proposals import Proposals
from spillway_optimizer.inputs import guardrails
from spillway_optimizer.papa.adjusting import Adjusting
from spillway_optimizer.papa.applications import Applications
from spillway_optimizer.papa.live import LivePapaMesh
from spillway_optimizer.papa.mesh import TURN_S
from spillway_optimizer.process.states import States
from spillway_optimizer.service.reading import NATS_AWAY, REDIS_AWAY, Reader
from spillway_optimizer.solving import metrics
from spillway_optimizer.solving.config import Papa

_MODEL_REFRESH_S = 5.0
_LOG = logging.getLogger(__name__)


class Worker:
    """Runs PAPA while it holds the lease.

    The constructor raises ContractError when the guardrail file is wrong.
    """

    def __init__(
        self, settings: Papa, topology: Topology, redis: Redis, history: History, proposals: Proposals
    ):
        self.settings, self.topology, self.redis, self.proposals = settings, topology, redis, proposals
        self.history, self.guardrails = history, GuardrailFile(settings.guardrails, topology)
        self.clusters = tuple(cluster.name for cluster in topology.clusters)
        self.states = States(_LOG)
        self.reader = Reader(redis, history, self.clusters, self.states, _MODEL_REFRESH_S)
        self.lease = Lease(redis, "papa", settings.lease_s)
        self._turning: dict[str, asyncio.Task[None]] = {}  # by application

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until `stop` is set. Continues when a server is away."""
        mesh = LivePapaMesh(
            self.redis,
            self.clusters,
            self.history,
            self.proposals,
            self.lease,
            self.settings.lease_s,
            self.states,
            self.reader,
            stop,
        )
        applications = Applications(self.settings, self.topology, mesh, self.guardrails, self.states)
        exposition = metrics.exposition("papa", self.states, self.lease)
        server = health.Server(self.settings.health_listen, self.states.report, exposition)
        token = 0
        try:
            while not stop.is_set():
                try:
                    if await self.lease.hold():
                        if self.lease.fencing_token != token:
                            # Another process may have led in between, and stored other things.
                            await self._end(applications.forget())
                            token = self.lease.fencing_token
                        self.states.log("lease", "held")
                        guardrails.changed(self.guardrails, self.states)
                        await self._follow(applications, mesh)
                    else:
                        self.states.log("lease", "held by another; standing by")
                        await self._end(applications.forget())
                    self.states.wait_for(None)
                except REDIS_AWAY as error:
                    self._away(error)
                await beside(self.lease, self.settings.lease_s / 3, self.reader.flush())
                await mesh.pause(TURN_S)
        finally:
            await self._end(list(self._turning))
            await self._close()
            server.close()

    async def _follow(self, applications: Applications, mesh: LivePapaMesh) -> None:
        """Runs the PAPA of each application that there is. Raises what one of them has raised."""
        ended, begun = await applications.follow()
        await self._end(ended)
        for name, adjusting in begun.items():
            self._turning[name] = asyncio.create_task(self._adjust(adjusting, mesh))
        for task in self._turning.values():
            if task.done():
                task.result()

    async def _adjust(self, adjusting: Adjusting, mesh: LivePapaMesh) -> None:
        stop = False
        while not stop:
            try:
                if self.lease.held():
                    await adjusting.turn()
            except REDIS_AWAY as error:
                self._away(error)
            stop = await mesh.pause(TURN_S)

    async def _end(self, names: Collection[str]) -> None:
        tasks = [self._turning.pop(name) for name in names]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _away(self, error: BaseException) -> None:
        self.states.away("redis", error)
        self.states.wait_for("redis")

    async def _close(self) -> None:
        for ending in (
            self.lease.release(),
            self.reader.flush(),
            self.proposals.close(),
            self.redis.aclose(),
        ):
            try:
                async with asyncio.timeout(1.5):
                    await ending
            except (*NATS_AWAY, *REDIS_AWAY):
                pass
