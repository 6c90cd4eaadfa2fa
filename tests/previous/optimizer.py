"""A proposal as the optimizer sends it, and PAPA's checkpoint."""

import importlib.util
import os
from pathlib import Path

from google.protobuf import json_format
from spillway.v1.ruleset_pb2 import Ruleset
from spillway_optimizer.papa.checkpoint import Checkpoint, Trial
from spillway_optimizer.papa.step import Progress
from spillway_optimizer.rules import RuleKey, of_ruleset

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
