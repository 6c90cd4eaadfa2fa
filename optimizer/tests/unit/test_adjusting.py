"""PAPA with its mesh and its watch in memory: which steps it keeps and which it rolls back."""

import dataclasses
import logging
import math
import random
from pathlib import Path

import pytest
from google.protobuf import json_format
from spillway.v1.ruleset_pb2 import Ruleset
from spillway_contracts import topology
from spillway_contracts.guardrails import GuardrailFile
from spillway_contracts.hot_state import UnknownEntry
from spillway_optimizer.inputs.in_force import InForce
from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.papa.adjusting import Adjusting
from spillway_optimizer.papa.checkpoint import Checkpoint, Trial
from spillway_optimizer.papa.mesh import Interrupted
from spillway_optimizer.papa.observe import Sample, measure
from spillway_optimizer.problem.rules import of_ruleset
from spillway_optimizer.process.states import States
from spillway_optimizer.solving.config import PapaTuning

GOLDEN = Path(__file__).resolve().parents[3] / "contracts" / "golden"
TOPOLOGY = topology.load(GOLDEN / "topology.yaml")
PREDICTED_MS, MEAN_MS, NOISE_MS = 20.0, 50.0, 5.0
WINDOWS = PapaTuning.model_fields["windows"].default


class Mesh:
    """Rules in force and request times, in place of the mesh and the watch.

    A proposal is in force at once.
    """

    def __init__(self, seed: int, after_ms: float) -> None:
        """`after_ms`: how long requests take while the rules differ from the initial ones."""
        self.chance, self.after_ms, self.outcomes = random.Random(seed), after_ms, []
        self.known = Telemetry()  # nothing is unknown
        self.ruleset = json_format.Parse((GOLDEN / "5_ruleset.json").read_text(), Ruleset())
        self.ruleset.version = 9
        self.rules = self.begin = of_ruleset(self.ruleset)
        self.key = next(k for k, w in self.rules.items() if k.source_cluster == "west" and len(w) > 1)
        self.rps = {self.key: 100.0}  # requests per second of the observed rules
        states = States(logging.getLogger("test"))
        self.papa = Adjusting(PapaTuning(), TOPOLOGY, self, GuardrailFile(None, TOPOLOGY), states)
        self.papa.watch = self
        self.papa.checkpoint = Checkpoint()

    async def turn(self) -> None:
        self.papa.checkpoint = dataclasses.replace(self.papa.checkpoint, rules=None, latency_ms={})
        await self.papa._iterate()

    async def in_force(self) -> InForce:
        return InForce(
            self.rules, self.ruleset.origin, self.ruleset.policy, {"west": 9}, "r", {"west": self.ruleset}
        )

    def sample(self) -> Sample:
        """One destination is worse than predicted, and the others are better.

        So there is always a step to try.
        """
        at = MEAN_MS if self.rules == self.begin else self.after_ms
        observed = {}
        for key in self.rps:
            slow, *_ = sorted(self.rules[key])
            for cluster in self.rules[key]:
                ms = PREDICTED_MS + (30 if cluster == slow else -10) + self.chance.gauss(0, 0.1)
                observed[key, cluster] = ms
        return Sample(at + self.chance.gauss(0, NOISE_MS), 0.0, {}, observed, self.rps)

    # Stand-ins for the watch.

    async def complete(self, *_: object, **__: object) -> InForce:
        return await self.in_force()

    async def measure(self, _: InForce):
        expected_ms = {(key, cluster): PREDICTED_MS for key in self.rps for cluster in self.rules[key]}
        return measure([self.sample() for _ in range(WINDOWS)], expected_ms)

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
        self.rules = {**self.rules, **of_ruleset(step)}

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
