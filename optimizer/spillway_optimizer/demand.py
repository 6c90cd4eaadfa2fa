"""Demand boards -> the requests offered at every entry. Pure.

What services behind the entry saw under overload is less than was wanted, so only entries count.
"""

from collections.abc import Mapping

from spillway_optimizer.found import MESH, Found, refused
from spillway_optimizer.telemetry import Telemetry

Demand = Mapping[tuple[str, str], float]  # (cluster, entry class) -> rps
_LEAST_RPS = 0.01


def demand(
    telemetry: Telemetry, clusters: tuple[str, ...], smoothed: Demand | None, now: float, max_age_s: float
) -> Found[Demand]:
    """`smoothed` stands for the boards' own rates when the caller averages them."""
    rates: dict[tuple[str, str], float] = {}
    notes, stale = [], []
    for cluster, board in sorted(telemetry.demand.items()):
        newest = max((entry.at for entry in board.values()), default=None)
        if cluster not in clusters:
            notes.append(f"demand: board of {cluster!r}, which the topology does not know, left out")
        elif newest is not None:
            if now - newest > max_age_s:
                stale.append(
                    f"demand: board of {cluster!r} is {now - newest:.0f} s old; at most {max_age_s:g} s is allowed"
                )
            for class_id, entry in sorted(board.items()):
                rps = smoothed.get((cluster, class_id), 0.0) if smoothed is not None else entry.rps
                if newest - entry.at <= max_age_s and rps >= _LEAST_RPS:
                    rates[cluster, class_id] = rps
    if stale:
        return refused(rates, MESH, *stale, notes=tuple(notes))
    if not rates:
        return refused(rates, MESH, "demand: no board has requests", notes=tuple(notes))
    return Found(rates, tuple(notes))
