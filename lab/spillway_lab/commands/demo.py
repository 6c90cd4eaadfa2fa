"""The command `demo`: compares a scenario's policies under one load and explains the winner."""

import argparse
from pathlib import Path

from spillway_lab.experiments import demo
from spillway_lab.scenario import scenario

HELP = "runs a scenario's load under each of its policies and prints what the clients saw, and why"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scenario", type=Path, required=True)
    parser.add_argument(
        "--name", default="demo", help="run folder below .spillway/run; copies need names of their own"
    )


def run(arguments: argparse.Namespace) -> int:
    loaded = scenario.load(arguments.scenario)
    demo.run(loaded, arguments.name, list(loaded.document.policies))
    return 0
