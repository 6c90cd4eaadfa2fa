"""PAPA of several applications: rules that do not interact are explored at the same time."""

import asyncio
import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mesh import NOW
from spillway_contracts import topology
from spillway_contracts.guardrails import GuardrailFile
from spillway_optimizer.inputs import telemetry
from spillway_optimizer.inputs.guardrails import Follower
from spillway_optimizer.papa.applications import partition
from spillway_optimizer.papa.checkpoint import Checkpoint, Trial, joined
from spillway_optimizer.papa.mesh import Interrupted
from spillway_optimizer.papa.sharing import Shared
from spillway_optimizer.papa.step import Progress
from spillway_optimizer.problem.rules import RuleKey
from spillway_optimizer.process.states import States
from spillway_optimizer.solving.config import OptimizerTuning, PapaTuning
from spillway_optimizer.steps.stepping import Stepping
from stepped import observed, rules_of
from two_applications import OTHER, document, topology_text

ENTRY, FRONTEND, BACKEND = (f"{name} GET /items/{{id}}" for name in ("gateway", "frontend", "backend"))
BOTH = ("", OTHER)


@pytest.fixture
def mesh(tmp_path):
    """mesh(**papa): both applications, whose frontends in east are slower than their curves."""
    (tmp_path / "topology.yaml").write_text(topology_text())
    declared = topology.load(tmp_path / "topology.yaml")
    return lambda **papa: Stepped(declared, **papa)


class Stepped:
    """Users of each application feel the share of its own calls that go to east, and no other."""

    def __init__(self, declared, **papa) -> None:
        file = GuardrailFile(None, declared)
        self.stepping = Stepping(
            declared, "spillway", file, OptimizerTuning(), PapaTuning(direction="gap", **papa)
        )
        self.rules, self.at, self.steps, self.lacking = {}, NOW, [], False
        self.also: list[dict] = []  # further rows of call_ratios

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.at += 1
            model = observed(document(), self.at)
            model["call_ratios"] += self.also
            for prefix in BOTH:
                model["load"]["east"][prefix + FRONTEND]["exclusive_ms"] += 200.0
                for cluster in ("west", "east"):
                    key = RuleKey(cluster, f"{prefix}gateway", prefix + FRONTEND)
                    there = self.rules.get(key, {}).get("east", 0) / 10_000
                    model["demand"][cluster][prefix + ENTRY]["duration_ms"] = 60.0 + 200.0 * there
            if self.lacking:
                for table in ("curves", "capacities"):
                    model[table] = [row for row in model[table] if not row["service"].startswith(OTHER)]
            answer = self.stepping.step(self.at, telemetry.from_document(model))
            self.rules = rules_of(answer)
            self.steps += answer["papa_steps"]

    def kept(self, prefix: str) -> int:
        of = [s for s in self.steps if s["class"].startswith(OTHER) == (prefix == OTHER)]
        return sum(step["outcome"] == "kept" for step in of)


def test_applications_are_explored_at_the_same_time(mesh):
    """In the same time, twice the steps are kept: all that there are, in each of the two."""
    together, one_by_one = mesh(), mesh(scope="mesh")
    for each in (together, one_by_one):
        each.run(140)
    at_once, in_turn = ([each.kept(prefix) for prefix in BOTH] for each in (together, one_by_one))
    assert at_once == [3, 3] and sum(in_turn) <= 3


def test_what_an_application_lacks_holds_up_no_other(mesh):
    """The other one has no curves and no capacities, so its gaps and costs are unknown."""
    found = mesh()
    found.run(2)
    found.lacking = True
    found.run(200)
    assert found.kept("") >= 1 and found.kept(OTHER) == 0


def test_applications_that_come_to_interact_are_explored_together(mesh):
    """A call from one to the other appears. A step that was not judged yet is rolled back."""
    found = mesh()
    found.run(70)
    row = next(r for r in document()["call_ratios"] if r["class"] == BACKEND)
    found.also = [row | {"class": OTHER + BACKEND, "service": OTHER + "backend", "calls_per_request": 0.01}]
    before = len(found.steps)
    found.run(20)
    assert len(found.stepping._turning) == 1
    found.run(200)
    assert {step["outcome"] for step in found.steps[before:]} <= {"kept", "rolled_back", "superseded"}
    assert found.kept("") + found.kept(OTHER) >= 1


def test_an_edge_that_comes_and_goes_ends_no_application_after_the_first_time(mesh):
    """What was one application once stays one, whether its parts interact or not."""
    found = mesh()
    row = next(r for r in document()["call_ratios"] if r["class"] == BACKEND)
    edge = row | {"class": OTHER + BACKEND, "service": OTHER + "backend", "calls_per_request": 0.01}
    works = []
    for number in range(6):
        found.also = [edge] if number % 2 else []
        found.run(10)
        works.append([turning.work for turning in found.stepping._turning.values()])
    assert [len(each) for each in works] == [2, 1, 1, 1, 1, 1]
    assert all(each == works[1] for each in works[2:])


