"""The leader of two applications rolls harmful rules back, and keeps the others."""

import random
from pathlib import Path

import pytest
from google.protobuf import json_format
from judged import STEP_S
from mesh import NOW, Mesh
from spillway.v1.ruleset_pb2 import Ruleset
from spillway_contracts.guardrails import GuardrailFile
from spillway_optimizer.judging.judging import Watch
from spillway_optimizer.policies import MINIMISING
from spillway_optimizer.problem.rules import max_difference, stepped
from two_applications import OTHER


class _Observed:
    """A mesh with a latency of 25 ms on its boards, or of `ms` for the first application."""

    def __init__(self, mesh):
        self.mesh, self.now, self.ms, self.seed = mesh, NOW, 25.0, random.Random(7)

    async def run(self, count, change=lambda d: None):
        """Runs `count` times, every 6 s. Returns the rows by application of every run."""
        every = []
        for _ in range(count):

            def edit(d):
                for entries in d["demand"].values():
                    for class_id, entry in entries.items():
                        mean_ms = 25.0 if class_id.startswith(OTHER) else self.ms
                        entry["duration_ms"] = mean_ms * self.seed.lognormvariate(0.0, 0.05)
                change(d)

            every.append(await self.mesh.solve(self.now, edit))
            self.now += STEP_S
        return every


def _less(d):
    """Lowers the declared capacity of west's backend to 60 %, which is wrong."""
    for row in d["capacities"]:
        if (row["service"], row["cluster"]) == ("backend", "west"):
            row["capacity_rps"] *= 0.6


def _more(d):
    """Doubles the declared capacity of east's backend, which is wrong."""
    for row in d["capacities"]:
        if (row["service"], row["cluster"]) == ("backend", "east"):
            row["capacity_rps"] *= 2.0


@pytest.mark.parametrize("policy", sorted(MINIMISING))
async def test_rules_that_did_harm_are_rolled_back_and_not_tried_again_at_once(settings, tmp_path, policy):
    """A wrong capacity moves traffic, and requests take three times as long.

    The previous rules are in force again within a minute and a half, with the figures in the row.
    They stay for ten minutes. The other application's rules do not change.
    """
    mesh = Mesh(settings, tmp_path, policy=policy)
    world = _Observed(mesh)
    await world.run(8)
    before, other = mesh.rules(), mesh.rules(OTHER)
    changed = await world.run(3, _less)
    assert "proposed" in [rows["gateway"]["outcome"] for rows in changed] and mesh.rules() != before
    world.ms = 75.0
    rows = [r["gateway"] for r in await world.run(15, _less)]
    (back,) = [row for row in rows if row["outcome"] == "rolled_back"]
    assert mesh.rules() == before and mesh.rules(OTHER) == other
    assert back["reason"].startswith("rolled back: 7") and "before it" in back["reason"]
    assert mesh.states.counters["rolled_back"] == 1
    world.ms = 25.0
    await world.run(80, _less)
    assert mesh.rules() == before and mesh.rules(OTHER) == other
    tried = [r["gateway"]["reason"] for r in await world.run(30, _less)]
    assert mesh.rules() != before, tried


async def test_a_rollback_keeps_to_the_maximum_shift(settings, tmp_path):
    """With a maximum shift of 10 %, a change made in steps is fully reverted in steps."""
    mesh = Mesh(settings, tmp_path)
    (tmp_path / "guardrails.yaml").write_text("maximum_shift: 1000")
    mesh.solving.guardrails = GuardrailFile(tmp_path / "guardrails.yaml", mesh.topology)
    world = _Observed(mesh)
    await world.run(20)
    before = mesh.rules()
    await world.run(2, _less)
    assert max_difference(mesh.rules(), before) > 1000
    world.ms = 75.0
    rows = [r["gateway"]["outcome"] for r in await world.run(20, _less)]
    assert rows.count("rolled_back") > 1 and max_difference(mesh.rules(), before) <= 1
    assert stepped({"west": 9000, "east": 1000}, {"west": 1000, "east": 9000}, 0.1) == {
        "west": 8000,
        "east": 2000,
    }


