"""The command `reaction`: how long a change of the load takes to become weights at an Envoy."""

from pathlib import Path

import click
from spillway_runtime import command_line

from spillway_lab.commands import options
from spillway_lab.experiments import reaction
from spillway_lab.scenario import scenario


@click.command("reaction", cls=command_line.Command)
@options.scenario
@options.run_folder("reaction")
def command(file: Path, name: str) -> None:
    """Measures how long a step of the load takes to become weights at an Envoy, stage by stage."""
    reaction.run(scenario.load(file), name)
