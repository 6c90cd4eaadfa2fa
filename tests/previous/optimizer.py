"""A proposal as the optimizer sends it, PAPA's checkpoint, and their rows for ClickHouse."""

import importlib.util
import json
import os
from pathlib import Path

from google.protobuf import json_format
from spillway.v1.ruleset_pb2 import Ruleset
from spillway_optimizer.papa.checkpoint import Checkpoint, Trial
from spillway_optimizer.papa.step import Progress
from spillway_optimizer.papa.steps_table import step_row
from spillway_optimizer.problem.rules import RuleKey, of_ruleset
from spillway_optimizer.solving.solves_table import Occasion, solve_row

OUT, TREE = Path(os.environ["SPILLWAY_PREVIOUS"]), Path(os.environ["SPILLWAY_TREE"])
_spec = importlib.util.spec_from_file_location("golden", TREE / "optimizer" / "tests" / "golden.py")
golden = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(golden)

proposal = json_format.Parse(golden.make()["5_ruleset.json"], Ruleset())
proposal.fencing_token = 1_767_225_600_000_000
(OUT / "proposal.binpb").write_bytes(proposal.SerializeToString())
rules = of_ruleset(proposal)
key = next(iter(rules))
trial = Trial(RuleKey(*key), {"west": 10_000}, {"west": 9_500, "east": 500}, 41.5)
progress = Progress({RuleKey(*key): 2}, frozenset({RuleKey(*key)}))
checkpoint = Checkpoint(progress, rules, {"gateway GET /items/{id}": 41.5}, trial)
(OUT / "papa_checkpoint.json").write_text(checkpoint.to_json() + "\n")


class Kept:
    """Stands where ClickHouse is: keeps statements and rows."""

    def __init__(self) -> None:
        self.inserts = []

    def add(self, table: str, row: dict) -> None:
        self.inserts.append([f"INSERT INTO {table} ({', '.join(row)}) VALUES", [list(row.values())]])


kept = Kept()
occasion = Occasion(1_767_225_660.0, "1767225600000-1767225630000", "spillway", "period")
kept.add("solves", solve_row(occasion, "refused", "no demand", ("west: no placement",)))
kept.add("papa_steps", step_row(occasion.at, trial, 40.25, "kept", "41.50 -> 40.25 ms", proposal.id))
(OUT / "inserts_optimizer.json").write_text(json.dumps(kept.inserts, default=str, indent=1) + "\n")
