"""A change is compared with the time before it.

A harmful change is rolled back, and noise causes no rollback.
"""

import random
from pathlib import Path

import pytest
from google.protobuf import json_format
from mesh import NOW, Mesh
from spillway.v1.ruleset_pb2 import Ruleset
from spillway_contracts.guardrails import GuardrailFile
from spillway_optimizer.judging.judging import Sample, Watch
from spillway_optimizer.problem.rules import RuleKey, max_difference, stepped
from two_applications import OTHER

ENTRY, BACKEND = "gateway GET /items/{id}", "backend GET /items/{id}"
KEY = RuleKey("west", "web", "db GET /x")
STEP_S = 6.0


def _rules(west):
    return {KEY: {"west": west, "east": 10_000 - west}}


def _watched(watch, start, costs, predicted=30.0, demand=100.0):
    for n, cost in enumerate(costs):
        watch.observe(Sample(start + STEP_S * n, cost, predicted, demand))
    return start + STEP_S * len(costs)


def _noise(seed, mean, count, spread=0.1):
    r = random.Random(seed)
    return [mean * r.lognormvariate(0.0, spread) for _ in range(count)]


def test_what_is_clearly_worse_is_found_within_a_minute():
    """Costs are twice those before and those predicted, under noise of a tenth.

    This is found seconds after the change has settled.
    """
    watch = Watch(600.0, 0.2)
    at = _watched(watch, 0.0, _noise(1, 30.0, 10))
    watch.changed(at, _rules(9000), _rules(5000), 100.0)
    end = _watched(watch, at + 12.0, _noise(2, 60.0, 4))
    assert watch.trial.worse and end - at <= 60
    assert "in 10 before it, 30.0 predicted" in str(watch.trial)
    watch.rolled_back(end, "worse")
    assert not watch.may_roll_back(end + 599) and watch.may_roll_back(end + 600)
    assert "rolled back: worse" in watch.again(_rules(5200), end + 60, 100.0)
    assert watch.again(_rules(8000), end + 60, 100.0) is not None, "on the way there"
    assert watch.again(_rules(9500), end + 60, 100.0) is None, "another way"
    assert watch.again(_rules(5200), end + 60, 150.0) is None, "another load"
    assert watch.again(_rules(5200), end + 601, 100.0) is None, "tried again in time"


def test_noise_is_not_worse():
    """A change without effect, two hundred times.

    By design, at most one in a hundred may be judged worse.
    """
    worse = 0
    for seed in range(200):
        watch = Watch(600.0, 0.2)
        costs = _noise(seed, 30.0, 30, spread=0.25)
        at = _watched(watch, 0.0, costs[:10])
        watch.changed(at, _rules(9000), _rules(5000), 100.0)
        _watched(watch, at + 12.0, costs[10:])
        worse += watch.trial is not None and watch.trial.worse
    assert worse <= 2


@pytest.mark.parametrize(
    ("predicted", "demand"),
    [(60.0, 100.0), (30.0, 130.0)],
)
def test_what_was_predicted_and_what_is_of_another_load_is_no_harm(predicted, demand):
    """Requests are slower as predicted, because the load grew a little.

    Or the load moved, so that nothing can be compared.
    """
    watch = Watch(600.0, 0.2)
    at = _watched(watch, 0.0, _noise(1, 30.0, 10))
    watch.changed(at, _rules(9000), _rules(5000), 100.0)
    _watched(watch, at + 12.0, _noise(2, 60.0, 10), predicted, demand)
    assert watch.trial is None or not watch.trial.worse


def test_a_model_that_is_wrong_before_and_after_is_no_harm():
    """Requests are always slower than predicted, and a little faster after the change."""
    watch = Watch(600.0, 0.2)
    at = _watched(watch, 0.0, _noise(1, 60.0, 10))
    watch.changed(at, _rules(9000), _rules(5000), 100.0)
    _watched(watch, at + 12.0, _noise(2, 55.0, 12), predicted=20.0)
    assert not watch.trial.worse


def test_a_change_on_top_of_one_that_is_judged_is_judged_with_it():
    """A rollback restores the rules from before the first of the two."""
    watch = Watch(600.0, 0.2)
    at = _watched(watch, 0.0, _noise(1, 30.0, 10))
    watch.changed(at, _rules(9000), _rules(7000), 100.0)
    watch.changed(at + 6, _rules(7000), _rules(5000), 100.0)
    _watched(watch, at + 18.0, _noise(2, 60.0, 5))
    assert watch.trial.worse and watch.trial.before == _rules(9000) and watch.trial.after == _rules(5000)


