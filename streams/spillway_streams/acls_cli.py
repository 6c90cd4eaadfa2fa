"""python -m spillway_streams acls --file FILE --clusters a,b: creates the rights of all roles, as an administrator."""

import argparse
import asyncio
import os
import sys
from pathlib import Path

from aiokafka.errors import KafkaError

from spillway_streams import StreamsError, acls, admission, config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--file", type=Path, required=True, help="YAML: role: {read: [topic], ..., group: name}"
    )
    parser.add_argument(
        "--clusters",
        default=os.environ.get("SPILLWAY_CLUSTERS", ""),
        help="names, separated by commas: a collector's user for each; default: SPILLWAY_CLUSTERS",
    )
    parser.add_argument("--print", action="store_true", help="only says what they are, one in a line")


def run(args: argparse.Namespace) -> int:
    """Exit status: 0 done, 1 the brokers refuse or are away, 64 what was asked for cannot be."""
    try:
        wanted = acls.read(args.file, admission.clusters(args.clusters))
    except StreamsError as error:
        print(f"error: {error}", file=sys.stderr)
        return config.EXIT_USAGE
    if args.print:
        print("\n".join(f"{acl.principal} {acl.operation} {acl.resource} {acl.name}" for acl in wanted))
        return 0
    settings = config.load(config.TopicsSettings)
    try:
        asyncio.run(acls.create(settings, wanted))
    except (KafkaError, OSError) as error:
        print(f"error: {settings.kafka}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print(f"{len(wanted)} entries are there", file=sys.stderr)
    return 0
