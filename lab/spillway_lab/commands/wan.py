"""The command `wan`: keeps Toxiproxy's proxies and delays as the plan describes them."""

import argparse
import logging
from pathlib import Path

from spillway_runtime import logs

from spillway_lab.stack.settings import WanSettings, read
from spillway_lab.stack.wan import Wan, load_plan
from spillway_lab.stack.wan_keeper import Keeper, serve

HELP = "keeps the delays between clusters in Toxiproxy, over its restarts"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--plan", type=Path, required=True, help="wan.json of a run folder")
    parser.add_argument("--toxiproxy", required=True, help="host:port of Toxiproxy's HTTP API")
    parser.add_argument("--once", action="store_true", help="applies the plan and ends")


def run(arguments: argparse.Namespace) -> int:
    wan = Wan(arguments.toxiproxy, load_plan(arguments.plan))
    if arguments.once:
        print(f"{wan.apply()} changes")
        return 0
    logs.start({"httpx": logging.WARNING})  # it logs every request
    serve(Keeper(wan), read(WanSettings).health_listen)
    return 0
