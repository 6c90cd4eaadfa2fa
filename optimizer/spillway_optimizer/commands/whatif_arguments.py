"""The arguments of what-ifs, and their description in words."""

import argparse
import math
from collections.abc import Callable

from spillway_optimizer.sources.whatif import WhatIf

DEMAND, SCALE, CAPACITY = "CLUSTER[:CLASS]=RPS", "[CLUSTER=]FACTOR", "SERVICE[@CLUSTER]=RPS"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of what-ifs."""
    group = parser.add_argument_group("what if", "each may be given several times")

    def many(flag: str, parse: Callable[[str], object], metavar: str, help: str) -> None:
        group.add_argument(flag, type=parse, metavar=metavar, help=help, action="append", default=[])

    many("--demand", _demand, DEMAND, "requests that enter there")
    many("--scale", _scale, SCALE, "demand times so much")
    many("--capacity", _capacity, CAPACITY, "where it saturates")
    many("--without", _without, "SERVICE@CLUSTER", "it is not there")
    many("--drain", str, "CLUSTER", "takes calls only where no other cluster can")


def of(arguments: argparse.Namespace) -> WhatIf:
    """Returns the what-if that the arguments describe."""
    return WhatIf(
        tuple(arguments.demand),
        tuple(arguments.scale),
        tuple(arguments.capacity),
        tuple(arguments.without),
        tuple(arguments.drain),
    )


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
        raise argparse.ArgumentTypeError(
            f"{text!r}: {value!r} must be a number {'above' if above else 'of at least'} 0"
        )
    if number > most:
        raise argparse.ArgumentTypeError(f"{text!r}: {value!r} must be at most {most:g}")
    return number


def _split(text: str, form: str) -> tuple[str, str]:
    """Returns the text before the last '=', and the value. Neither may be empty."""
    where, equals, value = text.rpartition("=")
    if not (equals and where and value):
        raise argparse.ArgumentTypeError(f"{text!r}: must be {form}")
    return where, value


def _names(text: str, where: str, mark: str, form: str) -> tuple[str, str | None]:
    """Returns a name and, if `mark` is present, a second name. Neither may be empty."""
    first, marked, second = where.partition(mark)
    if not first or (marked and not second):
        raise argparse.ArgumentTypeError(f"{text!r}: must be {form}")
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
        raise argparse.ArgumentTypeError(f"{text!r}: must be SERVICE@CLUSTER")
    return service, cluster
