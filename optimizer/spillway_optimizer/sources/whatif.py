"""What-ifs: changes telemetry, topology and problem, in the same way for every source. Pure."""

from dataclasses import dataclass, replace

from spillway.v1.topology_pb2 import Topology
from spillway_contracts import traffic_class
from spillway_contracts.hot_state import DemandEntry

from spillway_optimizer.inputs.placements import placements
from spillway_optimizer.inputs.telemetry import CapacityRow, Telemetry
from spillway_optimizer.inputs.unknown import NOTHING
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.sources.errors import InputError, unknown
from spillway_optimizer.sources.source_data import SourceData


@dataclass(frozen=True)
class WhatIf:
    """The changes to make. Nothing is changed by default.

    `demand` sets the offered requests directly, and `scale` does not apply to it.
    """

    # cluster, class (None: every class), rps
    demand: tuple[tuple[str, str | None, float], ...] = ()
    scale: tuple[tuple[str | None, float], ...] = ()  # cluster (None: all), factor
    capacity: tuple[tuple[str, str | None, float], ...] = ()  # service, cluster (None: all), rps
    without: tuple[tuple[str, str], ...] = ()  # service, cluster
    drain: tuple[str, ...] = ()


def apply(data: SourceData, what_if: WhatIf) -> SourceData:
    """Returns the data with changed telemetry and topology.

    Raises InputError with every option that is impossible.
    """
    if problems := _problems(data, what_if):
        raise InputError("\n".join(problems))
    demand, rates = data.telemetry.demand, None
    if what_if.demand or what_if.scale:
        wanted = _demanded(data, what_if)
        # Boards keep the measured rates, so that they are judged as measured. Where nothing was
        # measured, the rate is 0.
        demand = {
            cluster: {k: demand.get(cluster, {}).get(k) or replace(e, rps=0.0) for k, e in board.items()}
            for cluster, board in wanted.items()
        }
        rates = {(cluster, k): entry.rps for cluster, board in wanted.items() for k, entry in board.items()}
    telemetry = replace(
        data.telemetry,
        demand=demand,
        capacities=_capacities(data, what_if),
        placement=_placed(data.telemetry, what_if),
        left={**data.telemetry.left, **dict.fromkeys(what_if.without, data.now)},
    )
    return replace(data, telemetry=telemetry, topology=_declared(data.topology, what_if), demand_rps=rates)


def apply_to_problem(problem: Problem, what_if: WhatIf) -> Problem:
    """Returns the problem with the drained clusters added."""
    if not what_if.drain:
        return problem
    constraints = problem.constraints
    drained = constraints.drained | frozenset(what_if.drain)
    return replace(problem, constraints=replace(constraints, drained=drained))


def _problems(data: SourceData, what_if: WhatIf) -> list[str]:
    clusters = [cluster.name for cluster in data.topology.clusters]
    entries = {class_id for board in data.telemetry.demand.values() for class_id in board}
    declared = {service.name: {p.cluster for p in service.placements} for service in data.topology.services}
    found = []
    named = [("--demand", cluster) for cluster, _, _ in what_if.demand]
    named += [("--scale", cluster) for cluster, _ in what_if.scale if cluster]
    named += [("--capacity", cluster) for _, cluster, _ in what_if.capacity if cluster]
    named += [("--without", cluster) for _, cluster in what_if.without]
    named += [("--drain", cluster) for cluster in what_if.drain]
    found += [unknown(f"{key}: cluster", name, clusters) for key, name in named if name not in clusters]
    for cluster, class_id, rps in what_if.demand:
        if class_id is not None and class_id not in entries:
            found.append(unknown("--demand: entry class", class_id, entries))
        elif cluster in clusters and rps > 0:
            found += _entries_missing(data, what_if, cluster, [class_id] if class_id else sorted(entries))
    services = {key.split(" ", 1)[0] for board in data.telemetry.load.values() for key in board} | set(
        declared
    )
    found += [
        unknown("--capacity: service", s, services) for s, _, _ in what_if.capacity if s not in services
    ]
    for service, cluster in what_if.without:
        placed = _where(data, service)
        if service not in services:
            found.append(unknown("--without: service", service, services))
        elif cluster in clusters and cluster not in placed:
            found.append(
                f"--without: {service!r} is not in {cluster!r}; it is in {', '.join(sorted(placed)) or 'none'}"
            )
    return found + _users_left(data, what_if)


