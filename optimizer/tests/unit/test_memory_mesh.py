"""The publisher in memory: versions, what is refused, and who changed a rule."""

from pathlib import Path

import pytest
from google.protobuf import json_format
from spillway.v1.ruleset_pb2 import Origin, Ruleset
from spillway_contracts import topology
from spillway_optimizer.papa.proposal import adjusted
from spillway_optimizer.problem.rules import RuleKey, of_ruleset
from spillway_optimizer.steps.memory_mesh import MemoryMesh

GOLDEN = Path(__file__).resolve().parents[3] / "contracts" / "golden"
TOPOLOGY = topology.load(GOLDEN / "topology.yaml")
KEY = RuleKey("west", "frontend", "backend GET /items/{id}")


@pytest.fixture
def whole() -> Ruleset:
    ruleset = json_format.Parse((GOLDEN / "5_ruleset.json").read_text(), Ruleset())
    ruleset.base_version, ruleset.version = 0, 0
    return ruleset


async def test_a_step_of_papa_changes_one_rule_and_the_rest_keeps_its_version(whole):
    """The step is a part of the ruleset. Everything else is in force as before."""
    mesh = MemoryMesh(("west", "east"))
    mesh.advance(whole.created_at.ToSeconds() + 1, None)
    await mesh.publish(whole)
    before = await mesh.in_force()
    step = adjusted(before, KEY, {"west": 9000, "east": 1000}, "why", "id", mesh.at, 60.0, TOPOLOGY)
    await mesh.publish(step)
    after = await mesh.in_force()
    assert after.rules == {**before.rules, KEY: {"west": 9000, "east": 1000}}
    assert after.changed_by(Origin.ORIGIN_PAPA, 1) == {KEY: {"west": 9000, "east": 1000}}
    assert mesh.version == 2 and not mesh.refused


async def test_a_proposal_that_would_undo_a_change_of_others_is_refused(whole):
    """The optimizer proposes from the version before PAPA's step, as if it had not read it."""
    mesh = MemoryMesh(("west", "east"))
    mesh.advance(whole.created_at.ToSeconds() + 1, None)
    await mesh.publish(whole)
    in_force = await mesh.in_force()
    await mesh.publish(
        adjusted(in_force, KEY, {"west": 9000, "east": 1000}, "why", "id", mesh.at, 60.0, TOPOLOGY)
    )
    late = Ruleset()
    late.CopyFrom(whole)
    late.base_version = 1
    await mesh.publish(late)
    [why] = mesh.refused
    assert "was changed in version 2 by ORIGIN_PAPA" in why and mesh.version == 2
    assert (await mesh.in_force()).rules != of_ruleset(whole)
