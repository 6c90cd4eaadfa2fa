"""PAPA's loop (SLATE appendix F): measure, step, measure again, keep or roll back.

It knows servers and clocks only as papa/mesh.py.
"""

import logging
import uuid
from dataclasses import replace

from spillway.v1.topology_pb2 import Topology
from spillway_contracts.guardrails import GuardrailFile

from spillway_optimizer import OptimizerError
from spillway_optimizer.inputs import unknown
from spillway_optimizer.inputs.in_force import InForce
from spillway_optimizer.judging.sequential import Judge, Verdict
from spillway_optimizer.papa.checkpoint import Checkpoint, Trial
from spillway_optimizer.papa.mesh import Interrupted, PapaMesh
from spillway_optimizer.papa.observe import Measurement, expected, measure
from spillway_optimizer.papa.proposal import adjusted
from spillway_optimizer.papa.step import Parameters, choose, discrepancies, judge, restart, shift, without
from spillway_optimizer.papa.steps_table import step_row
from spillway_optimizer.papa.watch import Watch
from spillway_optimizer.problem.rules import RuleKey, Rules, Weights
from spillway_optimizer.process.states import States
from spillway_optimizer.solving.config import PapaTuning
from spillway_optimizer.solving.mesh import Away

# A step that makes more requests fail is no improvement, even if the failures are fast.
_FAILED_SHARE_SLACK = 0.01


