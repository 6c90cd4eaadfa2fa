"""python -m spillway_streams exclusive|curves|graph, or topics --file FILE"""

import argparse
import asyncio
import os
import sys
from pathlib import Path

from spillway_streams import StreamsError, config, health, log, runner, topics
from spillway_streams.counters import Counters
from spillway_streams.hot import Boards
from spillway_streams.jobs import curves, exclusive, graph
from spillway_streams.store import Store

JOBS = {
    "exclusive": (config.ExclusiveSettings, exclusive.build),
    "curves": (config.CurvesSettings, curves.build),
    "graph": (config.GraphSettings, graph.build),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m spillway_streams")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (_, build) in JOBS.items():
        commands.add_parser(name, help=sys.modules[build.__module__].__doc__.splitlines()[0])
    declare = commands.add_parser("topics", help="create the Kafka topics that are missing")
    declare.add_argument("--file", type=Path, required=True, help="YAML: topic: {partitions: n}")
    args = parser.parse_args()
    log.set_up()
    if args.command == "topics":
        return _declare(args.file)
    kind, build = JOBS[args.command]
    settings = config.load(kind)
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    dependencies = [runner.KAFKA, Store.NAME, *([Boards.NAME] if hasattr(settings, "redis_url") else [])]
    status = health.Status(*dependencies)
    context = runner.Context(settings, status, Counters(), Store(settings.clickhouse_url, status))
    asyncio.run(runner.run(context, build))
    return 0


def _declare(file: Path) -> int:
    brokers = os.environ.get("SPILLWAY_KAFKA", "")
    if not brokers:
        print("SPILLWAY_KAFKA: Field required", file=sys.stderr)
        return config.EXIT_USAGE
    try:
        wanted = topics.read(file, default_partitions=4)
        created = asyncio.run(topics.create(brokers.split(","), wanted, replicas=1))
    except StreamsError as error:
        print(f"error: {error}", file=sys.stderr)
        return config.EXIT_USAGE
    except Exception as error:
        print(f"error: {brokers}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print(f"topics created: {', '.join(created) or 'none, all were there'}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
