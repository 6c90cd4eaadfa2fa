"""How uncertain the predicted times of an application are. Pure.

The measure is the standard error of the mean time that the model predicts for a class in a cluster,
relative to that time. It has two parts: the errors of the curve, which are correlated, and the
error of the capacity, which moves the utilisation. It is taken at the load of the moment, or at the
highest utilisation that the curve was fitted to if that is higher. A policy that moves load away
therefore does not seem to know more at once.

Near saturation, any small error of a capacity moves the time by much. Such a capacity may be known
well, so there it lengthens the wait by its own share at most. An error that is unknown counts as
none.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from spillway_optimizer.inputs.telemetry import CapacityRow, CurveRow, Telemetry
from spillway_optimizer.model.curves import SMALL_SHARE

_HIGHEST_UTILISATION = 0.95
_LEAST_MS = 0.1  # times below this are not told apart from none


@dataclass(frozen=True)
class Doubt:
    """The least certain prediction: its standard error relative to itself, and in words."""

    error: float = 0.0
    text: str = ""


NO_DOUBT = Doubt()


@dataclass(frozen=True)
class Evidence:
    """What is known of the curves and capacities of an application.

    `capacity_rps`: of live pods, by (service, cluster). `measured`: the rows that they follow from,
    where they were measured.
    """

    curves: Mapping[str, CurveRow]
    capacity_rps: Mapping[tuple[str, str], float]
    measured: Mapping[tuple[str, str], CapacityRow]


def largest(
    telemetry: Telemetry, evidence: Evidence, classes: Mapping[str, str], now: float, max_age_s: float
) -> Doubt:
    """Returns the least certain prediction of these classes, or NO_DOUBT.

    `classes`: class id -> service. Those with little of their service's load do not count.
    `max_age_s`: of boards.
    """
    load: dict[tuple[str, str], float] = {}  # by (class, cluster), in requests of the baseline class
    for cluster, board in telemetry.load.items():
        for class_id, entry in board.items():
            if class_id in classes and class_id in evidence.curves and now - entry.at <= max_age_s:
                load[class_id, cluster] = evidence.curves[class_id].norm_weight * entry.rps
    return max(_each(load, evidence, classes), key=lambda doubt: doubt.error, default=NO_DOUBT)


def _each(
    load: Mapping[tuple[str, str], float], evidence: Evidence, classes: Mapping[str, str]
) -> Iterator[Doubt]:
    of_service: dict[str, float] = {}
    at_place: dict[tuple[str, str], float] = {}
    of_class: dict[str, float] = {}
    for (class_id, cluster), rps in load.items():
        service = classes[class_id]
        of_service[service] = of_service.get(service, 0.0) + rps
        at_place[service, cluster] = at_place.get((service, cluster), 0.0) + rps
        of_class[class_id] = of_class.get(class_id, 0.0) + rps
    for class_id, cluster in sorted(load):
        place, row = (classes[class_id], cluster), evidence.curves[class_id]
        if of_class[class_id] <= SMALL_SHARE * of_service[place[0]]:
            continue
        used, error = row.u_max, 0.0
        if place in evidence.measured and evidence.capacity_rps.get(place, 0.0) > 0:
            used = max(used, at_place[place] / evidence.capacity_rps[place])
            error = evidence.measured[place].error or 0.0
        used = min(used, _HIGHEST_UTILISATION)
        mean_ms, error = _predicted(row, used, error)
        text = f"{class_id!r} in {cluster!r}: {mean_ms:.1f} ms at a utilisation of {used:.0%}"
        yield Doubt(error, f"{text}, with a standard error of {error:.0%}")


def _predicted(row: CurveRow, used: float, capacity_error: float) -> tuple[float, float]:
    """Returns the mean time at a utilisation in ms, and its relative standard error."""
    longer = 1 / (1 - used)
    mean_ms = max(row.a_ms * longer + row.b_ms, _LEAST_MS)
    moved_ms = row.a_ms * longer * min(used * longer, 1.0) * capacity_error
    variance = moved_ms**2
    if row.a_se_ms is not None and row.b_se_ms is not None and row.ab_correlation is not None:
        a_ms, b_ms = row.a_se_ms * longer, row.b_se_ms
        variance += max(a_ms**2 + b_ms**2 + 2 * row.ab_correlation * a_ms * b_ms, 0.0)
    return mean_ms, math.sqrt(variance) / mean_ms
