"""python -m spillway_publisher run | status | history | rollback | reset-fence | validate"""

import argparse
import asyncio
import logging
import sys
from pathlib import Path

from spillway.v1.topology_pb2 import Topology
from spillway_contracts import ContractError
from spillway_contracts import topology as topologies
from spillway_contracts.guardrails import GuardrailFile
from spillway_runtime import exit_codes, logs
from spillway_runtime.settings import load

from spillway_publisher.bucket.bucket import is_bucket_key
from spillway_publisher.bucket.keys import Keys
from spillway_publisher.commands import commands, operator
from spillway_publisher.process import config
from spillway_publisher.process.telemetry import Telemetry, log
from spillway_publisher.service.service import Service


def main(arguments: list[str] | None = None) -> int:
    """Runs one command and returns its exit code. Errors are printed to stderr."""
    chosen = _parser().parse_args(arguments)
    try:
        return _COMMANDS[chosen.command](chosen)
    except ContractError as error:
        print(error, file=sys.stderr)
        return exit_codes.USAGE
    except operator.OperatorError as error:
        print(error, file=sys.stderr)
        return exit_codes.FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spillway_publisher", description="Guards, versions and publishes rulesets"
    )
    commands_of = parser.add_subparsers(dest="command", required=True)
    commands_of.add_parser("run", help="publish proposals until SIGTERM")
    status = commands_of.add_parser("status", help="what is in force in every cluster")
    status.add_argument("--json", action="store_true")
    history = commands_of.add_parser("history", help="checkpoints that a rollback can go back to")
    history.add_argument("--json", action="store_true")
    history.add_argument("--limit", type=int, default=20, metavar="COUNT", help="newest first (default 20)")
    rollback = commands_of.add_parser("rollback", help="publish an earlier version's rules as a new version")
    which = rollback.add_mutually_exclusive_group()
    which.add_argument("--to", type=int, metavar="VERSION", help="default: the latest with other rules")
    which.add_argument(
        "--before", metavar="TIME", help="what was in force before 14:05, or an ISO time (UTC)"
    )
    rollback.add_argument("--reason", required=True, metavar="TEXT")
    rollback.add_argument(
        "--for", dest="lifetime_s", type=_lifetime, default=600.0, metavar="SECONDS",
        help="how long it holds against other proposals and until it expires (default 600)",
    )  # fmt: skip
    reset = commands_of.add_parser("reset-fence", help="forget the fencing tokens of an origin")
    reset.add_argument("--origin", required=True, choices=["optimizer", "papa"])
    reset.add_argument("--reason", required=True, metavar="TEXT")
    validate = commands_of.add_parser("validate", help="check a ruleset file against the topology")
    validate.add_argument("file", type=Path)
    return parser


def _lifetime(text: str) -> float:
    value = float(text)
    if not 1 <= value <= 86_400:
        raise argparse.ArgumentTypeError(f"{text}: must be 1 to 86400 seconds")
    return value


def _read(settings: config.TopologySettings) -> tuple[Topology, GuardrailFile]:
    """Loads the topology and the guardrail file. Raises ContractError, which names file and key."""
    topology = topologies.load(settings.topology)
    if bad := [c.name for c in topology.clusters if not is_bucket_key(c.name)]:
        raise ContractError(
            f"{settings.topology}: clusters: {bad}: only letters, digits, '-', '_', '/' and '=' are allowed"
        )
    return topology, GuardrailFile(settings.guardrails, topology)


def _run(chosen: argparse.Namespace) -> int:
    settings: config.RunSettings = config.BOX.load("run")
    topology, guardrails = _read(settings)
    keys = Keys(settings.signing_key, settings.ruleset_keys)
    # These libraries log every attempt with its stack trace.
    logs.start(dict.fromkeys(("nats", "clickhouse_driver"), logging.CRITICAL))
    limits = guardrails.current.model_dump(mode="json")
    log.info("starting", extra=logs.fields(guardrails=limits, signing_key=keys.id))
    asyncio.run(Service(settings, topology, guardrails, keys, Telemetry()).run())
    log.info("stopped")
    return 0


def _status(chosen: argparse.Namespace) -> int:
    return asyncio.run(commands.status(load(config.OperatorSettings), chosen.json))


def _history(chosen: argparse.Namespace) -> int:
    settings = load(config.OperatorSettings)
    return asyncio.run(commands.history(settings, chosen.limit, chosen.json))


def _rollback(chosen: argparse.Namespace) -> int:
    settings = load(config.OperatorSettings)
    return asyncio.run(
        commands.rollback(settings, chosen.to, chosen.before, chosen.reason, chosen.lifetime_s)
    )


def _reset_fence(chosen: argparse.Namespace) -> int:
    settings = load(config.OperatorSettings)
    return asyncio.run(commands.reset_fence(settings, chosen.origin, chosen.reason))


def _validate(chosen: argparse.Namespace) -> int:
    topology, _ = _read(load(config.TopologySettings))
    problems = operator.validate(chosen.file, topology)
    print("\n".join(problems) if problems else f"{chosen.file}: valid")
    return exit_codes.FAILED if problems else 0


_COMMANDS = {
    "run": _run,
    "status": _status,
    "history": _history,
    "rollback": _rollback,
    "reset-fence": _reset_fence,
    "validate": _validate,
}

if __name__ == "__main__":
    raise SystemExit(main())
