"""The mesh as a proposer reads and changes it. The running service has servers behind it (live.py).

In the command `steps`, it is in memory and its clock is stepped (steps/memory_mesh.py).
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from spillway.v1.ruleset_pb2 import Ruleset

from spillway_optimizer.inputs.in_force import InForce

_T = TypeVar("_T")


class Away(Exception):
    """A server does not answer. The message is its name."""


class Mesh(Protocol):
    """The lease, the clock, the rules in force, and where proposals and rows go."""

    @property
    def fencing_token(self) -> int:
        """The token of the lease that is held now, or was held last. 0: none."""

    def held(self) -> bool:
        """Returns whether the lease is held now."""

    def now(self) -> float:
        """Returns the time in Unix seconds."""

    async def beside(self, work: Callable[[], _T]) -> _T:
        """Returns what `work` returns, and keeps the lease meanwhile."""

    async def in_force(self) -> InForce | None:
        """Returns the rulesets in force. None if there are none."""

    async def publish(self, proposal: Ruleset) -> None:
        """Sends a proposal to the publisher. Raises Away, or UnverifiedError if it is too large."""

    def add(self, table: str, row: dict[str, Any]) -> None:
        """Stores a row of history."""
