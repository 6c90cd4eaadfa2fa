"""Finds telemetry that contradicts itself, the topology or the clock. Pure.

No good decision can be made from such telemetry. Each finding names the table or board, the row,
its value and what is allowed. What cannot be true is a refusal. What is merely odd is a note,
because overload and failures make calls go missing.
"""

from collections.abc import Iterator, Mapping

from spillway.v1.topology_pb2 import Topology
from spillway_contracts import traffic_class

from spillway_optimizer.inputs.refusals import Found, Kind, Refusal, Scope
from spillway_optimizer.inputs.telemetry import RatioRow, Telemetry
from spillway_optimizer.inputs.unknown import CLOCK_AHEAD_S, NOTHING, Unknown

# The demand and load boards of one cluster and moment are made from the same spans. If they differ
# by this factor, one of them does not belong to that moment.
_BOARDS_APART, _LEAST_RPS = 10.0, 5.0
_MOST_CALLS_PER_REQUEST = 10_000.0


def contradictions(
    telemetry: Telemetry,
    topology: Topology,
    demand_rps: Mapping[tuple[str, str], float],
    now: float,
    max_age_s: float,
    unknown: Unknown = NOTHING,
) -> Found[None]:
    """Returns what cannot be true as refusals, and what is odd as notes.

    `demand_rps` by (cluster, entry class) is the demand that a problem would be built from. The
    demand and the boards of what is `unknown` contradict nothing. The scope of a refusal is the
    class, service or edge that it is about.
    """
    refusals = [
        *_ahead(telemetry, now),
        *_misplaced(telemetry, topology, demand_rps, unknown),
        *_ratios(telemetry),
    ]
    refusals += _apart(telemetry, now, max_age_s, unknown)
    return Found(None, tuple(_spread(telemetry)), tuple(refusals))


def _ahead(telemetry: Telemetry, now: float) -> Iterator[Refusal]:
    """Yields a refusal for each row that lies in the future.

    Either this clock or the writer's is wrong, and so is the age of the row. Boards that lie in the
    future are unknown instead (unknown.py).
    """
    times = [
        (Scope(Kind.CLASS, row.class_id), f"curves: row of {row.class_id!r}", row.fitted_at)
        for row in telemetry.curves
    ]
    times += [
        (
            Scope(Kind.SERVICE, row.service),
            f"capacities: row of {row.service!r} in {row.cluster!r}",
            row.measured_at,
        )
        for row in telemetry.capacities
    ]
    times += [(_edge(row), _name(row), row.window_end) for row in telemetry.call_ratios]
    for scope, what, at in times:
        if at - now > CLOCK_AHEAD_S:
            text = f"{what} is {at - now:.0f} s ahead of this clock; at most {CLOCK_AHEAD_S:g} s is allowed"
            yield Refusal(scope, text)


def _misplaced(
    telemetry: Telemetry, topology: Topology, demand_rps: Mapping[tuple[str, str], float], unknown: Unknown
) -> Iterator[Refusal]:
    """Yields a refusal for demand where neither a heartbeat nor the topology places the service.

    A heartbeat without any Envoy says nothing about the cluster's services: none of them
    subscribes.
    """
    declared = {(s.name, p.cluster) for s in topology.services for p in s.placements}
    for cluster, class_id in sorted(demand_rps):
        service, running = traffic_class.parse(class_id).service, telemetry.placement.get(cluster)
        if not running or unknown.why(service, cluster) is not None:
            continue
        if service not in running and (service, cluster) not in declared:
            yield Refusal(
                Scope(Kind.CLASS, class_id),
                f"demand: board of {cluster!r} has requests for {class_id!r}, but neither its heartbeat nor the "
                f"topology places {service!r} there",
            )


def _ratios(telemetry: Telemetry) -> Iterator[Refusal]:
    for row in telemetry.call_ratios:
        yield from (Refusal(_edge(row), f"{_name(row)}: {wrong}") for wrong in _wrong(row))


def _wrong(row: RatioRow) -> Iterator[str]:
    """Yields what is wrong with the values of one row."""
    window = _window(row)
    if window is not None and not window[0] <= window[1] <= row.window_end + CLOCK_AHEAD_S:
        yield (
            f"input_window {row.input_window} must start before it ends, and end before "
            f"window_end {row.window_end * 1000:.0f}"
        )
    if not 0 <= row.calls_per_request <= _MOST_CALLS_PER_REQUEST:
        yield f"calls_per_request {row.calls_per_request:g} must be 0 to {_MOST_CALLS_PER_REQUEST:g}"
    if row.request_bytes < 0 or row.response_bytes < 0:
        yield f"{row.request_bytes:g} and {row.response_bytes:g} bytes must be at least 0"


def _edge(row: RatioRow) -> Scope:
    return Scope(Kind.EDGE, f"{row.source_class} -> {row.class_id}")


def _name(row: RatioRow) -> str:
    return f"call_ratios: {row.source_class!r} -> {row.class_id!r}"


def _apart(telemetry: Telemetry, now: float, max_age_s: float, unknown: Unknown) -> Iterator[Refusal]:
    """Yields a refusal for each entry class whose load is far below its demand.

    The arrivals of an entry class are its users' requests and more. The load board cannot have far
    fewer of them.
    """
    for cluster, board in sorted(telemetry.demand.items()):
        for class_id, entry in sorted(board.items()):
            load = telemetry.load.get(cluster, {}).get(class_id)
            if load is None:
                continue
            fresh = max(now - load.at, now - entry.at) <= max_age_s
            fresh = fresh and unknown.why(class_id.partition(" ")[0], cluster) is None
            if fresh and entry.rps > _LEAST_RPS and entry.rps > _BOARDS_APART * load.rps:
                yield Refusal(
                    Scope(Kind.CLASS, class_id),
                    f"demand and load: {class_id!r} in {cluster!r} is offered {entry.rps:.0f} req/s, of which the "
                    f"load board has {load.rps:.1f}; at most {_BOARDS_APART:g} times as many are allowed",
                )


def _spread(telemetry: Telemetry) -> Iterator[str]:
    """Yields a note for each caller whose edges have windows that do not overlap.

    The ratios of such edges describe different traffic.
    """
    by_source: dict[str, list[tuple[float, float, str]]] = {}
    for row in telemetry.call_ratios:
        window = _window(row)
        if window is not None and window[0] <= window[1]:
            by_source.setdefault(row.source_class, []).append((*window, row.class_id))
    for source, windows in sorted(by_source.items()):
        latest_start = max(start for start, _, _ in windows)
        old = sorted(class_id for _, end, class_id in windows if end < latest_start)
        if old:
            yield (
                f"call_ratios: of {source!r}, calls to {', '.join(old)} were last seen before the window of its "
                "others began"
            )


def _window(row: RatioRow) -> tuple[float, float] | None:
    """Start and end of the row's window, Unix seconds; None if it is not written as start-end."""
    start, _, end = row.input_window.partition("-")
    return (int(start) / 1000, int(end) / 1000) if start.isdigit() and end.isdigit() else None
