"""The command `replay`: sends recorded traces through the collector and the jobs.

It then shows what the solver would do with the models that were learned from them.
"""

import argparse
from pathlib import Path

from spillway_lab.experiments import replay

HELP = "sends Jaeger traces through the collector and prints classes, call ratios, curves and a dry run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "traces", type=Path, nargs="+", metavar="FILE", help="Jaeger UI JSON, .gz allowed; one per load"
    )
    parser.add_argument("--setting", type=Path, required=True, help="clusters and demand to plan for (YAML)")
    parser.add_argument(
        "--name", default="replay", help="run folder below .spillway/run; copies need names of their own"
    )


def run(arguments: argparse.Namespace) -> int:
    setting = replay.load_setting(arguments.setting)
    replay.run(setting, replay.recordings(arguments.traces), arguments.name)
    return 0
