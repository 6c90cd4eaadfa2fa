"""`spillway plan` and `spillway explain`: their arguments and their output."""

import argparse
import json
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

from spillway_contracts import ContractError
from spillway_runtime import exit_codes

from spillway_optimizer.commands import source_arguments, whatif_arguments
from spillway_optimizer.policies import REGISTRY, SPILLWAY
from spillway_optimizer.process.progress import Progress
from spillway_optimizer.sources.errors import CommandError, InputError
from spillway_optimizer.sources.told import unknown

if TYPE_CHECKING:
    from spillway_optimizer.sources.situation import Situation

COMMANDS = {
    "plan": "what-if and dry run: latency, egress and rules now, by every policy and at the optimum",
    "explain": "why a class is split as it is from a cluster, what binds, and what one percent would change",
}
NOW = "now"


def add_arguments(name: str, parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command `name`."""
    if name == "plan":
        parser.add_argument(
            "--policies", metavar="A,B", help=f"only these, and {SPILLWAY}; of {', '.join(REGISTRY)}"
        )
        parser.add_argument("--all-rules", action="store_true", help="the rules of every policy as text")
    else:
        parser.add_argument("class_id", metavar="CLASS", help="'service METHOD /path/{template}'")
        parser.add_argument("cluster_of", metavar="CLUSTER", help="where the calls come from")
        parser.add_argument(
            "--rules", default=SPILLWAY, choices=[NOW, *REGISTRY], help="whose split (default %(default)s)"
        )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    source_arguments.add_arguments(parser)
    whatif_arguments.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Runs a command and returns its exit code. Prints errors to stderr, one line per problem."""
    # clickhouse_driver logs a traceback for a server that is away. Our own message is one line.
    logging.getLogger("clickhouse_driver").addHandler(logging.NullHandler())
    logging.getLogger("clickhouse_driver").propagate = False
    try:
        document, text = _plan(arguments) if arguments.command == "plan" else _explain(arguments)
    except (CommandError, ContractError) as error:
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
        return getattr(error, "exit_code", exit_codes.FAILED)
    _print(json.dumps(document) if arguments.json else text(document))
    return exit_codes.FAILED if _without_optimum(document) else 0


def _without_optimum(document: dict[str, Any]) -> bool:
    """Returns whether a plan lacks the optimum, against which everything else is measured."""
    return "optimum" in document and "error" in document["policies"][document["optimum"]]


def _print(text: str) -> None:
    """Prints the text. The reader may stop reading early, as `| head` does."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _situation(arguments: argparse.Namespace, progress: Progress) -> "Situation":
    from spillway_optimizer.sources.situation import situation

    told = source_arguments.read(arguments, progress)
    return situation(told, whatif_arguments.of(arguments))


def _plan(arguments: argparse.Namespace) -> tuple[dict[str, Any], Any]:
    from spillway_optimizer.commands import plan, plan_text

    wanted = list(REGISTRY)
    if arguments.policies is not None:
        wanted = [name for text in arguments.policies.split(",") if (name := text.strip())]
        if not wanted:
            raise InputError(f"--policies: {arguments.policies!r} names none; known: {', '.join(REGISTRY)}")
    if wrong := [name for name in wanted if name not in REGISTRY]:
        raise InputError("\n".join(unknown("--policies", name, REGISTRY) for name in wrong))
    progress = Progress()
    document = plan.plan(_situation(arguments, progress), wanted, progress)
    return document, lambda found: plan_text.as_text(found, arguments.all_rules)


def _explain(arguments: argparse.Namespace) -> tuple[dict[str, Any], Any]:
    from spillway_optimizer.commands import explain_text
    from spillway_optimizer.commands.explaining import explained

    progress = Progress()
    of = _situation(arguments, progress)
    return explained(
        of, arguments.class_id, arguments.cluster_of, arguments.rules, progress
    ), explain_text.as_text
