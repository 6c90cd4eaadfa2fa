"""The requests offered at every entry, from the demand boards. Pure.

Under overload, services behind an entry see less than users want. Only entries count, therefore.
"""

from collections.abc import Iterator, Mapping

from spillway_optimizer.inputs.refusals import MESH, Found, refused
from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.inputs.unknown import Unknown

Demand = Mapping[tuple[str, str], float]  # (cluster, entry class) -> rps
_LEAST_RPS = 0.01


def demand(
    telemetry: Telemetry,
    clusters: tuple[str, ...],
    smoothed: Demand | None,
    now: float,
    max_age_s: float,
    unknown: Unknown,
) -> Found[Demand]:
    """Returns the requests per second that users offer.

    `smoothed` replaces the boards' own rates when the caller averages them. What is unknown keeps
    its last known demand. No demand at all, or nothing known of any cluster, refuses the whole
    mesh.
    """
    rates: dict[tuple[str, str], float] = {}
    for cluster in clusters:
        for class_id, rps in _offered(telemetry, cluster, smoothed, max_age_s, unknown):
            if rps >= _LEAST_RPS:
                rates[cluster, class_id] = rps
    notes = [
        f"demand: board of {cluster!r}, which the topology does not know, left out"
        for cluster in sorted(telemetry.demand.keys() - set(clusters))
    ]
    if clusters and unknown.clusters.keys() >= set(clusters):
        why = "; ".join(why for _, why in sorted(unknown.clusters.items()))
        return refused(rates, MESH, f"nothing is known now: {why}", notes=tuple(notes))
    if not rates:
        return refused(rates, MESH, "demand: no board has requests", notes=tuple(notes))
    return Found(rates, tuple(notes))


def _offered(
    telemetry: Telemetry, cluster: str, smoothed: Demand | None, max_age_s: float, unknown: Unknown
) -> Iterator[tuple[str, float]]:
    board = telemetry.demand.get(cluster, {})
    newest = max((entry.at for entry in board.values()), default=0.0)
    remembered = {class_id for c, class_id in smoothed or {} if c == cluster}
    for class_id in sorted(board.keys() | remembered):
        held = unknown.why(class_id.partition(" ")[0], cluster) is not None
        entry = board.get(class_id)
        if not held and (entry is None or newest - entry.at > max_age_s):
            continue
        if smoothed is not None:
            yield class_id, smoothed.get((cluster, class_id), entry.rps if entry and held else 0.0)
        elif entry is not None:  # always: without `smoothed`, all are on the board
            yield class_id, entry.rps
