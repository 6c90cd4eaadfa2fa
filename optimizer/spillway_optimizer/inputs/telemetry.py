"""Telemetry as typed values: rows of ClickHouse and boards of Redis.

A row that cannot be read does not fail the whole. It is left out and named in `malformed`.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Self, TypeVar

from spillway_contracts import ContractError, traffic_class
from spillway_contracts.hot_state import (
    DemandEntry,
    LoadBoardEntry,
    NetworkEntry,
    RouteEntry,
    UnknownEntry,
)

from spillway_optimizer.callers.averages import Outcomes
from spillway_optimizer.inputs.in_flight import Reported
from spillway_optimizer.inputs.outcomes import gathered
from spillway_optimizer.inputs.smoothing import Rates


@dataclass(frozen=True)
class _Row:
    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Builds the value from the columns that it knows; a column with a default may be missing.

        NULL and NaN are None where a column may be None. Raises ValueError that names the column,
        or ContractError for a class id that cannot be read.
        """
        values: dict[str, str | float | None] = {}
        for column in fields(cls):
            if column.name not in row:
                if column.default is not MISSING:
                    continue
                raise ValueError(f"{cls.__name__}.{column.name}: missing")
            value = row[column.name]
            if column.type == "str" or column.type is str:
                values[column.name] = str(value)
            elif column.type == float | None and _unknown(value):
                values[column.name] = None
            else:
                values[column.name] = _number(column.name, value)
        for key in ("class_id", "source_class"):
            if key in values:
                traffic_class.parse(str(values[key]))  # always a column of text
        return cls(**values)


@dataclass(frozen=True)
class CurveRow(_Row):
    """A row of the table curves. `class_id` is its column `class`.

    The standard deviation of one call at utilisation u is sd_a_ms / (1 - u) + sd_b_ms.
    `a_se_ms`, `b_se_ms`: standard errors, whose correlation is `ab_correlation`. None: unknown.
    """

    fitted_at: float  # Unix seconds
    input_window: str
    service: str
    class_id: str
    a_ms: float
    b_ms: float
    norm_weight: float
    u_max: float = 0.0  # highest utilisation that it was fitted to; 0: unknown
    sd_a_ms: float | None = None
    sd_b_ms: float | None = None
    ab_correlation: float | None = None
    a_se_ms: float | None = None
    b_se_ms: float | None = None


@dataclass(frozen=True)
class CapacityRow(_Row):
    """A row of the table capacities.

    `pods` is how many pods served while it was measured; 0: unknown. `evidence` is 'assumed' if it
    was not measured there. `settled` is the lowest count of pods in the last minutes; 0: unknown.
    `error`: standard error of the capacity, relative to it; None: unknown.
    """

    measured_at: float
    input_window: str
    cluster: str
    service: str
    capacity_rps: float
    pods: float = 0.0
    evidence: str = ""
    settled: float = 0.0
    error: float | None = None


@dataclass(frozen=True)
class RatioRow(_Row):
    """A row of the table call_ratios. `samples` is how many spans it rests on; 0: unknown.

    `wait_share` is the part of the calls that the caller waits for; None: unknown.
    """

    window_end: float
    input_window: str
    source_class: str
    class_id: str
    calls_per_request: float
    request_bytes: float
    response_bytes: float
    samples: float = 0.0
    wait_share: float | None = None


@dataclass(frozen=True)
class NetworkRow(_Row):
    """A row of the table network_times: what was measured between an ordered pair of clusters."""

    window_end: float
    source_cluster: str
    destination_cluster: str
    mean_ms: float
    samples: float


