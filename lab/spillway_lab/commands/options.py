"""Options that several commands have."""

from collections.abc import Callable
from typing import Any

import click
from spillway_runtime import command_line

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

scenario = click.option(
    "--scenario", "file", type=command_line.PATH, required=True, help="The scenario (YAML)."
)
port_base = click.option(
    "--port-base", type=int, required=True, help="First port of the lab; the rest follow."
)
as_json = click.option("--json", "as_json", is_flag=True, help="Prints one JSON object.")


policies = click.option(
    "--policy",
    "policies",
    multiple=True,
    # Each once, in the order in which they were first given.
    callback=lambda _context, _option, names: tuple(dict.fromkeys(names)),
    help="Policies. Default: those of the scenario.",
)


def run_folder(default: str) -> Decorator:
    """The option --name with this default."""
    return click.option(
        "--name",
        default=default,
        show_default=True,
        help="Run folder below .spillway/run; copies need names of their own.",
    )
