"""The mesh as the PAPA of one application sees it, and what all of them use together."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from spillway.v1.ruleset_pb2 import Ruleset

from spillway_optimizer.inputs.in_force import InForce
from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.papa.checkpoint import Checkpoint, joined
from spillway_optimizer.papa.mesh import Interrupted, PapaMesh
from spillway_optimizer.process.states import States

_FRESH_S = 0.4  # a reading that is not older serves all applications
_T = TypeVar("_T")


class Shared:
    """The mesh, its newest readings, and the one checkpoint that is stored.

    The checkpoint is about rules and classes, so it outlives applications that join or part.
    """

    def __init__(self, mesh: PapaMesh, states: States):
        self.mesh, self._states = mesh, states
        self._found: dict[str, tuple[float, Any]] = {}
        self._reading: dict[str, asyncio.Lock] = {}
        self._parts: dict[str, Checkpoint] = {}  # by application
        self._rest: Checkpoint | None = None  # of no application; None: not loaded yet
        self._storing = asyncio.Lock()  # else an older document could come last

    async def fresh(self, name: str, read: Callable[[], Awaitable[_T]]) -> _T:
        """Returns a reading of this name that is at most _FRESH_S old."""
        async with self._reading.setdefault(name, asyncio.Lock()):
            now, found = self.mesh.elapsed(), self._found.get(name)
            if found is None or not 0 <= now - found[0] < _FRESH_S:
                found = self._found[name] = now, await read()
            value: _T = found[1]
            return value

    async def publish(self, proposal: Ruleset) -> None:
        await self.mesh.publish(proposal)
        self._found.pop("in_force", None)

    async def taken(self, name: str, classes: frozenset[str]) -> Checkpoint:
        """Takes what is stored about these classes as the part of the application."""
        async with self._storing:
            if self._rest is None:
                self._rest = self._read(await self.mesh.load())
            self._parts[name], self._rest = self._rest.split(classes)
            return self._parts[name]

    def _read(self, text: str | None) -> Checkpoint:
        try:
            return Checkpoint.from_json(text)
        except ValueError as error:
            why = f"unreadable; starting without it: {error}"
            self._states.log("checkpoint", why, logging.WARNING, "malformed")
            return Checkpoint()

    def grown(self, classes: frozenset[str]) -> Checkpoint:
        """Takes what is stored about classes that have joined an application."""
        if self._rest is None:
            return Checkpoint()
        found, self._rest = self._rest.split(classes)
        return found

    async def save(self, name: str, part: Checkpoint) -> None:
        """Stores all parts. Raises Interrupted without the lease: another process may lead."""
        async with self._storing:
            if not self.mesh.held():
                raise Interrupted("the lease ran out")
            self._parts[name] = part
            rest = [] if self._rest is None else [self._rest]
            await self.mesh.save(joined([*rest, *self._parts.values()]).to_json())

    def returned(self, name: str) -> None:
        """Gives the application's part back, for those that have its classes now."""
        part = self._parts.pop(name, None)
        if part is not None and self._rest is not None:
            self._rest = joined([self._rest, part])

    def forget(self) -> None:
        """Drops all state, because another process may change what is stored."""
        self._found, self._parts, self._rest = {}, {}, None


@dataclass
class ApplicationMesh:
    """The rules of an application, and the boards of its classes (papa/mesh.py, Waiting)."""

    name: str
    classes: frozenset[str]
    shared: Shared

    @property
    def fencing_token(self) -> int:
        return self.shared.mesh.fencing_token

    def held(self) -> bool:
        return self.shared.mesh.held()

    def now(self) -> float:
        return self.shared.mesh.now()

    def elapsed(self) -> float:
        return self.shared.mesh.elapsed()

    async def hold(self) -> bool:
        """Returns whether the lease is held. Who runs the applications renews it."""
        return self.held()

    async def pause(self, seconds: float) -> bool:
        return await self.shared.mesh.pause(seconds)

    async def beside(self, work: Callable[[], _T]) -> _T:
        return await self.shared.mesh.beside(work)

    async def in_force(self) -> InForce | None:
        found = await self.shared.fresh("in_force", self.shared.mesh.in_force)
        if found is None:
            return None
        rules = {key: weights for key, weights in found.rules.items() if key.class_id in self.classes}
        return replace(found, rules=rules)

    async def telemetry(self) -> Telemetry | None:
        found = await self.shared.fresh("telemetry", self.shared.mesh.telemetry)
        if found is None:
            return None
        load = {c: {k: e for k, e in board.items() if k in self.classes} for c, board in found.load.items()}
        demand = {
            c: {k: e for k, e in board.items() if k in self.classes} for c, board in found.demand.items()
        }
        return replace(found, load=load, demand=demand)

    async def publish(self, proposal: Ruleset) -> None:
        await self.shared.publish(proposal)

    def add(self, table: str, row: dict[str, Any]) -> None:
        self.shared.mesh.add(table, row)

    async def load(self) -> Checkpoint:
        """Returns what is stored about its classes. Nobody else saves that from then on."""
        return await self.shared.taken(self.name, self.classes)

    async def save(self, checkpoint: Checkpoint) -> None:
        await self.shared.save(self.name, checkpoint)
