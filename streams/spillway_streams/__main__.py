"""Command line of this package: one subcommand per job and per tool.

    python -m spillway_streams admit|exclusive|classify|curves|graph
    python -m spillway_streams all
    python -m spillway_streams topics --file FILE
    python -m spillway_streams acls --file FILE
    python -m spillway_streams model --traces FILE...
    python -m spillway_streams classes list|pin|unpin|explain

Jobs run until they are stopped; the other commands run once.
"""

import asyncio
import functools
import importlib
import logging
import sys
from pathlib import Path
from typing import NoReturn

import click
from spillway_runtime import command_line, exit_codes, logs
from spillway_runtime.status import Status

from spillway_streams import StreamsError
from spillway_streams.clients.hot import Boards
from spillway_streams.clients.store import Store
from spillway_streams.commands import options
from spillway_streams.jobs import runner
from spillway_streams.process import allocators, cluster_topics, config, health, job_environment
from spillway_streams.process.counters import Counters
from spillway_streams.topics import declared, topics

# Each job is a module of spillway_streams.jobs. Only the job that runs is imported, because the
# statistics libraries take 200 MB.
JOBS = {
    "admit": "topics of the clusters -> topics of all clusters, the cluster in a header",
    "exclusive": "spans -> calls with exclusive time, edges, arrivals",
    "classify": "calls and edges -> rules of traffic classes",
    "curves": "calls, CPU use -> load, curves, capacities",
    "graph": "calls, edges -> call ratios, network times, demand",
}
_ALL = """All jobs in one process, for small installations.

SPILLWAY_<JOB>_X is the variable SPILLWAY_X of this job alone.
"""
# These libraries log every reconnect. Status logs once when a server goes away or returns.
QUIET = dict.fromkeys(("faust", "mode", "clickhouse_driver", "aiohttp.access", "kafka"), logging.ERROR) | {
    "aiokafka": logging.CRITICAL
}
# Modules of spillway_streams.commands that run once. Each has a Click command, `command`.
TOOLS = ("acls", "classes", "model")


class _Commands(command_line.Group):
    """Imports a tool only when it is asked for, because its libraries take memory."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *TOOLS])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in TOOLS:
            return importlib.import_module(f"spillway_streams.commands.{cmd_name}").command
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Commands)
def cli() -> None:
    """Jobs, which run until they are stopped, and commands that run once."""


def _run(name: str) -> NoReturn:
    logs.start(QUIET)
    allocators.give_back()
    asyncio.run(runner.run([_job(name, config.BOX.load(name))]))


def _run_all() -> NoReturn:
    logs.start(QUIET)
    allocators.give_back()
    process, settings = job_environment.load(JOBS)
    jobs = [_job(name, of, f"spillway.health.{name}") for name, of in settings.items()]
    asyncio.run(runner.run(jobs, process.health_listen))


def _job(name: str, settings: config.JobSettings, logger: str | None = None) -> runner.Job:
    """Creates a job. `logger`: the name under which it logs the state of its servers."""
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    dependencies = [
        health.KAFKA,
        health.CONSUMER,
        *([Store.NAME] if isinstance(settings, config.StoringSettings) else []),
        *([Boards.NAME] if isinstance(settings, config.HotSettings) else []),
    ]
    status = Status(*dependencies, log=logging.getLogger(logger) if logger else None)
    counters = Counters()
    store = None
    if isinstance(settings, config.StoringSettings):
        store = Store(settings.clickhouse_address, status, counters)
    context = runner.Context(settings, status, counters, store)
    return runner.Job(name, context, importlib.import_module(f"spillway_streams.jobs.{name}").build)


for _name, _about in JOBS.items():
    cli.add_command(
        command_line.Command(_name, callback=functools.partial(_run, _name), help=_about, short_help=_about)
    )
cli.add_command(
    command_line.Command("all", callback=_run_all, help=_ALL, short_help="all jobs in one process")
)


@cli.command("topics")
@click.option(
    "--file",
    type=command_line.PATH,
    required=True,
    help="YAML: topic: {partitions: n, replicas: n, config: {..}}.",
)
@options.clusters("topics for each")
def _declare(file: Path, clusters: str) -> int:
    """Creates missing Kafka topics, and sets the others' settings."""
    logs.start(QUIET)
    settings = config.BOX.load("topics")
    try:
        named = cluster_topics.clusters(clusters)
        if not named:
            raise StreamsError("--clusters or SPILLWAY_CLUSTERS: must name the clusters that topics are for")
        wanted = declared.read(file, named, 4, settings.topic_replicas)
        report = asyncio.run(topics.declare(settings, wanted))
    except StreamsError as error:
        print(f"error: {error}", file=sys.stderr)
        return exit_codes.USAGE
    except Exception as error:
        print(f"error: {settings.kafka}: {type(error).__name__}: {error}", file=sys.stderr)
        return exit_codes.FAILED
    print("\n".join(report.lines()), file=sys.stderr)
    return exit_codes.FAILED if report.refused else 0


if __name__ == "__main__":
    sys.exit(command_line.run(cli, "python -m spillway_streams"))
