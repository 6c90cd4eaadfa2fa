"""The command `stack`: runs the whole local stack and a scenario's pods until it is interrupted."""

import json
import signal
import threading
from pathlib import Path

import click
from spillway_runtime import command_line

from spillway_lab.commands import options
from spillway_lab.report.progress import Progress
from spillway_lab.scenario import scenario
from spillway_lab.stack import stack


@click.command("stack", cls=command_line.Command)
@options.scenario
@options.run_folder("stack")
@click.option("--policy", default="spillway", show_default=True, help="The optimizer's policy at start.")
@options.as_json
def command(file: Path, name: str, policy: str, as_json: bool) -> None:
    """Starts the local stack and a scenario's pods.

    It prints every address, and runs until interrupted.
    """
    prepared = stack.prepare(scenario.load(file), name, policy)
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    progress = Progress()
    with stack.running(prepared):
        prepared.supervisor.wait_ready(180, progress.starting)
        progress.end("ready; interrupt to stop")
        if as_json:
            print(json.dumps(prepared.addresses()), flush=True)
        else:
            width = max(map(len, prepared.addresses()))
            for address_of, address in prepared.addresses().items():
                print(f"{address_of:{width}}  {address}", flush=True)
        stopping.wait()
