"""The command line: python -m spillway_publisher --help"""

import asyncio
import contextlib
import getpass
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path

import click
from spillway.v1.topology_pb2 import Topology
from spillway_contracts import ContractError
from spillway_contracts import topology as topologies
from spillway_contracts.guardrails import GuardrailFile
from spillway_runtime import command_line, exit_codes, logs
from spillway_runtime.settings import load

from spillway_publisher.bucket.bucket import is_bucket_key
from spillway_publisher.bucket.keys import Keys
from spillway_publisher.commands import commands, operator
from spillway_publisher.process import config
from spillway_publisher.process.telemetry import Telemetry, log
from spillway_publisher.service.service import Service


@click.group(cls=command_line.Group)
def cli() -> None:
    """Guards, versions and publishes rulesets."""


_as_json = click.option("--json", "as_json", is_flag=True, help="JSON instead of a table.")
_reason = click.option("--reason", required=True, metavar="TEXT", help="Is stored with the change.")


@cli.command
def run() -> None:
    """Publishes proposals until SIGTERM."""
    settings: config.RunSettings = config.BOX.load("run")
    topology, guardrails = _read(settings)
    keys = Keys(settings.signing_key, settings.ruleset_keys)
    # These libraries log every attempt with its stack trace.
    logs.start(dict.fromkeys(("nats", "clickhouse_driver"), logging.CRITICAL))
    limits = guardrails.current.model_dump(mode="json")
    log.info("starting", extra=logs.fields(guardrails=limits, signing_key=keys.id))
    asyncio.run(Service(settings, topology, guardrails, keys, Telemetry()).run())
    log.info("stopped")


@cli.command
@_as_json
def status(as_json: bool) -> int:
    """What is in force in every cluster."""
    return asyncio.run(commands.status(load(config.OperatorSettings), as_json))


@cli.command
@_as_json
@click.option(
    "--limit", type=int, default=20, show_default=True, metavar="COUNT", help="How many, newest first."
)
def history(as_json: bool, limit: int) -> int:
    """Checkpoints that a rollback can go back to."""
    return asyncio.run(commands.history(load(config.OperatorSettings), limit, as_json))


