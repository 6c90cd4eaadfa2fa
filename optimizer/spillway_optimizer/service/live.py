"""The mesh behind its servers: rules in force in Redis, proposals by NATS, rows in ClickHouse."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from nats.errors import MaxPayloadError
from redis.asyncio import Redis
from spillway.v1.ruleset_pb2 import Ruleset

from spillway_optimizer.clients import hot
from spillway_optimizer.clients.history import History
from spillway_optimizer.clients.lease import Lease, beside
from spillway_optimizer.clients.proposals import Proposals
from spillway_optimizer.inputs.in_force import InForce
from spillway_optimizer.process.states import States
from spillway_optimizer.rulesets.assemble import UnverifiedError
from spillway_optimizer.service.reading import NATS_AWAY
from spillway_optimizer.solving.mesh import Away

_T = TypeVar("_T")


@dataclass
class LiveMesh:
    """Implements solving/mesh.py. `lease_s`: expiry of the lease."""

    redis: Redis
    clusters: tuple[str, ...]
    history: History
    proposals: Proposals
    lease: Lease
    lease_s: float
    states: States

    @property
    def fencing_token(self) -> int:
        return self.lease.fencing_token

    def held(self) -> bool:
        return self.lease.held()

    def now(self) -> float:
        return time.time()

    async def beside(self, work: Callable[[], _T]) -> _T:
        """Runs `work` in a thread and renews the lease meanwhile."""
        return await beside(self.lease, self.lease_s / 3, asyncio.to_thread(work))

    async def in_force(self) -> InForce | None:
        """Raises one of REDIS_AWAY."""
        return await hot.in_force(self.redis, self.clusters)

    async def publish(self, proposal: Ruleset) -> None:
        try:
            await self.proposals.publish(proposal)
        except MaxPayloadError as error:
            size = proposal.ByteSize()
            raise UnverifiedError(
                f"the ruleset's {size} bytes are more than NATS takes; raise its max_payload"
            ) from error
        except NATS_AWAY as error:
            self.states.away("nats", error)
            raise Away("nats") from error
        self.states.log("nats", "reachable")

    def add(self, table: str, row: dict[str, Any]) -> None:
        self.history.add(table, row)
