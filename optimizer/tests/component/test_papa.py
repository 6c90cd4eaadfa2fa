"""PAPA as a process, beside the optimizer whose rules it refines."""

import pytest
from optimizer_process import TOPOLOGY
from optimizer_world import CLUSTERS, west
from spillway.v1.ruleset_pb2 import Origin, Ruleset
from spillway_contracts import ruleset as contract
from spillway_contracts import topology
from spillway_lab.testing.waiting import eventually

pytestmark = pytest.mark.component


def test_papa_keeps_what_helps_and_rolls_back_what_does_not(world):
    """PAPA moves weight to west, and proposes only that rule.

    East's backend is slower than predicted, and west's is faster. While each step towards west
    lowers the latency that users observe, the step is kept. Once it does not, the step is rolled
    back.
    """
    world.publishing = True
    helps = True

    def feel(ruleset: Ruleset) -> None:
        # The latency that users observe rises, or falls, with east's share of gateway's calls.
        away = west(ruleset, "gateway").get("east", 0) / 10_000
        for cluster in CLUSTERS:
            demand = world.model["demand"][cluster]["gateway GET /items/{id}"]
            demand["duration_ms"] = 60.0 + (100.0 if helps else -100.0) * away

    world.on_publish = feel
    for cluster, factor in (("east", 4.0), ("west", 0.5)):
        world.model["load"][cluster]["frontend GET /items/{id}"]["exclusive_ms"] *= factor
    quick = {
        "SPILLWAY_PAPA_TAU_S": "2", "SPILLWAY_PAPA_SETTLE_S": "1", "SPILLWAY_PAPA_THETA": "2",
        "SPILLWAY_PAPA_WINDOW_S": "0.5", "SPILLWAY_PAPA_WINDOWS": "4",
        # The load boards of this world do not follow the rules, and costs are those of their loads.
        "SPILLWAY_PAPA_DIRECTION": "gap",
    }  # fmt: skip
    with world.process("run"):
        start = west(eventually(world.proposals, "a proposal")[0], "gateway")
        with world.process("papa", **quick) as papa:
            eventually(lambda: "kept" in world.papa_outcomes(), "a kept step", 120, papa.tail)
            step = world.proposals("papa")[0]
            assert step.origin == Origin.ORIGIN_PAPA and step.partial and step.base_version
            assert len(step.rules) == 1
            assert west(step, "gateway")["west"] == pytest.approx(start["west"] + 500, abs=1)
            assert contract.check(world.whole, topology.load(TOPOLOGY)) == []
            helps = False
            eventually(lambda: "rolled_back" in world.papa_outcomes(), "a step rolled back", 120, papa.tail)
