"""What a stage of the model builder returns: its value, and what it could not model. Pure.

Everything that could not be modelled has a scope. A refusal means that an application, a cluster or
the whole mesh has no problem to solve. A hold has a smaller effect: the routes that it names keep
their last rules, and everything else goes on.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
RouteId = tuple[str, str]  # source service, class that is called


class Kind(Enum):
    """Kinds of scope."""

    MESH = "mesh"
    CLUSTER = "cluster"
    APPLICATION = "application"
    SERVICE = "service"
    CLASS = "class"
    EDGE = "edge"


@dataclass(frozen=True)
class Scope:
    """The part of the mesh that a refusal or a hold concerns.

    `name` is that of the cluster, application, service or class. The name of an edge is both
    classes, joined by ' -> '. The mesh has the name ''.
    """

    kind: Kind
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind.value} {self.name}" if self.name else self.kind.value


MESH = Scope(Kind.MESH)


@dataclass(frozen=True)
class Refusal:
    """Why nothing in the scope can be modelled.

    `text` names the table or board, its value and what is allowed.
    """

    scope: Scope
    text: str
    no_model: bool = False  # a curve or a capacity is missing, which some policies do without


@dataclass(frozen=True)
class Hold:
    """Routes that keep their rules in force, or stay local-first if they have none, and why."""

    scope: Scope
    text: str
    routes: frozenset[RouteId]

    def __str__(self) -> str:
        return f"held: {self.scope}: {self.text}"


@dataclass(frozen=True)
class Found(Generic[T_co]):
    """The outcome of one stage."""

    value: T_co
    notes: tuple[str, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    holds: tuple[Hold, ...] = ()


@dataclass(frozen=True)
class Remarks:
    """Notes, refusals and holds of several stages, in the order of the stages."""

    notes: tuple[str, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    holds: tuple[Hold, ...] = ()

    @classmethod
    def of(cls, stages: Iterable[Found[object]]) -> "Remarks":
        """Collects the remarks of the stages."""
        stages = list(stages)
        return cls(
            tuple(note for stage in stages for note in stage.notes),
            tuple(refusal for stage in stages for refusal in stage.refusals),
            tuple(hold for stage in stages for hold in stage.holds),
        )


def refused(value: T, scope: Scope, *texts: str, notes: tuple[str, ...] = ()) -> Found[T]:
    """Returns `value` with one refusal per text."""
    return Found(value, notes, tuple(Refusal(scope, text) for text in texts))
