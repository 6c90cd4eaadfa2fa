"""PAPA's mesh behind its servers."""

import asyncio
import time
from dataclasses import dataclass
from typing import cast

from spillway_contracts import names

from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.service.live import LiveMesh
from spillway_optimizer.service.reading import Reader


@dataclass
class LivePapaMesh(LiveMesh):
    """Implements papa/mesh.py. What reads or writes Redis raises one of REDIS_AWAY.

    `stop` ends every pause.
    """

    reader: Reader
    stop: asyncio.Event

    def elapsed(self) -> float:
        return time.monotonic()

    async def hold(self) -> bool:
        return await self.lease.hold()

    async def pause(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self.stop.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def telemetry(self) -> Telemetry | None:
        return await self.reader.read()

    async def load(self) -> str | None:
        # redis-py's types do not say that `connect` decodes the replies.
        return cast("str | None", await self.redis.get(names.REDIS_KEY_PAPA_CHECKPOINT))

    async def save(self, checkpoint: str) -> None:
        await self.redis.set(names.REDIS_KEY_PAPA_CHECKPOINT, checkpoint)
