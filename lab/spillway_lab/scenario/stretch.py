"""`time_scale`: every duration of a scenario multiplied, so that a small machine can run it.

With `time_scale: 2`, service times, timeouts, round trips and the time between two requests are
twice as long. Utilisation, waiting relative to service time, and so the ratios between policies
stay the same, and the machine has half the requests per second. Results are divided by the factor
again: they are in scenario time.

Collectors and streams jobs act 1/k times as often too (stack.periods). Three things do not stretch.
What proxies and the machine add to a request counts 1/k in scenario time. Optimizer, PAPA and the
windows of boards keep their seconds, so reaction times are measured with a scale of 1. And a scale
is no cure for a machine that is too busy.
"""

from typing import Any, TypeVar

from spillway_lab.scenario.application import Model

_M = TypeVar("_M", bound=Model)


def stretched(given: _M, k: float) -> _M:
    """Returns a scenario, or a part of one, in which time passes k times as slowly.

    The unit at the end of a field's name decides: `ms` and `seconds` are multiplied, `rps` and
    `usd_per_ms_...` are divided, and everything else stays. The number of requests and the worth of
    a request's latency in money therefore stay too.
    """
    changed = {name: _field(name, getattr(given, name), k) for name in type(given).model_fields}
    return given.model_copy(update=changed)


def _field(name: str, value: Any, k: float) -> Any:
    unit = name.rpartition("_")[2]
    if unit in ("ms", "seconds"):
        return _scaled(value, k)
    if unit == "rps" or name.startswith("usd_per_ms"):
        return _scaled(value, 1 / k)
    return _within(value, k)


def _scaled(value: Any, factor: float) -> Any:
    """Multiplies a number, or all numbers of a matrix. None stays None."""
    if isinstance(value, dict):
        return {key: _scaled(one, factor) for key, one in value.items()}
    return value if value is None else value * factor


def _within(value: Any, k: float) -> Any:
    if isinstance(value, Model):
        return stretched(value, k)
    if isinstance(value, list | tuple):
        return type(value)(_within(one, k) for one in value)
    if isinstance(value, dict):
        return {key: _within(one, k) for key, one in value.items()}
    return value
