"""A mesh in memory, whose clock is stepped: a publisher that puts proposals in force at once.

It completes, refuses and stamps proposals as the publisher does (spillway_contracts.bases). The
publisher's own guardrails are not here. The optimizer keeps to the same file, except in PAPA's
steps.
"""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from spillway.v1.ruleset_pb2 import Ruleset
from spillway_contracts import bases, slices

from spillway_optimizer.inputs.in_force import InForce, in_force_of
from spillway_optimizer.inputs.telemetry import Telemetry

_T = TypeVar("_T")
_SECOND = 1_000_000_000


class _Until:
    """Awaiting it suspends the coroutine, and tells who drives it until when."""

    def __init__(self, at: float):
        self._at = at

    def __await__(self) -> Generator[float, None, None]:
        yield self._at


class MemoryMesh:
    """Implements solving/mesh.py and papa/mesh.py.

    `at`: Unix seconds. `read`: the newest telemetry. `rows`: the rows of history by table, and
    `refused`: what the publisher would refuse, both since `advance`.
    """

    fencing_token = 1

    def __init__(self, clusters: tuple[str, ...]):
        self._clusters = clusters
        self.version, self.rulesets = 0, dict[str, Ruleset]()
        self._checkpoint: str | None = None
        self.advance(0.0, None)

    def advance(self, at: float, read: Telemetry | None) -> None:
        """Sets the clock, and what is observed now."""
        self.at, self.read = at, read
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.refused: list[str] = []

    def now(self) -> float:
        return self.at

    def elapsed(self) -> float:
        return self.at

    def held(self) -> bool:
        return True

    async def hold(self) -> bool:
        return True

    async def pause(self, seconds: float) -> bool:
        await _Until(self.at + seconds)
        return False

    async def beside(self, work: Callable[[], _T]) -> _T:
        return work()

    async def telemetry(self) -> Telemetry | None:
        return self.read

    async def in_force(self) -> InForce | None:
        return in_force_of(self.rulesets)

    async def publish(self, proposal: Ruleset) -> None:
        now_ns = round(self.at * _SECOND)
        refused = bases.partial_problems(proposal, self.rulesets)
        refused += bases.conflicts(proposal, self.rulesets, now_ns)
        if refused:
            self.refused += refused
            return
        whole = Ruleset()
        whole.CopyFrom(bases.completed(proposal, self.rulesets))
        self.version += 1
        bases.stamp(whole, self.rulesets, self.version)
        self.rulesets = slices.cut(whole, self._clusters, self.version)

    def add(self, table: str, row: dict[str, Any]) -> None:
        self.rows.setdefault(table, []).append(row)

    async def load(self) -> str | None:
        return self._checkpoint

    async def save(self, checkpoint: str) -> None:
        self._checkpoint = checkpoint
