"""The JSON values of the Redis hashes, one frozen class each. Times are Unix seconds."""

import json
import math
from dataclasses import Field, asdict, dataclass, fields
from typing import Any, Self

from spillway_contracts import ContractError


@dataclass(frozen=True)
class _Entry:
    at: float

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Keys that this version does not know are passed over: the next one may add some. Raises ContractError when
        keys are missing, a value is not what its field takes, or it is no JSON object."""
        try:
            found = json.loads(text)
            return cls(**{field.name: _value(cls, field, found[field.name]) for field in fields(cls)})
        except KeyError as error:
            raise ContractError(f"{cls.__name__}: missing {error}; got {text[:200]!r}") from error
        except (TypeError, ValueError) as error:
            raise ContractError(f"{cls.__name__}: {error}; got {text[:200]!r}") from error


def _value(kind: type, field: Field, value: Any) -> Any:
    """The value, if its field takes it. json.loads also accepts NaN, Infinity, and text where a number belongs. No rate,
    share, duration, count or time is negative."""
    if value is None and field.type == float | None:
        return value
    if field.type is str:
        if not isinstance(value, str):
            raise ContractError(f"{kind.__name__}.{field.name}: {json.dumps(value)[:100]}; must be a text")
        return value
    try:
        sound = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        sound = sound and value >= 0
    except OverflowError:  # an integer that no float can hold
        sound = False
    if not sound:
        said = (
            f"{kind.__name__}.{field.name}: {json.dumps(value)[:100]}; must be a finite number of at least 0"
        )
        raise ContractError(said + (" or null" if field.type == float | None else ""))
    return value


@dataclass(frozen=True)
class LoadBoardEntry(_Entry):
    """One class in one cluster over the last few seconds."""

    rps: float  # arrivals, adjusted for sampling
    failed_share: float
    duration_ms: float  # mean, of calls that did not fail
    exclusive_ms: float  # mean, of calls that did not fail
    in_flight: float  # of the whole service, mean at arrival
    cpu: float | None  # share of the service's CPU limit; None: not reported


@dataclass(frozen=True)
class DemandEntry(_Entry):
    """One entry class in the cluster that users reach it in."""

    rps: float
    failed_share: float
    duration_ms: float  # end-to-end mean, as the entry's proxy sees it


@dataclass(frozen=True)
class NetworkEntry(_Entry):
    """Round-trip network time of one ordered pair of clusters."""

    mean_ms: float
    samples: int


@dataclass(frozen=True)
class UnknownEntry(_Entry):
    """What the boards know now of a service in a cluster, or of the whole cluster: up to which time (0: never), and why
    not up to now. Without a reason it is known: no entry on the boards then means no requests. With one, entries on the
    load and demand boards are the last known values. A service that has neither a field nor an entry is unknown."""

    reason: str
