"""Command line of this package: one subcommand per job and per tool.

    python -m spillway_streams admit|exclusive|classify|curves|graph
    python -m spillway_streams topics --file FILE
    python -m spillway_streams acls --file FILE
    python -m spillway_streams model --traces FILE...
    python -m spillway_streams classes list|pin|unpin|explain

Jobs run until they are stopped; the other commands run once.
"""

import argparse
import asyncio
import importlib
import logging
import os
import sys
from pathlib import Path
from typing import NoReturn

from spillway_runtime import exit_codes, logs
from spillway_runtime.status import Status

from spillway_streams import StreamsError
from spillway_streams.clients.hot import Boards
from spillway_streams.clients.store import Store
from spillway_streams.jobs import runner
from spillway_streams.process import allocators, cluster_topics, config, health
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
CLUSTERS = "names, separated by commas: topics for each; default: SPILLWAY_CLUSTERS"
# These libraries log every reconnect. Status logs once when a server goes away or returns.
QUIET = dict.fromkeys(("faust", "mode", "clickhouse_driver", "aiohttp.access", "kafka"), logging.ERROR) | {
    "aiokafka": logging.CRITICAL
}
# Commands that run once, each with its own arguments.
TOOLS = {
    "acls": ("spillway_streams.commands.acls", "infra/kafka/acls.yaml -> the brokers, as an administrator"),
    "classes": ("spillway_streams.commands.classes", "traffic classes: list, pin, unpin, explain"),
    "model": (
        "spillway_streams.commands.model",
        "recorded traces -> the model that the optimizer plans with",
    ),
}


def main() -> int:
    """Parses the command line and runs the chosen job or tool. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m spillway_streams")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, about in JOBS.items():
        commands.add_parser(name, help=about)
    declare = commands.add_parser(
        "topics", help="create the Kafka topics that are missing, set the others' settings"
    )
    declare.add_argument(
        "--file", type=Path, required=True, help="YAML: topic: {partitions: n, replicas: n, config: {..}}"
    )
    declare.add_argument("--clusters", default=os.environ.get("SPILLWAY_CLUSTERS", ""), help=CLUSTERS)
    for name, (module, about) in TOOLS.items():
        tool = commands.add_parser(name, help=about)
        if sys.argv[1:2] == [name]:
            cli = importlib.import_module(module)
            cli.add_arguments(tool)
            return cli.run(parser.parse_args())
    args = parser.parse_args()
    logs.start(QUIET)
    return _declare(args.file, args.clusters) if args.command == "topics" else _run(args.command)


def _run(job: str) -> NoReturn:
    allocators.give_back()
    settings = config.BOX.load(job)
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    dependencies = [
        health.KAFKA,
        health.CONSUMER,
        *([Store.NAME] if isinstance(settings, config.StoringSettings) else []),
        *([Boards.NAME] if isinstance(settings, config.HotSettings) else []),
    ]
    status = Status(*dependencies)
    counters = Counters()
    store = None
    if isinstance(settings, config.StoringSettings):
        store = Store(settings.clickhouse_address, status, counters)
    context = runner.Context(settings, status, counters, store)
    build = importlib.import_module(f"spillway_streams.jobs.{job}").build
    asyncio.run(runner.run(context, build))


def _declare(file: Path, clusters: str) -> int:
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
    sys.exit(main())
