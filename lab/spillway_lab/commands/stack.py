"""The command `stack`: runs the whole local stack and a scenario's pods until it is interrupted."""

import argparse
import json
import signal
import threading
from pathlib import Path

from spillway_lab.report.progress import Progress
from spillway_lab.scenario import scenario
from spillway_lab.stack import stack

HELP = "starts the local stack and a scenario's pods, prints every address, and runs until interrupted"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scenario", type=Path, required=True)
    parser.add_argument(
        "--name", default="stack", help="run folder below .spillway/run; copies need names of their own"
    )
    parser.add_argument("--policy", default="spillway", help="the optimizer's policy at start")
    parser.add_argument("--json", action="store_true", help="prints the addresses as one JSON object")


def run(arguments: argparse.Namespace) -> int:
    prepared = stack.prepare(scenario.load(arguments.scenario), arguments.name, arguments.policy)
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    progress = Progress()
    with stack.running(prepared):
        prepared.supervisor.wait_ready(180, progress.starting)
        progress.end("ready; interrupt to stop")
        if arguments.json:
            print(json.dumps(prepared.addresses()), flush=True)
        else:
            width = max(map(len, prepared.addresses()))
            for name, address in prepared.addresses().items():
                print(f"{name:{width}}  {address}", flush=True)
        stopping.wait()
    return 0
