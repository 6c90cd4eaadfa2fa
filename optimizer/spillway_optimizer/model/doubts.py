"""How uncertain the predicted times of an application are. Pure.

The measure is the standard error of the mean time that the model predicts for a class in a cluster
at its load of the moment, relative to that time. It has two parts: the errors of the curve, which
are correlated, and the error of the capacity, which moves the utilisation. Of a queue near
saturation, any small error of the capacity moves the time by much. So above half of the capacity,
its error counts as it does there, which is the error itself. An error that is unknown counts as
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


def largest(
    telemetry: Telemetry,
    curves: Mapping[str, CurveRow],
    capacities: Mapping[tuple[str, str], CapacityRow],
    classes: Mapping[str, str],
    now: float,
    max_age_s: float,
) -> Doubt:
    """Returns the least certain prediction of these classes, or NO_DOUBT.

    `capacities`: the measured ones by (service, cluster). Classes with little of their service's
    load do not count. `max_age_s`: of boards.
    """
    found = _each(telemetry, curves, capacities, classes, now, max_age_s)
    return max(found, key=lambda doubt: doubt.error, default=NO_DOUBT)


def _each(
    telemetry: Telemetry,
    curves: Mapping[str, CurveRow],
    capacities: Mapping[tuple[str, str], CapacityRow],
    classes: Mapping[str, str],
    now: float,
    max_age_s: float,
) -> Iterator[Doubt]:
    for cluster, board in sorted(telemetry.load.items()):
        fresh = {k: e.rps for k, e in board.items() if k in classes and now - e.at <= max_age_s}
        load: dict[str, float] = {}  # by service, in requests of the baseline class
        for class_id, rps in fresh.items():
            weight = curves[class_id].norm_weight if class_id in curves else 1.0
            load[classes[class_id]] = load.get(classes[class_id], 0.0) + weight * rps
        for class_id, rps in sorted(fresh.items()):
            service, row = classes[class_id], curves.get(class_id)
            if row is None or row.norm_weight * rps <= SMALL_SHARE * load[service]:
                continue
            capacity = capacities.get((service, cluster))
            used = load[service] / capacity.capacity_rps if capacity else row.u_max
            mean_ms, error = _predicted(row, used, capacity.error or 0.0 if capacity else 0.0)
            if mean_ms > _LEAST_MS:
                text = f"{class_id!r} in {cluster!r}: {mean_ms:.1f} ms at {used:.0%} of its capacity"
                yield Doubt(error, f"{text}, with a standard error of {error:.0%}")


def _predicted(row: CurveRow, used: float, capacity_error: float) -> tuple[float, float]:
    """Returns the mean time at a utilisation in ms, and its relative standard error."""
    used = min(used, _HIGHEST_UTILISATION)
    longer = 1 / (1 - used)
    mean_ms = max(row.a_ms * longer + row.b_ms, _LEAST_MS)
    variance = (min(used * longer, 1.0) * capacity_error) ** 2
    if row.a_se_ms is not None and row.b_se_ms is not None:
        a_ms, b_ms = row.a_se_ms * longer, row.b_se_ms
        covariance = (row.ab_correlation or 0.0) * a_ms * b_ms
        variance += max(a_ms**2 + b_ms**2 + 2 * covariance, 0.0) / mean_ms**2
    return mean_ms, math.sqrt(variance)
