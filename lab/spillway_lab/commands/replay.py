"""The command `replay`: sends recorded traces through the collector and the jobs.

It then shows what the solver would do with the models that were learned from them.
"""

from pathlib import Path

import click
from spillway_runtime import command_line

from spillway_lab.commands import options
from spillway_lab.experiments import replay


@click.command("replay", cls=command_line.Command)
@click.argument("traces", type=command_line.PATH, nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--setting", type=command_line.PATH, required=True, help="Clusters and demand to plan for (YAML)."
)
@options.run_folder("replay")
def command(traces: tuple[Path, ...], setting: Path, name: str) -> None:
    """Sends Jaeger traces through the collector.

    It prints classes, call ratios, curves and a dry run. FILE is Jaeger UI JSON, .gz allowed. There
    is one file per load.
    """
    replay.run(replay.load_setting(setting), replay.recordings(list(traces)), name)