async def test_an_outage_keeps_the_weights_and_harm_after_it_is_found(settings, tmp_path):
    """A new process starts 200 s after the last proposal, which expired 80 s ago.

    With the shipped guardrails, it proposes the weights that relays hold. Then it judges: a harmful
    change is rolled back to these weights.
    """
    mesh = Mesh(settings, tmp_path)
    shipped = Path(__file__).resolve().parents[3] / "infra" / "guardrails.yaml"
    mesh.solving.guardrails = GuardrailFile(shipped, mesh.topology)
    world = _Observed(mesh)
    await world.run(20)
    before, sent = mesh.rules(), len(mesh.sent)
    world.now += 200
    for cluster, text in mesh.in_force.items():
        held = json_format.Parse(text, Ruleset())
        held.expires_at.FromMilliseconds(round((world.now - 80) * 1000))
        mesh.in_force[cluster] = json_format.MessageToJson(held)
    mesh.solving.forget()
    (first,) = await world.run(1)
    assert len(mesh.sent) > sent and mesh.rules() == before, first["gateway"]
    rows = [first, *await world.run(8)]
    assert mesh.rules() == before and all(r["gateway"]["outcome"] != "proposed" for r in rows)
    rows = await world.run(3, _more)
    assert mesh.rules() != before, rows
    world.ms = 75.0
    rows = [r["gateway"] for r in await world.run(20, _more)]
    assert "rolled_back" in [row["outcome"] for row in rows], rows
    assert max_difference(mesh.rules(), before) <= 1


async def test_rules_that_did_no_harm_stay(settings, tmp_path):
    """After the same change, requests take as long as before, so nothing is rolled back."""
    mesh = Mesh(settings, tmp_path)
    world = _Observed(mesh)
    await world.run(8)
    before = mesh.rules()
    rows = await world.run(30, _less)
    assert mesh.rules() != before
    assert all(row["outcome"] != "rolled_back" for run in rows for row in run.values())


async def test_the_policy_is_the_operators_choice(settings, tmp_path):
    """Another policy is followed, and requests take three times as long.

    It stays in force, and so do the rules after the return to the first policy.
    """
    mesh = Mesh(settings, tmp_path)
    world = _Observed(mesh)
    await world.run(8)
    before = mesh.rules()
    mesh.following.name, mesh.following._routers = "waterfall", {}
    world.ms = 75.0
    rows = await world.run(20)
    assert mesh.sent[-1].policy == "waterfall" and mesh.rules() != before
    mesh.following.name, mesh.following._routers = "spillway", {}
    rows += await world.run(20)
    assert mesh.sent[-1].policy == "spillway" and max_difference(mesh.rules(), before) < 200
    assert all(row["outcome"] != "rolled_back" for run in rows for row in run.values())


async def test_worse_rules_that_cannot_be_rolled_back_are_left_as_soon_as_there_are_better_ones(
    settings, tmp_path
):
    """The previous rules exceed a new ceiling.

    The row says so, and the next good candidate is proposed.
    """
    mesh = Mesh(settings, tmp_path)
    world = _Observed(mesh)
    await world.run(8)
    before = mesh.rules()
    await world.run(3, _less)
    worse = mesh.rules()
    (tmp_path / "guardrails.yaml").write_text("utilisation_ceiling: 0.9")
    mesh.solving.guardrails = GuardrailFile(tmp_path / "guardrails.yaml", mesh.topology)
    world.ms = 75.0
    rows = [r["gateway"] for r in await world.run(15, _less)]
    assert all(row["outcome"] != "rolled_back" for row in rows) and mesh.rules() == worse, rows
    assert mesh.solving.applications.watches["gateway"].trial is None
    assert any("cannot be rolled back" in note for row in rows for note in row["notes"]), rows
    await world.run(10)
    assert max_difference(mesh.rules(), before) < max_difference(mesh.rules(), worse)


async def test_what_cannot_be_judged_of_one_application_stays_its_own(settings, tmp_path, monkeypatch):
    """Judging one application fails.

    Its rules stay, the failure is counted, and the other application is still judged.
    """
    mesh = Mesh(settings, tmp_path)
    world = _Observed(mesh)
    await world.run(8)
    before = mesh.rules()
    observe = Watch.observe

    def failing(watch, sample):
        if watch is mesh.solving.applications.watches["gateway"]:
            raise ValueError("sample: nan; must be finite")
        observe(watch, sample)

    monkeypatch.setattr(Watch, "observe", failing)
    rows = await world.run(3)
    assert {row["outcome"] for run in rows for row in run.values()} <= {"renewed", "unchanged"}, rows
    assert mesh.rules() == before and mesh.states.counters["internal_errors"] == 3
    assert len(mesh.solving.applications.watches[OTHER + "gateway"].recent) > len(
        mesh.solving.applications.watches["gateway"].recent
    )
