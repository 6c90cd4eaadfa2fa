"""Options that several commands have."""

from collections.abc import Callable
from typing import Any

import click

as_json = click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")


def clusters(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option --clusters. `what`: what there is for each cluster."""
    return click.option(
        "--clusters",
        default="",
        envvar="SPILLWAY_CLUSTERS",
        help=f"Names, separated by commas: {what}. Default: SPILLWAY_CLUSTERS.",
    )
