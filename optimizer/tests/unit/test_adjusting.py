"""PAPA with its mesh and its watch in memory: which steps it keeps and which it rolls back."""

import dataclasses
import logging
import math
import random
from pathlib import Path

import pytest
from google.protobuf import json_format
from spillway.v1.ruleset_pb2 import Origin, Ruleset
from spillway_contracts import topology
from spillway_contracts.guardrails import GuardrailFile
from spillway_contracts.hot_state import UnknownEntry
from spillway_optimizer.inputs.in_force import InForce
from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.papa.adjusting import Adjusting
from spillway_optimizer.papa.checkpoint import Checkpoint, Trial
from spillway_optimizer.papa.mesh import Interrupted
from spillway_optimizer.papa.observe import Sample, measure
from spillway_optimizer.problem.rules import RuleKey, of_ruleset
from spillway_optimizer.process.states import States
from spillway_optimizer.solving.config import PapaTuning

GOLDEN = Path(__file__).resolve().parents[3] / "contracts" / "golden"
TOPOLOGY = topology.load(GOLDEN / "topology.yaml")
MEAN_MS, NOISE_MS = 50.0, 5.0
WINDOWS = PapaTuning.model_fields["windows"].default


class Mesh:
    """Rules in force and request times, in place of the mesh and the watch.

    A proposal is in force at once.
    """

    def __init__(self, seed: int, after_ms: float) -> None:
        """`after_ms`: how long requests take while the rules differ from the initial ones."""
        self.chance, self.after_ms, self.outcomes = random.Random(seed), after_ms, []
        self.known = Telemetry()  # nothing is unknown
        self.measured = 0  # how often the rules in force were measured before a step
        self.ruleset = json_format.Parse((GOLDEN / "5_ruleset.json").read_text(), Ruleset())
        self.ruleset.version = 9
        self.rules = self.begin = of_ruleset(self.ruleset)
        self.key = next(k for k, w in self.rules.items() if k.source_cluster == "west" and len(w) > 1)
        self.rps = {self.key: 100.0}  # requests per second of the observed rules
        self.most: int | None = None  # parts of 10 000 of a rule that the publisher lets move
        self.ruleset_id = "r"
        states = States(logging.getLogger("test"))
        self.papa = Adjusting(PapaTuning(), TOPOLOGY, self, GuardrailFile(None, TOPOLOGY), states)
        self.papa.watch = self
        self.papa.checkpoint = Checkpoint()

    async def turn(self) -> None:
        self.papa.checkpoint = dataclasses.replace(self.papa.checkpoint, rules=None, latency_ms={})
        await self.papa._iterate()

    async def in_force(self) -> InForce:
        return InForce(
            self.rules, self.ruleset.origin, self.ruleset.policy, {"west": 9}, self.ruleset_id,
            {"west": self.ruleset},
        )  # fmt: skip

    def sample(self) -> Sample:
        """One destination is worse than predicted, and the others are better.

        So there is always a step to try.
        """
        at = MEAN_MS if self.rules == self.begin else self.after_ms
        gaps = {}
        for key in self.rps:
            slow, *_ = sorted(self.rules[key])
            for cluster in self.rules[key]:
                gaps[key, cluster] = (-30 if cluster == slow else 10) + self.chance.gauss(0, 0.1)
        costs = {pair: -gap for pair, gap in gaps.items()}
        return Sample(at + self.chance.gauss(0, NOISE_MS), 0.0, {}, gaps, costs, self.rps)

    # Stand-ins for the watch.

    async def complete(self, *_: object, **__: object) -> InForce:
        return await self.in_force()

    async def measure(self, _: InForce):
        self.measured += 1
        return measure([self.sample() for _ in range(WINDOWS)])

    async def samples(self, _: InForce, windows: int):
        for _ in range(windows):
            yield self.sample()

    async def until(self, arrived) -> InForce:
        assert arrived(await self.in_force())
        return await self.in_force()

    async def settle(self, _: float) -> None:
        pass

    # Stand-ins for the mesh.

    fencing_token = 7

    def held(self) -> bool:
        return True

    def now(self) -> float:
        return 1767225631.0

    async def telemetry(self) -> Telemetry:
        return self.known

    async def save(self, _: str) -> None:
        pass

    async def publish(self, step: Ruleset) -> None:
        self.ruleset_id = step.id
        for key, weights in of_ruleset(step).items():
            before = self.rules[key]
            moved = {c: weights.get(c, 0) - before.get(c, 0) for c in {*weights, *before}}
            longest = max(moved.values())
            if self.most is not None and longest > self.most:
                weights = {c: before.get(c, 0) + m * self.most // longest for c, m in moved.items()}
            if weights != before:
                self.changed(key)
            self.rules = {**self.rules, key: weights}

    def changed(self, key: RuleKey, by: Origin = Origin.ORIGIN_PAPA) -> None:
        """Stamps the rule as the publisher does."""
        self.ruleset.version += 1
        for rule in self.ruleset.rules:
            if (rule.source_cluster, rule.source_service) == key[:2] and key.class_id.startswith(
                rule.traffic_class.service + " "
            ):
                rule.changed_by, rule.changed_version = by, self.ruleset.version

    def add(self, _: str, row: dict) -> None:
        self.outcomes.append(row["outcome"])


async def _first_outcomes(after_ms: float, runs: int) -> list[str]:
    """Returns the outcome of the first step in each run."""
    found = []
    for seed in range(runs):
        mesh = Mesh(seed, after_ms)
        await mesh.turn()
        found.append(mesh.outcomes[0])
        weights = mesh.rules[mesh.key]
        assert (weights == mesh.begin[mesh.key]) == (found[-1] == "rolled_back")
    return found


async def test_a_step_that_changes_nothing_is_kept_no_more_often_than_alpha():
    """Such a step is rolled back to the previous weights.

    Two means of noise always differ, and the later one is lower half of the time. That is no reason
    to keep a step.
    """
    runs = 300
    kept = (await _first_outcomes(MEAN_MS, runs)).count("kept")
    alpha = PapaTuning.model_fields["alpha"].default
    assert kept / runs <= alpha + 3 * math.sqrt(alpha * (1 - alpha) / runs)


@pytest.mark.parametrize(("after_ms", "outcome"), [(MEAN_MS - 15, "kept"), (MEAN_MS + 15, "rolled_back")])
async def test_a_step_that_helps_is_kept_and_one_that_harms_is_rolled_back(after_ms, outcome):
    """A change of three standard deviations is found in nearly every run."""
    found = await _first_outcomes(after_ms, 50)
    assert found.count(outcome) >= 48


@pytest.mark.parametrize(("after_ms", "outcome"), [(MEAN_MS - 15, "kept"), (MEAN_MS + 15, "rolled_back")])
async def test_what_the_guardrails_leave_of_a_step_is_judged(after_ms, outcome):
    """The publisher bounds a step more tightly than PAPA knows, by an act of an operator."""
    mesh = Mesh(1, after_ms)
    before, mesh.most = mesh.begin[mesh.key], 100
    await mesh.turn()
    assert mesh.outcomes == [outcome] and mesh.papa.checkpoint.trial is None
    moved = max(w - before[c] for c, w in mesh.rules[mesh.key].items())
    assert moved == (100 if outcome == "kept" else 0)
    assert mesh.papa.checkpoint.rules[mesh.key] == mesh.rules[mesh.key]


async def test_a_step_of_which_nothing_is_left_is_a_failed_attempt():
    """After some of them, PAPA goes on with other rules."""
    mesh = Mesh(1, MEAN_MS - 15)
    mesh.most = 0
    for attempts in range(1, mesh.papa.parameters.theta + 1):
        await mesh.turn()
        assert mesh.outcomes == ["superseded"] * attempts and mesh.papa.checkpoint.trial is None
    assert mesh.rules == mesh.begin and mesh.key in mesh.papa.checkpoint.progress.converged


async def test_a_shortened_step_is_found_though_another_version_follows_at_once():
    """Another application, or the optimizer, publishes before PAPA looks."""
    mesh = Mesh(1, MEAN_MS + 15)
    before, mesh.most = mesh.begin[mesh.key], 100
    publish = mesh.publish

    async def and_others(step: Ruleset) -> None:
        await publish(step)
        mesh.ruleset_id = "another"

    mesh.publish = and_others
    await mesh.turn()
    assert mesh.outcomes == ["rolled_back"] and mesh.rules[mesh.key] == before


async def test_a_shortened_step_is_rolled_back_after_a_crash():
    """The process ended after it had published, and before it knew what was left of the step."""
    mesh = Mesh(1, MEAN_MS)
    before = mesh.begin[mesh.key]
    (giver, *_), (taker, *_) = sorted(before), sorted(before, reverse=True)
    left = before | {giver: before[giver] - 100, taker: before[taker] + 100}
    wished = before | {giver: before[giver] - 500, taker: before[taker] + 500}
    base = mesh.ruleset.version
    mesh.changed(mesh.key)
    mesh.rules = {**mesh.rules, mesh.key: left}
    mesh.papa.checkpoint = Checkpoint(trial=Trial(mesh.key, dict(before), wished, MEAN_MS, base))
    await mesh.papa._iterate()
    assert mesh.outcomes == ["rolled_back"] and mesh.rules == mesh.begin


@pytest.mark.parametrize("key", ["kill", "freeze"])
async def test_no_step_is_tried_or_rolled_back_while_the_guardrails_hold_the_weights(key):
    """PAPA waits, and says why. A step that it had not judged yet is rolled back afterwards."""
    mesh = Mesh(1, MEAN_MS)
    free = mesh.papa.guardrails.current
    mesh.papa.guardrails.current = free.model_copy(update={key: True})
    with pytest.raises(Interrupted, match=f"{key}: true in the guardrails"):
        await mesh.turn()
    before, tried = mesh.begin[mesh.key], {"east": 10_000}
    mesh.rules = {**mesh.rules, mesh.key: tried}
    mesh.papa.checkpoint = Checkpoint(trial=Trial(mesh.key, dict(before), tried, MEAN_MS))
    with pytest.raises(Interrupted):
        await mesh.papa._iterate()
    assert mesh.outcomes == [] and mesh.rules[mesh.key] == tried
    mesh.papa.guardrails.current = free
    await mesh.papa._iterate()
    assert mesh.outcomes == ["rolled_back"] and mesh.rules == mesh.begin


async def test_a_rule_that_others_change_during_its_last_attempt_is_not_converged(monkeypatch):
    """The optimizer changes the rule while PAPA is about to roll back its third failed step.

    Nothing is rolled back, and the progress made with the old weights is forgotten.
    """
    mesh = Mesh(1, MEAN_MS + 15)
    for _ in range(mesh.papa.parameters.theta - 1):
        await mesh.turn()
    assert mesh.papa.checkpoint.progress.attempts[mesh.key] == mesh.papa.parameters.theta - 1
    theirs = {cluster: 10_000 // len(mesh.rules[mesh.key]) for cluster in mesh.rules[mesh.key]}
    complete = mesh.complete

    async def changed_meanwhile(*arguments: object, settled: bool = True) -> InForce:
        if not settled:
            mesh.rules = {**mesh.rules, mesh.key: theirs}
            mesh.changed(mesh.key, Origin.ORIGIN_OPTIMIZER)
        return await complete(*arguments)

    monkeypatch.setattr(mesh, "complete", changed_meanwhile)
    await mesh.turn()
    progress = mesh.papa.checkpoint.progress
    assert mesh.key not in progress.converged and mesh.key not in progress.attempts
    assert mesh.rules[mesh.key] == theirs


UNKNOWN = [{"*": UnknownEntry(0.0, "no spans")}, {"backend": UnknownEntry(0.0, "no totals")}]


@pytest.mark.parametrize("unknown", UNKNOWN)
@pytest.mark.parametrize("interrupted", [True, False])
async def test_a_harmful_step_whose_source_is_unknown_waits_while_other_rules_go_on(
    unknown, interrupted, monkeypatch
):
    """PAPA moved weight from east to west, and then east becomes unknown.

    The step stays, because no weight towards east may rise. PAPA tries other rules meanwhile. When
    east is known again, the previous weights are restored.
    """
    mesh = Mesh(1, MEAN_MS + 15)
    mesh.key = next(k for k in mesh.rules if k.source_cluster == "west" and k.class_id.startswith("backend"))
    mesh.rps = {mesh.key: 100.0}
    before, samples = mesh.begin[mesh.key], mesh.samples

    async def lost(*arguments):
        mesh.known = Telemetry(unknown={"east": unknown})
        if interrupted:
            raise Interrupted("superseded: others changed the policy")
        async for window in samples(*arguments):
            yield window

    mesh.samples = lost
    if interrupted:
        with pytest.raises(Interrupted, match="others changed the policy"):
            await mesh.papa._iterate()
    else:
        await mesh.papa._iterate()
    after, mesh.samples = mesh.rules[mesh.key], samples
    assert after["east"] < before["east"]
    await mesh.papa._iterate()
    assert mesh.rules[mesh.key] == after and "rolled_back" not in mesh.outcomes

    other = next(k for k in mesh.rules if k.source_cluster == "west" and k != mesh.key)
    mesh.rps = {mesh.key: 1000.0, other: 100.0}
    mesh.begin, mesh.after_ms = mesh.rules, MEAN_MS - 15
    mesh.papa.checkpoint = Checkpoint.from_json(mesh.papa.checkpoint.to_json())
    await mesh.papa._iterate()
    assert mesh.outcomes[-1] == "kept" and mesh.rules[other]["east"] < mesh.begin[other]["east"]
    assert mesh.rules[mesh.key] == after

    mesh.known, mesh.rps = Telemetry(), {}
    await mesh.papa._iterate()
    assert mesh.rules[mesh.key] == before and mesh.outcomes.count("rolled_back") == 1
    assert not mesh.papa.checkpoint.parked
    # Neither the wait nor the rollback counts as a change by others, so the progress is kept.
    assert mesh.papa.checkpoint.progress.attempts.get(mesh.key, 0) == (0 if interrupted else 1)


@pytest.mark.parametrize("unknown", UNKNOWN)
async def test_a_step_towards_what_is_unknown_is_not_tried_and_hinders_no_other(unknown):
    """The rule with the widest gaps would send more to west, which is unknown.

    PAPA tries the next rule. A step that takes weight from an unknown cluster goes ahead.
    """
    mesh = Mesh(1, MEAN_MS - 15)
    backend, frontend = sorted(k for k in mesh.rules if k.source_cluster == "west")
    mesh.known = Telemetry(unknown={"west": {"backend": UnknownEntry(0.0, "no totals")}})
    mesh.rps = {backend: 1000.0, frontend: 100.0}
    await mesh.turn()
    assert mesh.rules[backend] == mesh.begin[backend]
    assert mesh.rules[frontend]["west"] > mesh.begin[frontend]["west"]
    mesh = Mesh(1, MEAN_MS - 15)
    mesh.known = Telemetry(unknown={"east": unknown})
    mesh.key, mesh.rps = backend, {backend: 100.0}
    await mesh.turn()
    assert mesh.rules[backend]["east"] < mesh.begin[backend]["east"]


async def test_a_step_that_gave_to_what_is_unknown_is_rolled_back():
    """The rollback takes weight from the unknown cluster, so it need not wait."""
    mesh = Mesh(1, MEAN_MS)
    mesh.known = Telemetry(unknown={"west": UNKNOWN[0]})
    before = mesh.rules[mesh.key]
    after = {**before, "east": before["east"] - 500, "west": before["west"] + 500}
    mesh.papa.checkpoint = Checkpoint(trial=Trial(mesh.key, before, after, 31.5))
    mesh.rules = {**mesh.rules, mesh.key: after}
    await mesh.papa._iterate()
    assert mesh.rules[mesh.key] == before and mesh.papa.checkpoint.trial is None


async def test_what_was_measured_after_a_step_that_is_kept_is_before_the_next():
    """The next step needs no new windows, and is twice as long. Others' rules are measured anew."""
    mesh = Mesh(1, after_ms=20.0)
    await mesh.turn()
    assert (mesh.outcomes, mesh.measured) == (["kept"], 1)
    first = dict(mesh.rules[mesh.key])
    await mesh.turn()
    assert mesh.measured == 1
    mesh.rules = {**mesh.rules, mesh.key: first}
    await mesh.turn()
    assert mesh.measured == 2


async def test_rules_of_an_application_that_fell_back_are_left_alone():
    """They follow another policy, whose weights nothing predicts."""
    mesh = Mesh(1, after_ms=20.0)
    fallen = dataclasses.replace(await mesh.in_force(), policies={mesh.key: "l3"})
    before = await mesh.measure(fallen)
    assert await mesh.papa._choose(fallen, before) is None
    assert await mesh.papa._choose(await mesh.in_force(), before) is not None


async def test_what_was_measured_before_a_freeze_is_no_measurement_after_it():
    """Load falls during the freeze, and the same rules take 10 ms. A step to 18 ms is harmful."""
    mesh = Mesh(1, MEAN_MS / 2)
    await mesh.turn()
    assert mesh.outcomes == ["kept"]
    kept, free, real = dict(mesh.rules), mesh.papa.guardrails.current, mesh.sample
    mesh.papa.guardrails.current = free.model_copy(update={"freeze": True})
    await mesh.papa.turn()
    mesh.papa.guardrails.current = free

    def sample() -> Sample:
        now_ms = 10.0 if mesh.rules == kept else 18.0
        return dataclasses.replace(real(), objective_ms=now_ms + mesh.chance.gauss(0, 1))

    mesh.sample = sample
    await mesh.turn()
    assert mesh.outcomes[-1] == "rolled_back"
