"""The command `accuracy`: compares the learned models with an application whose queues are known.

It drives the application with load that rises in steps.
"""

import argparse
from pathlib import Path

from spillway_lab.experiments import accuracy
from spillway_lab.scenario import scenario

HELP = "runs a scenario's profile and compares curves, capacities, weights and call ratios with the truth"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scenario", type=Path, required=True)
    parser.add_argument(
        "--name", default="accuracy", help="run folder below .spillway/run; copies need names of their own"
    )


def run(arguments: argparse.Namespace) -> int:
    accuracy.run(scenario.load(arguments.scenario), arguments.name)
    return 0
