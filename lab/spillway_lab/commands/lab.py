"""The command `lab`: runs a scenario live, with repeated rounds of its policies."""

from pathlib import Path

import click
from spillway_runtime import command_line

from spillway_lab.commands import options
from spillway_lab.experiments import lab
from spillway_lab.scenario import scenario


@click.command("lab", cls=command_line.Command)
@options.scenario
@options.run_folder("lab")
@click.option("--out", type=command_line.PATH, help="Folder of the results. Default: in the run folder.")
@click.option("--repetitions", type=click.IntRange(1, 100), help="Instead of the scenario's.")
def command(file: Path, name: str, out: Path | None, repetitions: int | None) -> None:
    """Runs a scenario live.

    It measures the scenario's policies in interleaved rounds, prints what the clients saw, and
    writes the results.
    """
    loaded = scenario.load(file)
    if repetitions is not None:
        document = loaded.document.model_copy(update={"repetitions": repetitions})
        loaded = loaded.model_copy(update={"document": document})
    lab.run(loaded, name, out)
