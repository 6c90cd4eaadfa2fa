"""Plans on the golden model, as the command line asks for them."""

import json
from pathlib import Path

import click
from spillway_optimizer.commands import whatif_arguments
from spillway_optimizer.commands.plan import plan
from spillway_optimizer.process.progress import Progress
from spillway_optimizer.sources.situation import situation
from spillway_optimizer.sources.source_data import SourceData
from spillway_optimizer.sources.whatif import WhatIf

GOLDEN = Path(__file__).resolve().parents[3] / "contracts" / "golden"
GATEWAY, FRONTEND, BACKEND = (f"{s} GET /items/{{id}}" for s in ("gateway", "frontend", "backend"))


@click.command
@whatif_arguments.what_if
def command(what_if: WhatIf) -> WhatIf:
    """Returns the what-if of its arguments."""
    return what_if


def what_if(*arguments: str) -> WhatIf:
    """Returns the what-if of these arguments of the command line."""
    return command.main(arguments, standalone_mode=False)


def plan_of(data: SourceData, *arguments: str, policies=("local",)) -> dict:
    """Returns the plan as JSON shows it."""
    document = plan(situation(data, what_if(*arguments)), policies, Progress())
    return json.loads(json.dumps(document))
