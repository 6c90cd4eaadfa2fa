"""Redis has lost its data while rules are in force."""

import dataclasses

import pytest
from google.protobuf import json_format
from mesh import NOW, Mesh
from spillway.v1.heartbeat_pb2 import Heartbeat
from spillway.v1.ruleset_pb2 import Ruleset
from spillway_contracts import names
from spillway_optimizer.clients import hot
from spillway_optimizer.inputs.in_force import InForce, held_as
from spillway_optimizer.problem.rules import RuleKey
from spillway_optimizer.rulesets.lost_rules import PATIENCE_S


class Flushed(Mesh):
    """A mesh whose relays report the version that they serve, regardless of Redis."""

    serving: dict[str, int] = {}

    def known(self, now: float) -> dict:
        return {**super().known(now), "serving": self.serving}


async def test_after_a_flush_the_version_in_force_is_learned_before_anything_is_proposed(settings, tmp_path):
    """The lease is lost too, so the new leader has no memory.

    Nothing is sent until the publisher has written the rules again. The next proposal is based on
    their version, not on 0.
    """
    mesh = Flushed(settings, tmp_path)
    await mesh.solve(NOW)
    sent, kept = len(mesh.sent), dict(mesh.in_force)
    mesh.in_force.clear()
    mesh.serving = {"west": 1, "east": 1}
    mesh.solving.forget()
    rows = await mesh.solve(NOW + 5)
    assert len(mesh.sent) == sent and {row["outcome"] for row in rows.values()} == {"refused"}
    assert all(
        "Redis has no ruleset of east, west, where version 1 is in force" in row["reason"]
        for row in rows.values()
    )
    mesh.in_force.update(kept)
    await mesh.solve(NOW + 20)
    assert len(mesh.sent) == sent + 1 and mesh.sent[-1].base_version == 1


@pytest.mark.parametrize("serving", [{"west": 1, "east": 1}, {"east": 1}], ids=["heartbeats", "no heartbeat"])
async def test_rules_of_one_cluster_that_cannot_be_read_are_not_taken_for_none(settings, tmp_path, serving):
    """If they were, the weights of its callers would return to local-first.

    The rules are also expected if the relays' report is lost together with them.
    """
    mesh = Flushed(settings, tmp_path)
    await mesh.solve(NOW)
    await mesh.solve(NOW + 1)
    sent, kept = len(mesh.sent), dict(mesh.in_force)
    mesh.serving = serving
    del mesh.in_force["west"]
    rows = await mesh.solve(NOW + 16)
    assert len(mesh.sent) == sent
    assert all(
        "Redis has no ruleset of west, where version 1 is in force" in r["reason"] for r in rows.values()
    )
    mesh.in_force.update(kept)
    await mesh.solve(NOW + 20)
    assert len(mesh.sent) == sent + 1


async def test_a_cluster_whose_rules_stay_away_is_waited_for_once(settings, tmp_path):
    """The cluster has left. After half a minute, the others are solved without mentioning it."""
    mesh = Flushed(settings, tmp_path)
    await mesh.solve(NOW)
    await mesh.solve(NOW + 1)
    mesh.serving = {"east": 1}
    del mesh.in_force["west"]
    for second, waits in ((2, True), (2 + PATIENCE_S, False), (3 + PATIENCE_S, False)):
        rows = await mesh.solve(NOW + second)
        assert any("Redis has no ruleset of west" in row["reason"] for row in rows.values()) == waits


async def test_rules_that_nobody_writes_again_are_replaced_from_the_version_that_relays_serve(
    settings, tmp_path
):
    """The publisher has lost the rules too.

    After half a minute, the lowest version that relays serve becomes the base.
    """
    mesh = Flushed(settings, tmp_path)
    mesh.serving = {"west": 7, "east": 6}
    await mesh.solve(NOW)
    await mesh.solve(NOW + PATIENCE_S - 1)
    assert not mesh.sent
    await mesh.solve(NOW + PATIENCE_S)
    assert [ruleset.base_version for ruleset in mesh.sent] == [6]


async def test_where_relays_serve_nothing_the_first_rules_start_from_nothing(settings, tmp_path):
    mesh = Flushed(settings, tmp_path)
    await mesh.solve(NOW)
    assert [ruleset.base_version for ruleset in mesh.sent] == [0]


class _Redis:
    """A Redis with empty boards and these heartbeats."""

    def __init__(self, *beats: Heartbeat):
        self._answers = [{}] + [
            part for beat in beats for part in ({}, {}, json_format.MessageToJson(beat), {})
        ]

    def pipeline(self, transaction):
        return self

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    def hgetall(self, key):
        pass

    get = hgetall

    async def execute(self, raise_on_error=True):
        return self._answers


async def test_expired_rules_steer_for_as_long_as_relays_say_that_they_hold_them():
    """Rules are still in effect an hour after they expire if relays hold them by default.

    They are not where relays hold them for an hour or not at all.
    """
    beats = [Heartbeat(cluster="west", hold_seconds=3600, ruleset_version=4), Heartbeat(cluster="east")]
    boards = await hot.boards(
        _Redis(*beats, Heartbeat(cluster="north", hold_seconds=0)), ("west", "east", "north")
    )
    assert boards.hold_s == {"west": 3600.0, "north": 0.0} and boards.serving == {"west": 4}
    rulesets, rules = {}, {}
    for cluster in ("west", "east", "north"):
        rulesets[cluster] = Ruleset(version=4)
        rulesets[cluster].expires_at.FromSeconds(round(NOW))
        rules[RuleKey(cluster, "web", "db GET /x")] = {"west": 5000, "east": 3000, "north": 2000}
    versions = dict.fromkeys(rulesets, 4)
    found = held_as(InForce(rules, 1, "spillway", versions, "id", rulesets), boards)

    def routed(in_force, age_s):
        return {key.source_cluster for key in in_force.routing(NOW + age_s)}

    assert routed(found, -1) == {"west", "east", "north"}
    assert routed(found, 60) == {"west", "east"} and routed(found, 3600) == {"east"}
    assert routed(dataclasses.replace(found, hold_s={}), 3600) == {"west", "east", "north"}
    assert routed(found, names.VALUE_HOLD_SECONDS) == set()
