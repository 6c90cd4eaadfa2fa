"""The command `accuracy`: compares the learned models with an application whose queues are known.

It drives the application with load that rises in steps.
"""

from pathlib import Path

import click
from spillway_runtime import command_line

from spillway_lab.commands import options
from spillway_lab.experiments import accuracy
from spillway_lab.scenario import scenario


@click.command("accuracy", cls=command_line.Command)
@options.scenario
@options.run_folder("accuracy")
def command(file: Path, name: str) -> None:
    """Compares the learned models with the truth.

    It compares curves, capacities, weights and call ratios that were learned under the scenario's
    profile.
    """
    accuracy.run(scenario.load(file), name)
