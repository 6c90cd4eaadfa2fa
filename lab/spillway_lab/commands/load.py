"""The command `load`: sends a scenario's measured load to a running stack.

It sends the load once, under whatever routes are in force.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from spillway_lab.load import load, targets
from spillway_lab.load.samples import concatenate, summarise
from spillway_lab.render import pods
from spillway_lab.scenario import scenario

HELP = "sends a scenario's measured load at the clusters' entries and prints what the clients saw"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scenario", type=Path, required=True)
    parser.add_argument("--port-base", type=int, required=True, help="as given to render")
    parser.add_argument("--vegeta", default="vegeta", help="the load generator, a path or a name on PATH")
    parser.add_argument("--seconds", type=int, help="instead of the scenario's, without warm-up")


def run(arguments: argparse.Namespace) -> int:
    loaded = scenario.load(arguments.scenario)
    layout, measure = pods.plan(loaded, arguments.port_base), loaded.document.load.measure
    warm_up = 0 if arguments.seconds else measure.warm_up_seconds
    seconds = arguments.seconds or measure.warm_up_seconds + measure.measured_seconds
    attacks = [
        load.Attack(cluster, targets.targets(loaded, layout, cluster), rate, seconds)
        for cluster, rate in measure.rps.items()
    ]
    with tempfile.TemporaryDirectory() as folder:
        generator = load.Generator(Path(folder), arguments.vegeta)
        found = load.run(attacks, generator, "load", warm_up, _show)
    seen = {cluster: asdict(summarise(samples)) for cluster, samples in found.items()}
    print(json.dumps({"clusters": seen, "all": asdict(summarise(concatenate(found.values())))}))
    return 0


def _show(progress: load.Progress) -> None:
    print(
        f"\rload {progress.elapsed_s:4.0f} of {progress.total_s:.0f} s", end="", file=sys.stderr, flush=True
    )
    if progress.elapsed_s >= progress.total_s:
        print(file=sys.stderr)