@dataclass(frozen=True)
class Telemetry:
    """Everything that was read at one time.

    - `load`, `demand`: boards by cluster and class id.
    - `placement`: by cluster, the services with connected Envoys; None where no heartbeat is known.
    - `pods`: pods that can serve, by (cluster, service); absent where unknown. They are connected
      Envoys, but no more than the pods that a Kubernetes API lists as ready, where relays know it.
    - `placed_last`: by cluster, the placement of the last heartbeat that was known.
    - `left`: by (service, cluster), when heartbeats ceased to list Envoys of a service that they
      had listed, in Unix seconds.
    - `served`: by (service, cluster), the newest time at which a load board had calls, in Unix
      seconds. The current boards need not be included.
    - `unknown`: by cluster and service (or names.VALUE_WHOLE_CLUSTER), what the boards do not know,
      as streams report it.
    - `streams_state`: streams have reported before what is known, so what they do not report is
      unknown.
    """

    curves: tuple[CurveRow, ...] = ()
    capacities: tuple[CapacityRow, ...] = ()
    call_ratios: tuple[RatioRow, ...] = ()
    load: Mapping[str, Mapping[str, LoadBoardEntry]] = field(default_factory=dict)
    demand: Mapping[str, Mapping[str, DemandEntry]] = field(default_factory=dict)
    network: Mapping[tuple[str, str], NetworkEntry] = field(default_factory=dict)
    placement: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    malformed: tuple[str, ...] = ()
    pods: Mapping[tuple[str, str], int] = field(default_factory=dict)
    placed_last: Mapping[str, frozenset[str]] = field(default_factory=dict)
    left: Mapping[tuple[str, str], float] = field(default_factory=dict)
    served: Mapping[tuple[str, str], float] = field(default_factory=dict)
    unknown: Mapping[str, Mapping[str, UnknownEntry]] = field(default_factory=dict)
    streams_state: bool = False
    network_rows: tuple[NetworkRow, ...] = ()  # the newest rows of each pair
    # By cluster, as its relays report it: for how many seconds they hold an expired ruleset, and
    # the version that they serve.
    hold_s: Mapping[str, float] = field(default_factory=dict)
    serving: Mapping[str, int] = field(default_factory=dict)
    outcomes: Outcomes = field(default_factory=dict)  # what callers saw over the last seconds
    outcomes_at: float | None = None  # Unix seconds of the newest of them; None: there are none
    in_flight: Reported = field(default_factory=dict)  # of these calls, as Envoys report them

    def calls_at(self) -> dict[str, dict[str, float]]:
        """Returns the newest time with calls: cluster -> service -> Unix seconds.

        These are the times of `served`, updated with the current load boards.
        """
        found: dict[str, dict[str, float]] = {}
        for (service, cluster), at in self.served.items():
            found.setdefault(cluster, {})[service] = at
        for cluster, board in self.load.items():
            services = found.setdefault(cluster, {})
            for class_id, entry in board.items():
                if entry.rps > 0:
                    service = class_id.partition(" ")[0]
                    services[service] = max(services.get(service, entry.at), entry.at)
        return found


_R = TypeVar("_R", bound=_Row)


def read_rows(kind: type[_R], rows: Iterable[Mapping[str, Any]]) -> tuple[tuple[_R, ...], tuple[str, ...]]:
    """Returns the rows that can be read, and a reason for each that cannot."""
    good, bad = [], []
    for row in rows:
        try:
            good.append(kind.of({"class_id": row.get("class"), **row} if "class" in row else row))
        except (ValueError, ContractError) as error:
            bad.append(f"{kind.__name__}: {error}")
    return tuple(good), tuple(bad)


def from_document(document: Mapping[str, Any]) -> Telemetry:
    """Reads telemetry from a document in the shape of contracts/golden/3_model.json.

    Its `placement` has, by cluster, services, or services with their numbers of pods. Raises
    ContractError for a wrong shape.
    """
    try:
        curves, bad1 = read_rows(CurveRow, document["curves"])
        capacities, bad2 = read_rows(CapacityRow, document["capacities"])
        ratios, bad3 = read_rows(RatioRow, document["call_ratios"])
        outcomes, outcomes_at = gathered(
            {
                ((c, source, class_id), destination): RouteEntry(**v)
                for c, board in document.get("outcomes", {}).items()
                for field_, v in board.items()
                for class_id, source, destination in [RouteEntry.route(field_)]
            }
        )
        return Telemetry(
            curves,
            capacities,
            ratios,
            outcomes=outcomes,
            outcomes_at=outcomes_at,
            load={
                c: {k: LoadBoardEntry(**v) for k, v in board.items()} for c, board in document["load"].items()
            },
            demand={
                c: {k: DemandEntry(**v) for k, v in board.items()} for c, board in document["demand"].items()
            },
            network={_pair(pair): NetworkEntry(**v) for pair, v in document.get("network", {}).items()},
            placement={
                c: None if v is None else frozenset(v) for c, v in document.get("placement", {}).items()
            },
            malformed=bad1 + bad2 + bad3,
            pods={
                (c, service): int(count)
                for c, services in document.get("placement", {}).items()
                if isinstance(services, Mapping)
                for service, count in services.items()
            },
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ContractError(
            f"model: {type(error).__name__} {error}; expected an object with curves, capacities, "
            "call_ratios, load, demand, network and optionally placement"
        ) from error


def _pair(text: str) -> tuple[str, str]:
    source, arrow, destination = text.partition(">")
    if not arrow:
        raise ContractError(f"network[{text!r}]: expected 'from>to'")
    return source, destination


def _unknown(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _number(key: str, value: Any) -> float:
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value).replace(tzinfo=UTC).timestamp()
        except ValueError as error:
            raise ValueError(f"{key}: {value!r} must be a number or a UTC time") from error
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{key}: {value!r} must be a finite number")
    return float(value)


@dataclass(frozen=True)
class Pulse:
    """What is polled between solves."""

    demand: Rates = field(default_factory=dict)
    # By cluster; None: its heartbeat has lapsed.
    placement: Mapping[str, frozenset[str] | None] = field(default_factory=dict)


def rates(demand: Mapping[str, Mapping[str, DemandEntry]]) -> Rates:
    """Returns the requests per second of demand boards, by (cluster, class)."""
    return {(cluster, k): entry.rps for cluster, board in demand.items() for k, entry in board.items()}
