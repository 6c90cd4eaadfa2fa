"""The command `demo`: runs a scenario live, as `lab` does, in a run folder of its own."""

from pathlib import Path

import click
from spillway_runtime import command_line

from spillway_lab.commands import options
from spillway_lab.experiments import lab
from spillway_lab.scenario import scenario


@click.command("demo", cls=command_line.Command)
@options.scenario
@options.run_folder("demo")
def command(file: Path, name: str) -> None:
    """Runs a scenario's load under each of its policies.

    It prints what the clients saw, and why.
    """
    lab.run(scenario.load(file), name)
