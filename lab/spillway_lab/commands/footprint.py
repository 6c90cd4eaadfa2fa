"""The command `footprint`: what the stack costs in processor time, idle and under load."""

from pathlib import Path

import click
from spillway_runtime import command_line

from spillway_lab.commands import options
from spillway_lab.experiments import footprint
from spillway_lab.scenario import scenario


@click.command("footprint", cls=command_line.Command)
@options.scenario
@options.run_folder("footprint")
@click.option(
    "--spans",
    type=click.FloatRange(min=0, min_open=True),
    default=1000.0,
    show_default=True,
    help="Spans per second. The scenario's load is scaled to it.",
)
def command(file: Path, name: str, spans: float) -> None:
    """Measures the processor time of every process of the stack.

    First without any request, then under the scenario's load.
    """
    footprint.run(scenario.load(file), name, spans)
