"""What a worker owns: one state per partition number of its co-partitioned topics.

Everything about a service lies in one partition number of every topic. Faust gives a worker the
same partition numbers of all topics that have equally many partitions. The state of a number is
made when it is assigned, filled from what is stored, and dropped when it is revoked.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

import faust
from faust.types import TP, Message

log = logging.getLogger("spillway.partition_states")
S = TypeVar("S")
_LOOK_S = 0.05


class PartitionStates(Generic[S]):
    """States by partition number.

    `make` creates a state and `restore` fills new ones. Messages wait until `restore` is done.
    """

    def __init__(
        self,
        app: faust.App,
        make: Callable[[int], S],
        restore: Callable[[Mapping[int, S]], Awaitable[None]],
    ) -> None:
        self._app, self._make, self._restore = app, make, restore
        self._states: dict[int, S] = {}
        self._filling: asyncio.Task | None = None
        self._ready: dict[int, S] = {}

    def assigned(self, partitions: set[TP]) -> None:
        """Takes a new, complete assignment, and starts to fill its states."""
        self._stop()
        self._states = {number: self._make(number) for number in sorted({tp.partition for tp in partitions})}
        self._filling = asyncio.create_task(self._fill(self._states))

    def revoked(self) -> None:
        """Drops all states, because all partitions are assigned anew together."""
        self._stop()
        self._states = {}

    def _stop(self) -> None:
        self._ready = {}
        if self._filling:
            self._filling.cancel()
            self._filling = None

    async def _fill(self, states: dict[int, S]) -> None:
        try:
            await self._restore(states)
        except Exception:
            # Memory that differs from what is stored would make wrong rows. It is better to start
            # afresh.
            log.exception("partitions %s cannot be restored", sorted(states))
            await self._app.crash(RuntimeError("restoring failed"))
            return
        self._ready = states

    @property
    def ready(self) -> Mapping[int, S]:
        """States whose memory is complete, by partition number."""
        return self._ready

    def owns(self, message: Message, state: S | None) -> bool:
        """Whether this is still the state that the message belongs to."""
        return state is not None and self._ready.get(message.partition) is state

    async def of(self, message: Message) -> S | None:
        """Waits until the state of a message's partition is filled, and returns it.

        Returns None when the partition was given away meanwhile.
        """
        while message.generation_id == self._app.consumer_generation_id:
            state = self._ready.get(message.partition)
            if state is not None:
                return state
            await asyncio.sleep(_LOOK_S)
        return None


def follow(app: faust.App, assigned: Callable[[set[TP]], None], revoked: Callable[[set[TP]], None]) -> None:
    """Calls `assigned` and `revoked` when the partitions of the job change.

    At each rebalance Faust revokes everything and then assigns everything anew.
    """

    @app.on_partitions_assigned.connect
    async def _assigned(_: faust.App, partitions: set[TP], **__: object) -> None:
        assigned(partitions)

    @app.on_partitions_revoked.connect
    async def _revoked(_: faust.App, partitions: set[TP], **__: object) -> None:
        revoked(partitions)
