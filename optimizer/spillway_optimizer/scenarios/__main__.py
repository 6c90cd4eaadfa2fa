"""Prints the papers' scenarios: python -m spillway_optimizer.scenarios [NAME ...] [--json]"""

import json
import sys

import click
from spillway_runtime import command_line

from spillway_optimizer.commands import options
from spillway_optimizer.scenarios import ALL
from spillway_optimizer.scenarios.table import as_text, rows

NAMES = [scenario.name for scenario in ALL]


@click.command(cls=command_line.Command, epilog=f"NAME is one of {', '.join(NAMES)}.")
@click.argument("names", nargs=-1, metavar="[NAME]...", type=click.Choice(NAMES))
@options.as_json
def main(names: tuple[str, ...], as_json: bool) -> None:
    """Prints the papers' examples under every policy, or only those named."""
    chosen = [scenario for scenario in ALL if scenario.name in (names or NAMES)]
    table = rows(chosen)
    print(json.dumps(table) if as_json else as_text(chosen, table))


if __name__ == "__main__":
    sys.exit(command_line.run(main, "python -m spillway_optimizer.scenarios"))
