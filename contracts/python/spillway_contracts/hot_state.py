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
        """Parses a value.

        Unknown keys are ignored, because the next version may add some. Raises ContractError when
        the text is no JSON object, a key is missing, or a value does not fit its field.
        """
        try:
            found = json.loads(text)
            return cls(**{field.name: _value(cls, field, found[field.name]) for field in fields(cls)})
        except KeyError as error:
            raise ContractError(f"{cls.__name__}: missing {error}; got {text[:200]!r}") from error
        except (TypeError, ValueError) as error:
            raise ContractError(f"{cls.__name__}: {error}; got {text[:200]!r}") from error


def _value(kind: type, field: Field[Any], value: Any) -> Any:
    """Returns the value if it fits the field, else raises ContractError.

    json.loads also accepts NaN, Infinity, and text in place of a number. No rate, share, duration,
    count or time is negative.
    """
    if value is None and field.type == float | None:
        return value
    if field.type is str:
        if not isinstance(value, str):
            raise ContractError(f"{kind.__name__}.{field.name}: {json.dumps(value)[:100]}; must be a text")
        return value
    try:
        sound = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        sound = sound and value >= 0
    except OverflowError:  # an integer too large for a float
        sound = False
    if not sound:
        message = (
            f"{kind.__name__}.{field.name}: {json.dumps(value)[:100]}; must be a finite number of at least 0"
        )
        raise ContractError(message + (" or null" if field.type == float | None else ""))
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
    """One entry class in the cluster in which users reach it."""

    rps: float
    failed_share: float
    duration_ms: float  # end-to-end mean, as the entry's proxy sees it


@dataclass(frozen=True)
class NetworkEntry(_Entry):
    """Round-trip network time of one ordered pair of clusters."""

    mean_ms: float
    samples: int


@dataclass(frozen=True)
class RouteEntry(_Entry):
    """Calls of one class from one service of a cluster to one destination, as the callers saw them.

    Over the 10 seconds before `at`. Quantiles are of calls that did not fail.
    """

    rps: float  # adjusted for sampling
    success_rate: float
    p50_ms: float | None  # None: no call succeeded
    p99_ms: float | None
    in_flight: float  # rate times mean duration

    @staticmethod
    def field(class_id: str, source_service: str, destination_cluster: str) -> str:
        """Returns the field of its hash, which begins with the callee, as those of all boards."""
        return "\t".join((class_id, source_service, destination_cluster))

    @staticmethod
    def route(field: str) -> tuple[str, str, str]:
        """Returns class id, source service and destination. Raises ContractError."""
        parts = field.split("\t")
        if len(parts) != 3 or not all(parts):
            raise ContractError(f"RouteEntry: field {field[:200]!r}; must be class, source, destination")
        return parts[0], parts[1], parts[2]


@dataclass(frozen=True)
class UnknownEntry(_Entry):
    """Until when (0: never) the boards know a service in a cluster, or the whole cluster.

    `reason` says why they do not know it now. Without a reason it is known, and no entry on the
    boards means no requests. With a reason, entries on the load and demand boards are the last
    known values. A service that has neither a field nor an entry is unknown.
    """

    reason: str