async def test_applications_that_load_at_the_same_time_share_one_stored_checkpoint():
    """None keeps a copy of what others have, and nothing old is stored over what is new."""
    first, second = (RuleKey("west", "web", f"{name} GET /") for name in "ab")
    stored = joined(Checkpoint(trial=Trial(key, {"west": 1}, {"west": 2}, 9.0, 5)) for key in (first, second))
    slow = SlowMesh(stored.to_json())
    shared = Shared(slow, States(logging.getLogger("test")))
    loaded = await asyncio.gather(
        *(shared.taken(key.class_id, frozenset([key.class_id])) for key in (first, second))
    )
    trials = [found.trial or next(iter(found.parked.values())) for found in loaded]
    assert [trial.key for trial in trials] == [first, second]
    await asyncio.gather(*(shared.save(key.class_id, Checkpoint()) for key in (first, second)))
    assert Checkpoint.from_json(slow.stored) == Checkpoint()


async def test_nothing_is_stored_without_the_lease():
    """Another process may lead by now, and what it has stored must stay."""
    slow = SlowMesh(None)
    shared = Shared(slow, States(logging.getLogger("test")))
    await shared.taken("a", frozenset(["a GET /"]))
    slow.lease = False
    with pytest.raises(Interrupted, match="the lease ran out"):
        await shared.save("a", Checkpoint())
    assert slow.stored is None


class SlowMesh:
    """A store that answers later. Later requests are answered sooner."""

    def __init__(self, stored: str | None) -> None:
        self.stored, self.lease, self.delay_s = stored, True, 0.02

    def held(self) -> bool:
        return self.lease

    async def load(self) -> str | None:
        found = self.stored
        await self._later()
        return found

    async def save(self, checkpoint: str) -> None:
        await self._later()
        self.stored = checkpoint

    async def _later(self) -> None:
        self.delay_s /= 2
        await asyncio.sleep(self.delay_s)


def test_an_application_has_what_its_requests_can_reach():
    """Also without requests now. A rule belongs to its caller's application."""
    read = telemetry.from_document(document())
    found = partition(read, {}, NOW)
    assert len(found) == 2 and {len(classes) for classes in found.values()} == {3}
    stranger = RuleKey("west", OTHER + "frontend", "cart GET /x")
    found = partition(read, {stranger: {"west": 10_000}}, NOW)
    assert {"cart GET /x", OTHER + BACKEND} <= next(c for c in found.values() if "cart GET /x" in c)


def test_each_follower_of_the_guardrail_file_sees_a_change_once(tmp_path):
    (tmp_path / "topology.yaml").write_text(topology_text())
    path = tmp_path / "guardrails.yaml"
    path.write_text("minimum_share: 100")
    file = GuardrailFile(path, topology.load(tmp_path / "topology.yaml"))
    first, second = Follower(file), Follower(file)
    path.write_text("minimum_share: 2000")
    file.changed()
    assert file.changed() and first.changed() and second.changed()
    assert not first.changed() and second.current.minimum_share == 2000


names = st.sampled_from(["a GET /", "b GET /", "c GET /", "d GET /"])
keys = st.builds(lambda c, k: RuleKey(c, "web", k), st.sampled_from(["west", "east"]), names)
weights = st.just({"west": 4000, "east": 6000})
trials = st.builds(Trial, keys, weights, weights, st.just(50.0))
checkpoints = st.builds(
    Checkpoint,
    st.builds(
        Progress,
        st.dictionaries(keys, st.integers(0, 3)),
        st.frozensets(keys),
        st.dictionaries(keys, st.just(0.1)),
    ),
    st.none() | st.dictionaries(keys, weights),
    st.dictionaries(names.map(lambda k: f"west {k}"), st.just(9.0)),
    st.none() | trials,
    st.just({}),
)


@given(checkpoints, st.frozensets(names))
def test_a_checkpoint_that_is_split_and_joined_is_the_same(whole, classes):
    parts = whole.split(classes)
    assert joined(parts) == whole
    assert Checkpoint.from_json(json.dumps(json.loads(joined(parts).to_json()))) == whole


@given(st.lists(trials, min_size=2, max_size=4, unique_by=lambda trial: trial.key))
def test_no_trial_is_lost_where_several_are_stored(several):
    """A restart rolls back each of them, also one of a version that knows only one trial."""
    stored = joined(Checkpoint(trial=trial) for trial in several)
    assert {stored.trial.key, *stored.parked} == {trial.key for trial in several}
