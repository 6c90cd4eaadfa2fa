"""PAPA's worker with its servers in memory: what it keeps of a step, and what it rolls back."""

import math
import random
from pathlib import Path
from types import SimpleNamespace

import pytest
from google.protobuf import json_format
from spillway.v1.ruleset_pb2 import Ruleset
from spillway_contracts import topology
from spillway_optimizer.config import Papa
from spillway_optimizer.hot import InForce
from spillway_optimizer.papa import worker
from spillway_optimizer.papa.checkpoint import Checkpoint
from spillway_optimizer.papa.observe import Sample, measure
from spillway_optimizer.rules import of_ruleset
from spillway_optimizer.telemetry import Telemetry

GOLDEN = Path(__file__).resolve().parents[3] / "contracts" / "golden"
TOPOLOGY = topology.load(GOLDEN / "topology.yaml")
PREDICTED_MS, MEAN_MS, NOISE_MS = 20.0, 50.0, 5.0
WINDOWS = Papa.model_fields["papa_windows"].default


class Mesh:
    """Rules in force and what requests take, instead of Redis, NATS and the watch: what is proposed is in force at once."""

    def __init__(self, seed: int, after_ms: float) -> None:
        """`after_ms`: what requests take while the rules are not those of the beginning."""
        self.chance, self.after_ms, self.outcomes = random.Random(seed), after_ms, []
        self.ruleset = json_format.Parse((GOLDEN / "5_ruleset.json").read_text(), Ruleset())
        self.ruleset.version = 9
        self.rules = self.begin = of_ruleset(self.ruleset)
        self.key = next(k for k, w in self.rules.items() if k.source_cluster == "west" and len(w) > 1)
        settings = Papa(
            clickhouse_url="clickhouse://u:p@localhost:1/d", nats_url="nats://localhost:1",
            redis_url="redis://localhost:1/0", health_listen="h:1", topology="-",
        )  # fmt: skip
        self.worker = worker.Worker(settings, TOPOLOGY, self, self, self)
        self.worker.lease = SimpleNamespace(held=lambda: True, fencing_token=7)
        self.worker.watch = self.worker.reader = self
        self.worker.checkpoint = Checkpoint()

    async def turn(self) -> None:
        self.worker.checkpoint = Checkpoint(self.worker.checkpoint.progress)
        await self.worker._iterate()

    def in_force(self) -> InForce:
        return InForce(
            self.rules, self.ruleset.origin, self.ruleset.policy, {"west": 9}, "r", {"west": self.ruleset}
        )

    def sample(self) -> Sample:
        """One destination does worse than predicted, the others better: there is always a step to try."""
        at = MEAN_MS if self.rules == self.begin else self.after_ms
        weights = self.rules[self.key]
        slow, *_ = sorted(weights)
        own = {c: PREDICTED_MS + (30 if c == slow else -10) + self.chance.gauss(0, 0.1) for c in weights}
        observed = {(self.key, cluster): ms for cluster, ms in own.items()}
        return Sample(at + self.chance.gauss(0, NOISE_MS), 0.0, {}, observed, {self.key: 100.0})

    # The reader, and the watch.

    async def read(self) -> Telemetry:
        return Telemetry()  # nothing is said to be unknown

    async def complete(self, *_: object, **__: object) -> InForce:
        return self.in_force()

    async def measure(self, _: InForce):
        told = {(self.key, cluster): PREDICTED_MS for cluster in self.rules[self.key]}
        return measure([self.sample() for _ in range(WINDOWS)], told)

    async def samples(self, _: InForce, windows: int):
        for _ in range(windows):
            yield self.sample()

    async def until(self, arrived) -> InForce:
        assert arrived(self.in_force())
        return self.in_force()

    async def settle(self, _: float) -> None:
        pass

    # Redis, NATS and ClickHouse.

    async def set(self, *_: object) -> None:
        pass

    async def publish(self, step: Ruleset) -> None:
        self.rules = {**self.rules, **of_ruleset(step)}

    def add(self, _: str, row: dict) -> None:
        self.outcomes.append(row["outcome"])


async def _first_outcomes(after_ms: float, runs: int) -> list[str]:
    """What became of the first step in each run."""
    found = []
    for seed in range(runs):
        mesh = Mesh(seed, after_ms)
        await mesh.turn()
        found.append(mesh.outcomes[0])
        weights = mesh.rules[mesh.key]
        assert (weights == mesh.begin[mesh.key]) == (found[-1] == "rolled_back")
    return found


async def test_a_step_that_changes_nothing_is_kept_no_more_often_than_alpha():
    """Two means of noise differ always, and the later one is lower half of the time: that is no reason to keep a step.
    It is rolled back to the weights of before."""
    runs = 300
    kept = (await _first_outcomes(MEAN_MS, runs)).count("kept")
    alpha = Papa.model_fields["papa_alpha"].default
    assert kept / runs <= alpha + 3 * math.sqrt(alpha * (1 - alpha) / runs)


@pytest.mark.parametrize(("after_ms", "outcome"), [(MEAN_MS - 15, "kept"), (MEAN_MS + 15, "rolled_back")])
async def test_a_step_that_helps_is_kept_and_one_that_harms_is_rolled_back(after_ms, outcome):
    """Three standard deviations are found in nearly every run."""
    found = await _first_outcomes(after_ms, 50)
    assert found.count(outcome) >= 48


async def test_a_rule_that_others_change_during_its_last_attempt_is_not_converged(monkeypatch):
    """The optimizer changes the rule while PAPA is about to roll back its third failed step: nothing is rolled back, and
    what was learnt about the old weights is forgotten."""
    mesh = Mesh(1, MEAN_MS + 15)
    for _ in range(mesh.worker.parameters.theta - 1):
        await mesh.turn()
    assert mesh.worker.checkpoint.progress.attempts[mesh.key] == mesh.worker.parameters.theta - 1
    theirs = {cluster: 10_000 // len(mesh.rules[mesh.key]) for cluster in mesh.rules[mesh.key]}
    complete = mesh.complete

    async def changed_meanwhile(*arguments: object, settled: bool = True) -> InForce:
        if not settled:
            mesh.rules = {**mesh.rules, mesh.key: theirs}
        return await complete(*arguments)

    monkeypatch.setattr(mesh, "complete", changed_meanwhile)
    await mesh.turn()
    progress = mesh.worker.checkpoint.progress
    assert mesh.key not in progress.converged and mesh.key not in progress.attempts
    assert mesh.rules[mesh.key] == theirs
