"""`acls --file FILE --clusters a,b`: creates the access rights of all roles, as an administrator.

Run as `python -m spillway_streams acls`.
"""

import asyncio
import json
import sys
from pathlib import Path

import click
import yaml
from aiokafka.errors import KafkaError
from spillway_runtime import command_line, exit_codes

from spillway_streams import StreamsError
from spillway_streams.commands import options
from spillway_streams.process import cluster_topics, config
from spillway_streams.topics import acls


@click.command("acls", cls=command_line.Command)
@click.option(
    "--file", type=command_line.PATH, required=True, help="YAML: role: {read: [topic], ..., group: name}."
)
@options.clusters("a collector's user for each")
@click.option(
    "--principals",
    type=command_line.PATH,
    help="YAML: user: principal, where it is not User:<user>, as of service accounts: {topics: 'User:sa-1a2b3c'}.",
)
@click.option("--print", "only_print", is_flag=True, help="Only prints them, one in a line; asks no broker.")
@click.option("--plan", is_flag=True, help="Only prints what would be created; changes nothing.")
@click.option("--json", "as_json", is_flag=True, help="What was, or would be, created: {created, more}.")
def command(
    file: Path, clusters: str, principals: Path | None, only_print: bool, plan: bool, as_json: bool
) -> int:
    """Applies infra/kafka/acls.yaml to the brokers.

    Run it as an administrator. The exit code is 1 if the brokers reject the request or are
    unreachable, and 64 if the file or a name is wrong.
    """
    try:
        wanted = acls.read(file, cluster_topics.clusters(clusters), _principals(principals))
    except StreamsError as error:
        print(f"error: {error}", file=sys.stderr)
        return exit_codes.USAGE
    if only_print:
        print("\n".join(map(_line, wanted)))
        return 0
    settings = config.BOX.load("topics")
    try:
        found = asyncio.run(acls.apply(settings, wanted, change=not plan))
    except (KafkaError, OSError) as error:
        print(f"error: {settings.kafka}: {type(error).__name__}: {error}", file=sys.stderr)
        return exit_codes.FAILED
    if as_json:
        print(json.dumps({"created": [_line(acl) for acl in found.missing], "more": found.more}))
    else:
        print("".join(f"{_line(acl)}\n" for acl in found.missing), end="")
    for line in found.more:
        print(f"beyond the file, left alone: {line}", file=sys.stderr)
    created = f"{len(found.missing)} {'to create' if plan else 'created'}"
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
