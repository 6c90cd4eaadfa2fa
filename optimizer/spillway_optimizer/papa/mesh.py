"""The mesh as PAPA reads and changes it, with waiting, and a checkpoint that survives restarts."""

from typing import Protocol

from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.solving.mesh import Mesh

TURN_S = 1.0  # between two iterations


class Interrupted(Exception):
    """The condition of a wait or measurement no longer holds. The message says why."""


class Waiting(Mesh, Protocol):
    """The mesh as PAPA waits and measures in it."""

    def elapsed(self) -> float:
        """Returns the seconds of a clock that nobody sets."""

    async def hold(self) -> bool:
        """Takes or renews the lease. Returns whether it is held."""

    async def pause(self, seconds: float) -> bool:
        """Waits for `seconds` or until the process stops. Returns whether to stop."""

    async def telemetry(self) -> Telemetry | None:
        """Returns the telemetry. None while the model's rows were never read."""


class PapaMesh(Waiting, Protocol):
    """Implemented by servers (papa/live.py), and in memory (steps/memory_mesh.py)."""

    async def load(self) -> str | None:
        """Returns the checkpoint that was saved last, None without any."""

    async def save(self, checkpoint: str) -> None:
        """Replaces the checkpoint."""