@pytest.mark.parametrize("quiet", [0, 30])
def test_steady_small_steps_are_judged_too(quiet):
    """A step every 20 s does harm: requests take ten times as long.

    They do so from the first step, or from one long after it. A rollback goes to the rules from
    before the first step of the trial.
    """
    watch, noise, west, harm = Watch(600.0, 0.2), random.Random(3), 9000, 0.0
    _watched(watch, -60.0, _noise(1, 30.0, 10))
    for step in range(60):
        at = 20.0 * step
        if step == quiet:
            harm = at
        mean = 300.0 if step >= quiet else 30.0
        watch.changed(at, _rules(west), _rules(west - 50), 100.0)
        west -= 50
        for later in (5.0, 11.0, 17.0):
            watch.observe(Sample(at + later, mean * noise.lognormvariate(0.0, 0.1), 30.0, 100.0))
        if watch.trial is not None and watch.trial.worse:
            break
    assert watch.trial.worse and at - harm <= 120 and watch.trial.after == _rules(west)
    assert watch.trial.before == _rules(9000) or quiet


def test_samples_until_a_step_has_settled_are_left_out():
    watch = Watch(600.0, 0.2)
    at = _watched(watch, 0.0, _noise(1, 30.0, 10))
    watch.changed(at, _rules(9000), _rules(8900), 100.0)
    _watched(watch, at + 12.0, [30.0, 31.0])
    watch.changed(at + 24, _rules(8900), _rules(8800), 100.0)
    _watched(watch, at + 25.0, [900.0, 900.0])
    assert watch.trial.observed.after.count == 2
    _watched(watch, at + 36.0, [30.0])
    assert watch.trial.observed.after.count == 3


def test_a_step_back_to_the_rules_of_before_ends_the_trial():
    watch = Watch(600.0, 0.2)
    at = _watched(watch, 0.0, _noise(1, 30.0, 10))
    watch.changed(at, _rules(9000), _rules(5000), 100.0)
    _watched(watch, at + 12.0, [60.0, 60.0])
    watch.changed(at + 24, _rules(5000), _rules(9000), 100.0)
    assert watch.trial is None


def test_a_step_at_another_load_is_not_judged_with_those_before_it():
    watch = Watch(600.0, 0.2)
    at = _watched(watch, 0.0, _noise(1, 30.0, 10))
    watch.changed(at, _rules(9000), _rules(7000), 100.0)
    _watched(watch, at + 12.0, [30.0, 31.0])
    watch.changed(at + 24, _rules(7000), _rules(5000), 150.0)
    assert watch.trial is None


def _judged_worse(watch, before, after):
    """Runs a trial of `after` that is judged worse. Returns the time of the verdict."""
    at = _watched(watch, 0.0, _noise(1, 30.0, 10))
    watch.changed(at, before, after, 100.0)
    end = _watched(watch, at + 12.0, _noise(2, 60.0, 4))
    assert watch.trial.worse
    return end


def test_what_cannot_be_rolled_back_ends_its_trial_and_only_the_way_to_it_is_refused():
    """The worse rules stay in force until others are proposed.

    Only candidates that move towards the worse rules are refused.
    """
    watch, other = Watch(600.0, 0.2), RuleKey("east", "web", "db GET /x")
    worse = {**_rules(5000), other: {"east": 10_000}}
    end = _judged_worse(watch, {**_rules(9000), other: {"east": 10_000}}, worse)
    assert watch.to_restore(worse, end) is not None
    watch.not_possible(end, "'west' is a denied destination")
    assert watch.trial is None
    third = {KEY: {"west": 5000, "third": 5000}, other: {"east": 10_000}}
    assert watch.again(third, end + 1, 100.0, worse) is None, "another destination"
    assert watch.again({**worse, other: {"third": 10_000}}, end + 1, 100.0, worse) is None, "another route"
    watch.changed(end + 1, worse, third, 100.0)
    why = watch.again(_rules(5200), end + 60, 100.0, third)
    assert why.startswith("worse than before 60 s ago") and "'west' is a denied destination" in why
    assert watch.again(_rules(5200), end + 601, 100.0, third) is None, "tried again in time"


def test_a_rollback_that_is_possible_again_is_made_while_nothing_else_was_proposed():
    watch = Watch(600.0, 0.2)
    end = _judged_worse(watch, _rules(9000), _rules(5000))
    watch.not_possible(end, "held")
    rules, why = watch.to_restore(_rules(5000), end + 30)
    assert rules == _rules(9000) and why.startswith("rolled back: 6")
    watch.rolled_back(end + 30, why)
    assert not watch.may_roll_back(end + 60) and "rolled back" in watch.again(_rules(5000), end + 60, 100.0)
    for later, demand in ((601.0, 100.0), (30.0, 150.0)):
        watch = Watch(600.0, 0.2)
        end = _judged_worse(watch, _rules(9000), _rules(5000))
        watch.not_possible(end, "held")
        _watched(watch, end + later - 1, [60.0], demand=demand)
        assert watch.to_restore(_rules(5000), end + later) is None, "too late, or at another load"


