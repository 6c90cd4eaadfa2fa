"""Stands in for curves and capacities that are missing, for policies that use neither. Pure.

Routes of such a problem can be decided. Its latencies cannot be predicted, so `classes` names what
is unknown.
"""

from collections.abc import Mapping

from spillway_optimizer.inputs.refusals import Found
from spillway_optimizer.model.capacities import Capacities
from spillway_optimizer.problem.problem import Curve

_NO_TIME = Curve(0.0, 0.0)
_UNKNOWN = "unknown; the policy does without"


def curves(found: Found[Mapping[str, Curve]], classes: Mapping[str, str]) -> Found[Mapping[str, Curve]]:
    """Returns the curves with one for every class, and notes in place of refusals."""
    notes = tuple(f"{refusal.text}; {_UNKNOWN}" for refusal in found.refusals)
    return Found({**dict.fromkeys(classes, _NO_TIME), **found.value}, (*found.notes, *notes))


def capacities(
    found: Capacities, needed: list[tuple[str, str]], ample_rps: float
) -> Found[Mapping[tuple[str, str], float]]:
    """Returns a capacity for all that are `needed`, and notes in place of refusals."""
    known = {**dict.fromkeys(needed, ample_rps), **found.capacity_rps}
    return Found(known, (*found.notes, *(f"{text}; {_UNKNOWN}" for text in found.refusals)))


def classes(
    classes: Mapping[str, str],
    fitted: Mapping[str, Curve],
    capacity_rps: Mapping[tuple[str, str], float],
    ample_rps: float,
) -> frozenset[str]:
    """Returns the classes whose curve, or whose service's capacity, only stands in for one."""
    without = {service for (service, _), rps in capacity_rps.items() if rps == ample_rps}
    return frozenset(k for k, service in classes.items() if fitted[k] == _NO_TIME or service in without)
