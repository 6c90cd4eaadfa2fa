"""The command `load`: sends a scenario's measured load to a running stack.

It sends the load once, under whatever routes are in force.
"""

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import click
from spillway_runtime import command_line

from spillway_lab.commands import options
from spillway_lab.load import load, targets
from spillway_lab.load.samples import concatenate, summarise
from spillway_lab.render import pods
from spillway_lab.scenario import scenario


@click.command("load", cls=command_line.Command)
@options.scenario
@options.port_base
@click.option(
    "--vegeta", default="vegeta", show_default=True, help="The load generator, a path or a name on PATH."
)
@click.option("--seconds", type=int, help="Instead of the scenario's, without warm-up.")
def command(file: Path, port_base: int, vegeta: str, seconds: int | None) -> None:
    """Sends a scenario's measured load to the clusters' entries.

    It prints what the clients saw.
    """
    loaded = scenario.load(file).live()
    layout, measure = pods.plan(loaded, port_base), loaded.document.load.measure
    warm_up = 0 if seconds else measure.warm_up_seconds
    length_s = seconds or measure.warm_up_seconds + measure.seconds
    attacks = [
        load.Attack(cluster, targets.targets(loaded, layout, cluster), rate, length_s)
        for cluster, rate in measure.first_rps.items()
    ]
    with tempfile.TemporaryDirectory() as folder:
        generator = load.Generator(Path(folder), vegeta)
        found = load.run(attacks, generator, "load", warm_up, _show)
    seen = {cluster: asdict(summarise(samples)) for cluster, samples in found.items()}
    print(json.dumps({"clusters": seen, "all": asdict(summarise(concatenate(found.values())))}))


def _show(progress: load.Progress) -> None:
    print(
        f"\rload {progress.elapsed_s:4.0f} of {progress.total_s:.0f} s", end="", file=sys.stderr, flush=True
    )
    if progress.elapsed_s >= progress.total_s:
        print(file=sys.stderr)