def _where(data: SourceData, service: str) -> set[str]:
    """Returns the clusters that run a service."""
    placed = placements(data.telemetry, data.topology, set(), data.now, NOTHING)
    return {cluster for name, cluster in placed.value if name == service}


def _entries_missing(data: SourceData, what_if: WhatIf, cluster: str, classes: list[str]) -> list[str]:
    """Reports demand in clusters where the entry service does not run.

    Entries are not routed, so demand of a class needs its service in the cluster where it enters.
    """
    missing = {
        service
        for service in (traffic_class.parse(class_id).service for class_id in classes)
        if cluster not in _where(data, service)
        and not any(k.startswith(service + " ") for k in data.telemetry.demand.get(cluster, {}))
    }
    return [
        f"--demand: {cluster}: {service!r} is not in {cluster!r}; it is in {', '.join(sorted(_where(data, service)))}"
        for service in sorted(missing)
    ]


def _users_left(data: SourceData, what_if: WhatIf) -> list[str]:
    """Reports --without for an entry service in a cluster where users still enter."""
    demand = _demanded(data, what_if)
    return [
        f"--without: users enter at {service!r} in {cluster!r} ({rps:.1f} req/s) and are served where they enter; "
        f"add --demand {cluster}=0, and where they go instead"
        for service, cluster in what_if.without
        if (
            rps := sum(
                e.rps for k, e in demand.get(cluster, {}).items() if traffic_class.parse(k).service == service
            )
        )
        > 0
    ]


def _demanded(data: SourceData, what_if: WhatIf) -> dict[str, dict[str, DemandEntry]]:
    boards = {cluster: dict(board) for cluster, board in data.telemetry.demand.items()}
    for cluster, factor in what_if.scale:
        for name, board in boards.items():
            if cluster in (None, name):
                boards[name] = {k: replace(e, rps=e.rps * factor) for k, e in board.items()}
    for cluster, class_id, rps in what_if.demand:
        boards[cluster] = _set(data, boards.get(cluster, {}), class_id, rps)
    return boards


def _set(
    data: SourceData, board: dict[str, DemandEntry], class_id: str | None, rps: float
) -> dict[str, DemandEntry]:
    """Sets the rate of one class, or the total rate of all classes.

    The total is split in the proportions seen in that cluster. If no requests enter there now, the
    proportions of all clusters together apply.
    """
    if class_id is not None:
        return {**board, class_id: _entry(data, board.get(class_id), rps)}
    total = sum(entry.rps for entry in board.values())
    mix = {k: entry.rps for k, entry in board.items()} if total > 0 else _mix(data)
    whole = sum(mix.values())
    return {k: _entry(data, board.get(k), rps * part / whole) for k, part in mix.items()} if whole else {}


def _mix(data: SourceData) -> dict[str, float]:
    """Returns the demand by class of all clusters together."""
    mix: dict[str, float] = {}
    for board in data.telemetry.demand.values():
        for class_id, entry in board.items():
            mix[class_id] = mix.get(class_id, 0.0) + entry.rps
    return mix


def _entry(data: SourceData, old: DemandEntry | None, rps: float) -> DemandEntry:
    # The value is declared, not measured, so it is as fresh as the newest measured one.
    at = max((e.at for board in data.telemetry.demand.values() for e in board.values()), default=data.now)
    return replace(old, at=at, rps=rps) if old else DemandEntry(at, rps, 0.0, 0.0)


def _capacities(data: SourceData, what_if: WhatIf) -> tuple[CapacityRow, ...]:
    rows = list(data.telemetry.capacities)
    for service, cluster, rps in what_if.capacity:
        where = [cluster] if cluster else [c.name for c in data.topology.clusters]
        rows = [row for row in rows if not (row.service == service and row.cluster in where)]
        rows += [CapacityRow(data.now, "", name, service, rps) for name in where]
    return tuple(rows)


def _placed(telemetry: Telemetry, what_if: WhatIf) -> dict[str, frozenset[str] | None]:
    return {
        cluster: services and services - {s for s, c in what_if.without if c == cluster}
        for cluster, services in telemetry.placement.items()
    }


def _declared(topology: Topology, what_if: WhatIf) -> Topology:
    result = Topology()
    result.CopyFrom(topology)
    for service in result.services:
        kept = [p for p in service.placements if (service.name, p.cluster) not in what_if.without]
        del service.placements[:]
        service.placements.extend(kept)
    return result
