"""Makes 4_problem.json and 5_ruleset.json of contracts/golden from 3_model.json and topology.yaml.

python optimizer/tests/golden.py    writes both; a unit test fails while they are stale
"""

import json
from pathlib import Path

from google.protobuf import json_format
from spillway.v1.ruleset_pb2 import Origin
from spillway_contracts import topology
from spillway_optimizer.inputs import telemetry
from spillway_optimizer.model import model
from spillway_optimizer.policies import SPILLWAY
from spillway_optimizer.problem import problem_json
from spillway_optimizer.programmes.exact import Exact
from spillway_optimizer.rulesets.assemble import Stamp, from_solution

GOLDEN = Path(__file__).resolve().parents[2] / "contracts" / "golden"


def make() -> dict[str, str]:
    """File name -> text."""
    inputs = telemetry.from_document(json.loads((GOLDEN / "3_model.json").read_text()))
    declared = topology.load(GOLDEN / "topology.yaml")
    # One second after the model's boards.
    now = 1.0 + max(entry.at for board in inputs.demand.values() for entry in board.values())
    built = model.build(inputs, declared, now)
    if built.problem is None:
        raise SystemExit("; ".join(built.refusals))
    # The linear programme ends at a corner, which is the same on every machine. Results of the fast
    # solver are only within the same gap.
    solution = Exact().route(built.problem)
    stamp = Stamp("golden-5", SPILLWAY, Origin.ORIGIN_OPTIMIZER, built.window, now, 120.0, built.classes)
    ruleset = from_solution(built.problem, solution, stamp, declared).ruleset
    return {
        "4_problem.json": json.dumps(problem_json.to_document(built.problem), indent=2) + "\n",
        "5_ruleset.json": json_format.MessageToJson(ruleset, preserving_proto_field_name=True, indent=2)
        + "\n",
    }


if __name__ == "__main__":
    for name, text in make().items():
        (GOLDEN / name).write_text(text)
        print(GOLDEN / name)