class Adjusting:
    """Adjusts rules, one step at a time. Its state is the checkpoint, which the mesh stores too."""

    def __init__(
        self, settings: PapaTuning, topology: Topology, mesh: PapaMesh, file: GuardrailFile, states: States
    ):
        self.settings, self.topology, self.mesh = settings, topology, mesh
        self.guardrails, self.states = file, states
        self.clusters = tuple(cluster.name for cluster in topology.clusters)
        self.watch = Watch(settings, topology, mesh, file, states)
        self.parameters = Parameters(
            gamma=settings.gamma,
            theta=settings.theta,
            delta_perf=settings.delta_perf,
            min_gap_ms=settings.min_gap_ms,
            sigma=settings.sigma,
        )
        self.checkpoint: Checkpoint | None = None

    @property
    def _loaded(self) -> Checkpoint:
        assert self.checkpoint is not None  # every iteration begins by loading it
        return self.checkpoint

    def forget(self) -> None:
        """Drops the state, because another process may change what is stored."""
        self.checkpoint = None

    async def turn(self) -> None:
        """Executes one iteration of appendix F's loop, as far as it is possible now.

        Logs why it could not be completed. Raises what the mesh raises when it cannot be read.
        """
        try:
            await self._iterate()
        except Interrupted as why:
            self.states.log("papa", f"waiting: {why}")
        except OptimizerError as error:
            self.states.log("papa", f"no step: {error}", logging.WARNING, "refused")

    async def _iterate(self) -> None:
        """Executes one iteration. Raises Interrupted if it cannot be completed."""
        if self.checkpoint is None:
            self.checkpoint = await self._load()
        if self._loaded.trial is not None:
            await self._roll_back(
                self._loaded.trial, None, "PAPA was interrupted before it could judge this step"
            )
            return
        for parked in self._loaded.parked.values():
            await self._roll_back(
                parked, None, "a destination was unknown when this step was to be rolled back"
            )
        in_force = await self.watch.complete(self._loaded.rules)
        before = await self.watch.measure(in_force)
        self._restart(in_force.rules, before)
        trial = await self._choose(in_force.rules, before)
        if trial is None:
            await self._save(self._loaded)
            self.states.log("papa", f"{len(self._loaded.progress.converged)} rules converged; nothing to do")
            return
        await self._step(in_force, trial, before)

    def _restart(self, rules: Rules, now: Measurement) -> None:
        c = self._loaded
        progress = c.progress
        if c.rules is not None:
            progress = restart(progress, c.rules, rules, c.latency_ms, now.latency_ms, self.parameters)
        self.checkpoint = replace(c, progress=progress, rules=rules, latency_ms=now.latency_ms)

    async def _choose(self, rules: Rules, before: Measurement) -> Trial | None:
        """Returns the next step, or None.

        Skips rules that wait for their rollback, rules that no step can change, and rules whose
        step would send more to a destination that is unknown.
        """
        left = {key: weights for key, weights in rules.items() if key not in self._loaded.parked}
        while key := choose(
            left, before.observations, before.rule_rps, self._loaded.progress, self.parameters
        ):
            weights = left.pop(key)
            d = discrepancies(weights, before.observations[key], before.rule_rps.get(key, 0.0))
            after = shift(weights, d, self.parameters.gamma, self.guardrails.current.minimum_share)
            if after == weights:  # the destinations that should give have no more than the least share
                continue
            if why := await self._gained(key, weights, after):
                self.states.log("unknown", f"no step of {key}: {why}")
            else:
                return Trial(key, dict(weights), after, before.objective_ms)
        return None

    async def _step(self, in_force: InForce, trial: Trial, before: Measurement) -> None:
        key, weights, after = trial.key, trial.before, trial.after
        gaps = ", ".join(f"{c} {o.gap_ms:+.1f} ms" for c, o in sorted(before.observations[key].items()))
        self.states.log("papa", f"trying {key} {weights} -> {after}")
        # Saved before it is published, so that a restart after a crash finds the step and rolls it
        # back.
        await self._save(replace(self._loaded, trial=trial))
        await self._publish(in_force, key, after, f"PAPA: observed against predicted: {gaps}")
        try:
            ruleset = await self.watch.until(lambda now: _weights(now, key) == _positive(after))
            await self.watch.settle(self.settings.settle_s)
            verdict, result = await self._judge(ruleset, before)
        except Interrupted as why:
            await self._supersede(trial, str(why))
            raise
        improved = (
            verdict is Verdict.BETTER and result.failed_share <= before.failed_share + _FAILED_SHARE_SLACK
        )
        gaps = f"{verdict.value} after {len(result.objectives_ms)} windows; {gaps}"
        progress = judge(self._loaded.progress, key, improved, self.parameters)
        if improved:
            self._row(trial, result.objective_ms, "kept", gaps, ruleset.ruleset_id)
            kept = self._loaded.ended(key, _positive(after))
            await self._save(replace(kept, progress=progress, latency_ms=result.latency_ms))
            return
        self.checkpoint = replace(self._loaded, progress=progress)
        if not await self._roll_back(trial, result.objective_ms, gaps):
            # Others have changed the rule, so the measurement no longer applies to it.
            await self._save(replace(self._loaded, progress=without(progress, {key})))
        elif key in progress.converged:
            reason = f"{self.parameters.theta} attempts in a row without improvement"
            self._row(trial, result.objective_ms, "converged", reason, ruleset.ruleset_id)

    async def _judge(self, ruleset: InForce, before: Measurement) -> tuple[Verdict, Measurement]:
        """Takes samples until the sequential test decides.

        Takes at most twice as many windows as were measured before the step.
        """
        test, found = Judge(self.settings.alpha), []
        for value in before.objectives_ms:
            test.add_before(value)
        async for window_sample in self.watch.samples(ruleset, 2 * self.settings.windows):
            found.append(window_sample)
            if test.add_after(window_sample.objective_ms) is not Verdict.UNDECIDED:
                break
        return test.verdict, measure(found, expected(ruleset))

    async def _roll_back(self, trial: Trial, objective_ms: float | None, why: str) -> bool:
        """Restores the weights from before the trial.

        Returns False, without publishing, if others have changed them since. Parks the trial while
        a destination that would get more is unknown. Raises Interrupted while the rollback is not
        possible.
        """
        in_force = await self.watch.complete(settled=False)
        key, before, after = trial.key, _positive(trial.before), _positive(trial.after)
        if _weights(in_force, key) != after:
            await self._save(self._loaded.ended(key, None))
            return False
        if reason := await self._gained(key, trial.after, trial.before):
            self.states.log("unknown", f"the rollback of {key} waits: {reason}")
            await self._save(self._loaded.ended(key, after, trial))
            return True
        await self._publish(in_force, key, trial.before, "PAPA: rolled back, no improvement was observed")
        await self.watch.until(lambda now: _weights(now, key) == before)
        after_ms = float("nan") if objective_ms is None else objective_ms
        self._row(trial, after_ms, "rolled_back", why, in_force.ruleset_id)
        await self._save(self._loaded.ended(key, before))
        return True

    async def _gained(self, key: RuleKey, before: Weights, after: Weights) -> str | None:
        """Returns why the weights may not change like this, or None.

        The reason is that a destination that would get more is unknown.
        """
        telemetry = await self.mesh.telemetry()
        if telemetry is None:
            raise Interrupted("no telemetry")
        now, most_s = self.mesh.now(), self.settings.board_max_age_s
        found = unknown.unknowns(telemetry, self.clusters, now, most_s)
        return unknown.gained(found, key.class_id, before, after)

    async def _supersede(self, trial: Trial, why: str) -> None:
        """Ends a trial that cannot be judged.

        If its step is still in force, the next iteration rolls it back.
        """
        in_force = await self.mesh.in_force()
        self._row(trial, float("nan"), "superseded", why, in_force.ruleset_id if in_force else "")
        if in_force is not None and _weights(in_force, trial.key) != _positive(trial.after):
            await self._save(replace(self._loaded, trial=None))

    async def _publish(self, in_force: InForce, key: RuleKey, weights: Weights, why: str) -> None:
        now = self.mesh.now()
        ruleset_id = str(uuid.uuid4())
        ruleset = adjusted(in_force, key, weights, why, ruleset_id, now, self.settings.ttl_s, self.topology)
        if not self.mesh.held():
            raise Interrupted("the lease ran out")
        ruleset.fencing_token = self.mesh.fencing_token
        try:
            await self.mesh.publish(ruleset)
        except Away as server:
            raise Interrupted(f"{server} is away") from server

    async def _load(self) -> Checkpoint:
        text = await self.mesh.load()
        try:
            return Checkpoint.from_json(text)
        except ValueError as error:
            self.states.log(
                "checkpoint", f"unreadable; starting without it: {error}", logging.WARNING, "malformed"
            )
            return Checkpoint()

    async def _save(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        await self.mesh.save(checkpoint.to_json())

    def _row(
        self, trial: Trial, objective_after_ms: float, outcome: str, reason: str, ruleset_id: str
    ) -> None:
        self.states.counters[outcome] += 1
        at = self.mesh.now()
        self.mesh.add("papa_steps", step_row(at, trial, objective_after_ms, outcome, reason, ruleset_id))


def _weights(in_force: InForce, key: RuleKey) -> dict[str, int] | None:
    weights = in_force.rules.get(key)
    return None if weights is None else dict(weights)


def _positive(weights: Weights) -> dict[str, int]:
    return {cluster: weight for cluster, weight in weights.items() if weight > 0}