def _lifetime(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 1 <= (value := float(text)) <= 86_400:  # false for nan
            return value
    raise click.BadParameter(f"{text}: must be 1 to 86400 seconds")


@cli.command
@click.option("--to", type=int, metavar="VERSION", help="Default: the latest with other rules.")
@click.option("--before", metavar="TIME", help="What was in force before 14:05, or an ISO time (UTC).")
@_reason
@click.option(
    "--for", "lifetime_s", type=_lifetime, default=600.0, show_default=True, metavar="SECONDS",
    help="How long it holds against other proposals and until it expires.",
)  # fmt: skip
@command_line.exclusive("to", "before")
def rollback(to: int | None, before: str | None, reason: str, lifetime_s: float) -> int:
    """Publishes an earlier version's rules as a new version."""
    return asyncio.run(commands.rollback(load(config.OperatorSettings), to, before, reason, lifetime_s))


@cli.group(cls=command_line.Group)
def act() -> None:
    """Tightens the guardrails until the act expires."""


def _send(kind: str, reason: str, actor: str, lifetime_s: float | None = None, **target: object) -> int:
    wanted = operator.act(kind, reason, actor, datetime.now(UTC), lifetime_s, **target)
    return asyncio.run(commands.act(load(config.OperatorSettings), wanted))


def _user() -> str | None:
    with contextlib.suppress(KeyError, OSError):  # a container's user may have no name
        return getpass.getuser()
    return None


_actor = click.option(
    "--actor",
    default=_user,
    required=True,
    metavar="NAME",
    help="Who acts; default: the user of this system.",
)
_until = click.option(
    "--for", "lifetime_s", type=_lifetime, default=3600.0, show_default=True, metavar="SECONDS",
    help="When it expires.",
)  # fmt: skip
_parts = click.argument("parts", type=click.IntRange(1, 10_000))


@act.command
@_reason
@_until
@_actor
def freeze(reason: str, lifetime_s: float, actor: str) -> int:
    """The weights in force stay."""
    return _send("freeze", reason, actor, lifetime_s)


@act.command
@_reason
@_until
@_actor
def kill(reason: str, lifetime_s: float, actor: str) -> int:
    """Only local-first is published."""
    return _send("kill", reason, actor, lifetime_s)


@act.command
@click.argument("clusters", nargs=-1, required=True)
@click.option("--class", "class_id", metavar="CLASS", help="Default: every class.")
@click.option("--from", "source", metavar="CLUSTER", help="Default: from every cluster.")
@_reason
@_until
@_actor
def deny(
    clusters: tuple[str, ...],
    class_id: str | None,
    source: str | None,
    reason: str,
    lifetime_s: float,
    actor: str,
) -> int:
    """Requests must not go to these clusters."""
    named = {"traffic_class": class_id, "source_cluster": source}
    denial = {"clusters": sorted(set(clusters)), **{k: v for k, v in named.items() if v is not None}}
    return _send("deny", reason, actor, lifetime_s, denial=denial)


@act.command
@_parts
@_reason
@_until
@_actor
def maximum_shift(parts: int, reason: str, lifetime_s: float, actor: str) -> int:
    """Parts of 10 000 that a version may move of a rule."""
    return _send("maximum_shift", reason, actor, lifetime_s, parts=parts)


@act.command
@_parts
@_reason
@_until
@_actor
def minimum_local_share(parts: int, reason: str, lifetime_s: float, actor: str) -> int:
    """Parts of 10 000 that are kept local."""
    return _send("minimum_local_share", reason, actor, lifetime_s, parts=parts)


@act.command
@click.argument("act_id", metavar="ID")
@_reason
@_actor
def end(act_id: str, reason: str, actor: str) -> int:
    """Ends an act before it expires."""
    return _send("end", reason, actor, ends=act_id)


@cli.command
@click.option("--all", "every", is_flag=True, help="Also those that ended or expired in the last two days.")
@_as_json
def acts(every: bool, as_json: bool) -> int:
    """The acts in force: who, what, why, until when."""
    return asyncio.run(commands.acts(load(config.OperatorSettings), every, as_json))


@cli.command
@click.option(
    "--origin", required=True, type=click.Choice(["optimizer", "papa"]), help="Whose tokens to forget."
)
@_reason
def reset_fence(origin: str, reason: str) -> int:
    """Forgets the fencing tokens of an origin."""
    return asyncio.run(commands.reset_fence(load(config.OperatorSettings), origin, reason))


@cli.command
@click.argument("file", type=command_line.PATH)
def validate(file: Path) -> int:
    """Checks a ruleset file against the topology."""
    topology, _ = _read(load(config.TopologySettings))
    problems = operator.validate(file, topology)
    print("\n".join(problems) if problems else f"{file}: valid")
    return exit_codes.FAILED if problems else 0


def _read(settings: config.TopologySettings) -> tuple[Topology, GuardrailFile]:
    """Loads the topology and the guardrail file. Raises ContractError, which names file and key."""
    topology = topologies.load(settings.topology)
    if bad := [c.name for c in topology.clusters if not is_bucket_key(c.name)]:
        raise ContractError(
            f"{settings.topology}: clusters: {bad}: only letters, digits, '-', '_', '/' and '=' are allowed"
        )
    return topology, GuardrailFile(settings.guardrails, topology)


def main() -> int:
    """Runs one command and returns its exit code. Errors are printed to stderr."""
    try:
        return command_line.run(cli, "spillway_publisher")
    except ContractError as error:
        print(error, file=sys.stderr)
        return exit_codes.USAGE
    except operator.OperatorError as error:
        print(error, file=sys.stderr)
        return exit_codes.FAILED


if __name__ == "__main__":
    raise SystemExit(main())
