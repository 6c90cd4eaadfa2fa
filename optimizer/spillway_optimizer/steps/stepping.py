"""The running optimizer and PAPA, with the clock of documents in place of their own.

What decides is that of the service: Schedule and Solving, and PAPA's Adjusting. Between two
documents nothing happens. A wait ends at the first document that is not before its end.
"""

import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from spillway.v1.topology_pb2 import Topology
from spillway_contracts.guardrails import GuardrailFile

from spillway_optimizer.inputs import guardrails
from spillway_optimizer.inputs.telemetry import Pulse, Telemetry, rates
from spillway_optimizer.papa.adjusting import Adjusting
from spillway_optimizer.papa.applications import Applications
from spillway_optimizer.papa.mesh import TURN_S
from spillway_optimizer.process.states import States
from spillway_optimizer.solvers.convex import Stop
from spillway_optimizer.solving.config import OptimizerTuning, PapaTuning
from spillway_optimizer.solving.routers import Routers
from spillway_optimizer.solving.schedule import Schedule
from spillway_optimizer.solving.solving import Solving
from spillway_optimizer.steps.answer import answer
from spillway_optimizer.steps.memory_mesh import MemoryMesh

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")


@dataclass
class _Turning:
    """The turns of one application's PAPA, which waits until this Unix second."""

    work: Coroutine[float, None, None]
    waits_until: float = 0.0


class Stepping:
    """One optimizer, and PAPA beside it unless `papa` is None, from document to document."""

    def __init__(
        self,
        topology: Topology,
        policy: str,
        file: GuardrailFile,
        optimizer: OptimizerTuning,
        papa: PapaTuning | None,
    ):
        self._file, self._states = file, States(_LOG)
        self._mesh = MemoryMesh(tuple(cluster.name for cluster in topology.clusters))
        self._routers = Routers(policy, Stop(optimizer.relative_gap, seconds=optimizer.solve_s))
        self._schedule = Schedule(optimizer)
        self._solving = Solving(optimizer, topology, self._mesh, file, self._states)
        self._papa_states = States(_LOG)
        self._papa: Applications | None = None
        self._turning: dict[str, _Turning] = {}
        if papa is not None:
            # Its own reader of the file: each reader sees a change once.
            self._papa_file = GuardrailFile(file.path, topology)
            self._papa = Applications(papa, topology, self._mesh, self._papa_file, self._papa_states)

    def step(self, at: float, telemetry: Telemetry) -> dict[str, Any]:
        """Acts on what is observed at Unix second `at`. Returns what is in force then, and why."""
        self._mesh.advance(at, telemetry)
        self._solve(at, telemetry)
        if self._papa is not None:
            guardrails.changed(self._papa_file, self._papa_states)
            self._follow(self._papa)
            for turning in self._turning.values():
                if at >= turning.waits_until:
                    turning.waits_until = turning.work.send(None)
        return answer(self._mesh)

    def close(self) -> None:
        for turning in self._turning.values():
            turning.work.close()

    def _follow(self, papa: Applications) -> None:
        ended, begun = _finished(papa.follow())
        for name in ended:
            self._turning.pop(name).work.close()
        for name, adjusting in begun.items():
            self._turning[name] = _Turning(self._adjust(adjusting))

    def _solve(self, at: float, telemetry: Telemetry) -> None:
        """Solves if the schedule says so. A solve takes no time."""
        pulse = Pulse(rates(telemetry.demand), telemetry.placement)
        changed = guardrails.changed(self._file, self._states)
        trigger = self._schedule.trigger(pulse, self._routers.name, changed, at)
        if trigger is not None:
            self._schedule.begun(at)
            _finished(self._solving.run(at, trigger, telemetry, self._routers))
            self._schedule.solved(trigger, self._solving.basis(telemetry, self._routers.name), at, at)

    async def _adjust(self, adjusting: Adjusting) -> None:
        while True:
            await adjusting.turn()
            await self._mesh.pause(TURN_S)


def _finished(work: Coroutine[Any, Any, _T]) -> _T:
    """Returns the result of a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as ended:
        found: _T = ended.value
        return found
    raise RuntimeError("this must not wait, because nobody ends the wait")
