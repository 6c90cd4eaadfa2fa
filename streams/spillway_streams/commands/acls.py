"""`acls --file FILE --clusters a,b`: creates the access rights of all roles, as an administrator.

Run as `python -m spillway_streams acls`.
"""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

import yaml
from aiokafka.errors import KafkaError
from spillway_runtime import exit_codes

from spillway_streams import StreamsError
from spillway_streams.process import cluster_topics, config
from spillway_streams.topics import acls


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--file", type=Path, required=True, help="YAML: role: {read: [topic], ..., group: name}"
    )
    parser.add_argument(
        "--clusters",
        default=os.environ.get("SPILLWAY_CLUSTERS", ""),
        help="names, separated by commas: a collector's user for each; default: SPILLWAY_CLUSTERS",
    )
    parser.add_argument(
        "--principals",
        type=Path,
        help="YAML: user: principal, where it is not User:<user>, as of service accounts: {topics: 'User:sa-1a2b3c'}",
    )
    parser.add_argument(
        "--print", action="store_true", help="only says what they are, one in a line; asks no broker"
    )
    parser.add_argument(
        "--plan", action="store_true", help="only says what would be created; changes nothing"
    )
    parser.add_argument("--json", action="store_true", help="what was, or would be, created: {created, more}")


def run(args: argparse.Namespace) -> int:
    """Returns the exit status.

    0: done. 1: the brokers reject the request or are unreachable. 64: the arguments are invalid.
    """
    try:
        wanted = acls.read(args.file, cluster_topics.clusters(args.clusters), _principals(args.principals))
    except StreamsError as error:
        print(f"error: {error}", file=sys.stderr)
        return exit_codes.USAGE
    if args.print:
        print("\n".join(map(_line, wanted)))
        return 0
    settings = config.BOX.load("topics")
    try:
        found = asyncio.run(acls.apply(settings, wanted, change=not args.plan))
    except (KafkaError, OSError) as error:
        print(f"error: {settings.kafka}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps({"created": [_line(acl) for acl in found.missing], "more": found.more}))
    else:
        print("".join(f"{_line(acl)}\n" for acl in found.missing), end="")
    for line in found.more:
        print(f"beyond the file, left alone: {line}", file=sys.stderr)
    created = f"{len(found.missing)} {'to create' if args.plan else 'created'}"
    print(f"{len(wanted)} entries, {created}", file=sys.stderr)
    return 0


def _line(acl: acls.Acl) -> str:
    return f"{acl.principal} {acl.operation} {acl.resource} {acl.name}"


def _principals(path: Path | None) -> dict[str, str]:
    """Reads user -> principal. Raises StreamsError unless the file maps users to principals."""
    if path is None:
        return {}
    try:
        found = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise StreamsError(f"--principals: {path}: cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise StreamsError(f"--principals: {path}: must map users to principals")
    for user, principal in found.items():
        if not isinstance(principal, str) or ":" not in principal:
            raise StreamsError(
                f"--principals: {path}: {user}: {principal!r} must be a principal, as User:sa-1a2b3c"
            )
    return found
