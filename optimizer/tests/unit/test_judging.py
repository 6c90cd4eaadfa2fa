"""A change is compared with what was before it: one that did harm is taken back, noise takes nothing back."""

import random

import pytest
from mesh import NOW, Mesh
from spillway_contracts.guardrails import GuardrailFile
from spillway_optimizer.judging import Sample, Watch
from spillway_optimizer.rules import RuleKey, max_difference, stepped
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
    """Twice as slow as before and as predicted, under noise of a tenth: seconds after the change has settled."""
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
    """A change without effect, two hundred times: at most one in a hundred may be judged worse, by design."""
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
    """Slower as predicted (its load grew a little); or the load moved, so that nothing can be compared."""
    watch = Watch(600.0, 0.2)
    at = _watched(watch, 0.0, _noise(1, 30.0, 10))
    watch.changed(at, _rules(9000), _rules(5000), 100.0)
    _watched(watch, at + 12.0, _noise(2, 60.0, 10), predicted, demand)
    assert watch.trial is None or not watch.trial.worse


def test_a_model_that_is_wrong_before_and_after_is_no_harm():
    """Twice as slow as predicted all along, and a little faster after the change."""
    watch = Watch(600.0, 0.2)
    at = _watched(watch, 0.0, _noise(1, 60.0, 10))
    watch.changed(at, _rules(9000), _rules(5000), 100.0)
    _watched(watch, at + 12.0, _noise(2, 55.0, 12), predicted=20.0)
    assert not watch.trial.worse


def test_a_change_on_top_of_one_that_is_judged_is_judged_with_it():
    """What is rolled back to is what was there before the first of them."""
    watch = Watch(600.0, 0.2)
    at = _watched(watch, 0.0, _noise(1, 30.0, 10))
    watch.changed(at, _rules(9000), _rules(7000), 100.0)
    watch.changed(at + 6, _rules(7000), _rules(5000), 100.0)
    _watched(watch, at + 18.0, _noise(2, 60.0, 5))
    assert watch.trial.worse and watch.trial.before == _rules(9000) and watch.trial.after == _rules(5000)


class _Observed:
    """Boards whose latency is 25 ms, or what is said."""

    def __init__(self, mesh):
        self.mesh, self.now, self.ms, self.seed = mesh, NOW, 25.0, random.Random(7)

    async def run(self, count, change=lambda d: None):
        """The rows of every run, by application; a run each 6 s."""
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
    """Someone believes that west's backend can do half."""
    for row in d["capacities"]:
        if (row["service"], row["cluster"]) == ("backend", "west"):
            row["capacity_rps"] *= 0.6


async def test_rules_that_did_harm_are_rolled_back_and_not_tried_again_at_once(settings, tmp_path):
    """A wrong capacity moves traffic, and requests take three times as long: the rules of before are in force again
    within a minute and a half, with the figures in the row, and stay for ten minutes; the other application stays."""
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
    """Of 10 % at a time: what moved in steps goes back in steps, all the way."""
    mesh = Mesh(settings, tmp_path)
    (tmp_path / "guardrails.yaml").write_text("maximum_shift: 1000")
    mesh.solving.guardrails = GuardrailFile(tmp_path / "guardrails.yaml", mesh.topology)
    world = _Observed(mesh)
    await world.run(20)
    before = mesh.rules()
    await world.run(6, _less)
    assert max_difference(mesh.rules(), before) > 1000
    world.ms = 75.0
    rows = [r["gateway"]["outcome"] for r in await world.run(20, _less)]
    assert rows.count("rolled_back") > 1 and max_difference(mesh.rules(), before) <= 1
    assert stepped({"west": 9000, "east": 1000}, {"west": 1000, "east": 9000}, 0.1) == {
        "west": 8000,
        "east": 2000,
    }


async def test_rules_that_did_no_harm_stay(settings, tmp_path):
    """The same change, and requests take as long as before: nothing is rolled back."""
    mesh = Mesh(settings, tmp_path)
    world = _Observed(mesh)
    await world.run(8)
    before = mesh.rules()
    rows = await world.run(30, _less)
    assert mesh.rules() != before
    assert all(row["outcome"] != "rolled_back" for run in rows for row in run.values())


async def test_the_policy_is_the_operators_choice(settings, tmp_path):
    """Another policy is followed, and requests take three times as long: it stays, and so does the way back."""
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
