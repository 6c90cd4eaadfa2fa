"""The command `wan`: keeps Toxiproxy's proxies and delays as the plan describes them."""

import logging
from pathlib import Path

import click
from spillway_runtime import command_line, logs

from spillway_lab.stack.settings import WanSettings, read
from spillway_lab.stack.wan import Wan, load_plan
from spillway_lab.stack.wan_keeper import Keeper, serve


@click.command("wan", cls=command_line.Command)
@click.option("--plan", type=command_line.PATH, required=True, help="wan.json of a run folder.")
@click.option("--toxiproxy", required=True, help="host:port of Toxiproxy's HTTP API.")
@click.option("--once", is_flag=True, help="Applies the plan and ends.")
def command(plan: Path, toxiproxy: str, once: bool) -> None:
    """Keeps the delays between clusters in Toxiproxy.

    It sets them again when Toxiproxy has restarted.
    """
    wan = Wan(toxiproxy, load_plan(plan))
    if once:
        print(f"{wan.apply()} changes")
    else:
        logs.start({"httpx": logging.WARNING})  # it logs every request
        serve(Keeper(wan, plan), read(WanSettings).health_listen)
