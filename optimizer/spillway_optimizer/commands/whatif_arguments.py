"""The options of what-ifs, and their description in words."""

import math
from collections.abc import Callable

import click

from spillway_optimizer.commands import options
from spillway_optimizer.sources.whatif import WhatIf

DEMAND, SCALE, CAPACITY = "CLUSTER[:CLASS]=RPS", "[CLUSTER=]FACTOR", "SERVICE[@CLUSTER]=RPS"


def words(what_if: WhatIf) -> list[str]:
    """Returns one sentence per change."""
    return [
        *(
            f"demand times {factor:g}" + (f" in {cluster}" if cluster else "")
            for cluster, factor in what_if.scale
        ),
        *(
            f"{rps:g} req/s" + (f" of {class_id}" if class_id else "") + f" enter in {cluster}"
            for cluster, class_id, rps in what_if.demand
        ),
        *(
            f"{service} saturates at {rps:g} req/s" + (f" in {cluster}" if cluster else "")
            for service, cluster, rps in what_if.capacity
        ),
        *(f"no {service} in {cluster}" for service, cluster in what_if.without),
        *(f"{cluster} is drained" for cluster in what_if.drain),
    ]


def _number(text: str, value: str, above: bool = False, most: float = 1e9) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and (number > 0 if above else number >= 0)):
        raise click.BadParameter(
            f"{text!r}: {value!r} must be a number {'above' if above else 'of at least'} 0"
        )
    if number > most:
        raise click.BadParameter(f"{text!r}: {value!r} must be at most {most:g}")
    return number


def _split(text: str, form: str) -> tuple[str, str]:
    """Returns the text before the last '=', and the value. Neither may be empty."""
    where, equals, value = text.rpartition("=")
    if not (equals and where and value):
        raise click.BadParameter(f"{text!r}: must be {form}")
    return where, value


def _names(text: str, where: str, mark: str, form: str) -> tuple[str, str | None]:
    """Returns a name and, if `mark` is present, a second name. Neither may be empty."""
    first, marked, second = where.partition(mark)
    if not first or (marked and not second):
        raise click.BadParameter(f"{text!r}: must be {form}")
    return first, second or None


def _demand(text: str) -> tuple[str, str | None, float]:
    where, value = _split(text, DEMAND)
    return *_names(text, where, ":", DEMAND), _number(text, value)


def _scale(text: str) -> tuple[str | None, float]:
    cluster, value = _split(text, SCALE) if "=" in text else (None, text)
    return cluster, _number(text, value, most=1e6)


def _capacity(text: str) -> tuple[str, str | None, float]:
    where, value = _split(text, CAPACITY)
    return *_names(text, where, "@", CAPACITY), _number(text, value, above=True)


def _without(text: str) -> tuple[str, str]:
    service, at, cluster = text.partition("@")
    if not (service and at and cluster):
        raise click.BadParameter(f"{text!r}: must be SERVICE@CLUSTER")
    return service, cluster


def _many(flag: str, parse: Callable[[str], object], metavar: str, help: str) -> options.Decorator:
    return click.option(flag, type=parse, metavar=metavar, help=help, multiple=True)


what_if = options.gathered(
    WhatIf,
    "what_if",
    _many("--demand", _demand, DEMAND, "What if: the demand of a cluster, or of one class in it."),
    _many("--scale", _scale, SCALE, "What if: demand multiplied by a factor."),
    _many("--capacity", _capacity, CAPACITY, "What if: the capacity of a service."),
    _many("--without", _without, "SERVICE@CLUSTER", "What if: a cluster without the service."),
    _many("--drain", str, "CLUSTER", "What if: a cluster takes calls only where no other can."),
)
