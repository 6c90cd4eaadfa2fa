"""Plans on the golden model, as the command line asks for them."""

import argparse
import json
from pathlib import Path

from spillway_optimizer.commands import whatif_arguments
from spillway_optimizer.commands.plan import plan
from spillway_optimizer.process.progress import Progress
from spillway_optimizer.sources.situation import situation
from spillway_optimizer.sources.told import Told

GOLDEN = Path(__file__).resolve().parents[3] / "contracts" / "golden"
GATEWAY, FRONTEND, BACKEND = (f"{s} GET /items/{{id}}" for s in ("gateway", "frontend", "backend"))


def what_if(*arguments: str):
    """Returns the what-if of these arguments of the command line."""
    parser = argparse.ArgumentParser()
    whatif_arguments.add_arguments(parser)
    return whatif_arguments.of(parser.parse_args(arguments))


def plan_of(told: Told, *arguments: str, policies=("local",)) -> dict:
    """Returns the plan as JSON shows it."""
    document = plan(situation(told, what_if(*arguments)), policies, Progress())
    return json.loads(json.dumps(document))
