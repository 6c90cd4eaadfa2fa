"""`spillway plan` and `spillway explain`: their arguments and their output."""

import functools
import json
import logging
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from spillway_contracts import ContractError
from spillway_runtime import command_line, exit_codes

from spillway_optimizer.commands import options, source_arguments, whatif_arguments
from spillway_optimizer.commands.source_arguments import Source
from spillway_optimizer.policies import EXACT, REGISTRY, SPILLWAY
from spillway_optimizer.process.progress import Progress
from spillway_optimizer.sources.errors import CommandError, InputError, unknown
from spillway_optimizer.sources.whatif import WhatIf

if TYPE_CHECKING:
    from spillway_optimizer.sources.situation import Situation

NOW = "now"
Document = dict[str, Any]
Answer = tuple[Document, Callable[[Document], str]]  # a document, and what makes text of it


def _shared(command: Callable[..., Answer]) -> Callable[..., int]:
    """Adds the options of both commands, prints the answer, and returns the exit code.

    Prints errors to stderr, one line per problem.
    """

    @options.as_json
    @source_arguments.source
    @whatif_arguments.what_if
    @functools.wraps(command)
    def shared(as_json: bool, **values: Any) -> int:
        # clickhouse_driver logs a traceback for a server that is away. Our own message is one line.
        logging.getLogger("clickhouse_driver").addHandler(logging.NullHandler())
        logging.getLogger("clickhouse_driver").propagate = False
        try:
            document, text = command(**values)
        except (CommandError, ContractError) as error:
            for line in str(error).splitlines():
                print(f"error: {line}", file=sys.stderr)
            return getattr(error, "exit_code", exit_codes.FAILED)
        _print(json.dumps(document) if as_json else text(document))
        return exit_codes.FAILED if _without_optimum(document) else 0

    return shared


@click.command("plan", cls=command_line.SpreadingCommand)
@click.option(
    "--policies",
    metavar="A,B",
    help=f"Policies to plan, separated by commas. {SPILLWAY} is always planned. "
    f"Default: all but {EXACT}, which may take 30 s. Known: {', '.join(REGISTRY)}.",
)
@click.option("--all-rules", is_flag=True, help="The rules of every policy as text.")
@_shared
def plan(policies: str | None, all_rules: bool, source: Source, what_if: WhatIf) -> Answer:
    """What-if and dry run: latency, egress and rules by every policy.

    The source is one of --traces, --model and --clickhouse. With none it is the running mesh, by
    SPILLWAY_REDIS_URL and SPILLWAY_CLICKHOUSE_URL. What-ifs may be given several times.
    """
    from spillway_optimizer.commands import plan, plan_text

    wanted = [name for name in REGISTRY if name != EXACT]
    if policies is not None:
        wanted = [name for text in policies.split(",") if (name := text.strip())]
        if not wanted:
            raise InputError(f"--policies: {policies!r} names none; known: {', '.join(REGISTRY)}")
    if wrong := [name for name in wanted if name not in REGISTRY]:
        raise InputError("\n".join(unknown("--policies", name, REGISTRY) for name in wrong))
    progress = Progress()
    document = plan.plan(_situation(source, what_if, progress), wanted, progress)
    return document, lambda found: plan_text.as_text(found, all_rules)


@click.command("explain", cls=command_line.SpreadingCommand)
@click.argument("class_id", metavar="CLASS")
@click.argument("cluster_of", metavar="CLUSTER")
@click.option(
    "--rules",
    default=SPILLWAY,
    show_default=True,
    type=click.Choice([NOW, *REGISTRY]),
    help="The policy whose rules are explained; `now`: the rules in force.",
)
@_shared
def explain(class_id: str, cluster_of: str, rules: str, source: Source, what_if: WhatIf) -> Answer:
    """Why a class is split as it is from a cluster, and what binds.

    CLASS is 'service METHOD /path/{template}', and CLUSTER is where the calls come from. The source
    is one of --traces, --model and --clickhouse. With none it is the running mesh, by
    SPILLWAY_REDIS_URL and SPILLWAY_CLICKHOUSE_URL. What-ifs may be given several times.
    """
    from spillway_optimizer.commands import explain_text
    from spillway_optimizer.commands.explaining import explained

    progress = Progress()
    of = _situation(source, what_if, progress)
    return explained(of, class_id, cluster_of, rules, progress), explain_text.as_text


def _without_optimum(document: Document) -> bool:
    """Returns whether a plan lacks the optimum, against which everything else is measured."""
    return "optimum" in document and "error" in document["policies"][document["optimum"]]


def _print(text: str) -> None:
    """Prints the text. The reader may stop reading early, as `| head` does."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _situation(source: Source, what_if: WhatIf, progress: Progress) -> "Situation":
    from spillway_optimizer.sources.situation import situation

    return situation(source_arguments.read(source, progress), what_if)