def test_rules_that_are_worse_soon_after_a_rollback_refuse_the_way_to_both_and_nothing_else():
    """The second change may not be rolled back for ten minutes.

    Until then, a candidate that moves away from it is proposed: another destination, another route,
    less of the same, or the rules before it. More of it is refused, and so is a move towards the
    rules that were rolled back.
    """
    watch, other = Watch(600.0, 0.2), RuleKey("east", "web", "db GET /x")

    def rules(west, **more):
        return {KEY: {"west": west, "east": 10_000 - west}, other: {"east": 10_000}, **more}

    end = _judged_worse(watch, rules(9000), rules(5000))
    watch.rolled_back(end, "worse")
    at = _watched(watch, end, _noise(1, 30.0, 10))
    second = {**rules(9000), other: {"east": 4000, "third": 6000}}
    watch.changed(at, rules(9000), second, 100.0)
    now = _watched(watch, at + 12.0, _noise(2, 60.0, 4))
    assert watch.trial.worse and watch.to_restore(second, now) is None and now < end + 600

    def refused(candidate, demand=100.0, in_force=second):
        return watch.again(candidate, now, demand, in_force)

    for better in ({"east": 10_000}, {"east": 7000, "third": 3000}, {"west": 10_000}):
        assert refused({**second, other: better}) is None, better
    assert refused({**second, KEY: {"third": 10_000}}) is None, "another route"
    assert "tried" in refused({**second, KEY: {"west": 6000, "east": 4000}}), "what was rolled back"
    assert "tried" in refused({**rules(6000), other: {"west": 10_000}}), "and leaves the second"
    # In force while the publisher moves in steps.
    part = {**second, other: {"east": 8000, "third": 2000}}
    assert "last rollback is too recent" in refused(second, in_force=part), "more of it"
    assert refused(second, 150.0, part) is None, "at another load"


def test_what_failed_on_one_route_is_refused_however_much_another_moves():
    watch, other = Watch(600.0, 0.2), RuleKey("west", "web", "cache GET /y")
    before = {**_rules(9000), other: {"west": 10_000}}
    after = {**_rules(5000), other: {"west": 9_990, "east": 10}}
    end = _judged_worse(watch, before, after)
    watch.rolled_back(end, "worse")
    moved = {other: {"east": 10_000}}
    assert watch.again({**_rules(5000), **moved}, end + 10, 100.0, before) is not None
    assert watch.again({**_rules(9000), **moved}, end + 10, 100.0, before) is None
    assert watch.again({**_rules(8990), **moved}, end + 10, 100.0, before) is None, "rounding"
    assert watch.again({**_rules(9000), other: after[other]}, end + 10, 100.0, before) is None, "rounding"


class _Observed:
    """A mesh with a latency of 25 ms on its boards, or of `ms` for the first application."""

    def __init__(self, mesh):
        self.mesh, self.now, self.ms, self.seed = mesh, NOW, 25.0, random.Random(7)

    async def run(self, count, change=lambda d: None):
        """Runs `count` times, every 6 s. Returns the rows by application of every run."""
        every = []
        for _ in range(count):

            def told(d):
                for entries in d["demand"].values():
                    for class_id, entry in entries.items():
                        own = 25.0 if class_id.startswith(OTHER) else self.ms
                        entry["duration_ms"] = own * self.seed.lognormvariate(0.0, 0.05)
                change(d)

            every.append(await self.mesh.solve(self.now, told))
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


async def test_rules_that_did_harm_are_rolled_back_and_not_tried_again_at_once(settings, tmp_path):
    """A wrong capacity moves traffic, and requests take three times as long.

    The previous rules are in force again within a minute and a half, with the figures in the row.
    They stay for ten minutes. The other application's rules do not change.
    """
    mesh = Mesh(settings, tmp_path)
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
    assert mesh.solving.watches["gateway"].trial is None
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
        if watch is mesh.solving.watches["gateway"]:
            raise ValueError("sample: nan; must be finite")
        observe(watch, sample)

    monkeypatch.setattr(Watch, "observe", failing)
    rows = await world.run(3)
    assert {row["outcome"] for run in rows for row in run.values()} <= {"renewed", "unchanged"}, rows
    assert mesh.rules() == before and mesh.states.counters["internal_errors"] == 3
    assert len(mesh.solving.watches[OTHER + "gateway"].recent) > len(mesh.solving.watches["gateway"].recent)
