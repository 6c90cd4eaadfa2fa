"""PAPA's loop (SLATE appendix F): measure, step, measure again, keep or roll back.

It knows servers and clocks only as papa/mesh.py, and rules and boards only of one application
(papa/sharing.py).
"""

import logging
import uuid
from dataclasses import replace

from spillway.v1.ruleset_pb2 import Origin
from spillway.v1.topology_pb2 import Topology
from spillway_contracts.guardrails import GuardrailFile

from spillway_optimizer import OptimizerError
from spillway_optimizer.inputs import guardrails, unknown
from spillway_optimizer.inputs.guardrails import Follower
from spillway_optimizer.inputs.in_force import InForce
from spillway_optimizer.inputs.scale_outs import declared
from spillway_optimizer.judging.sequential import Judge, Verdict
from spillway_optimizer.model.graph import service_of
from spillway_optimizer.papa.checkpoint import Checkpoint, Trial
from spillway_optimizer.papa.mesh import Interrupted
from spillway_optimizer.papa.observe import Measurement, measure
from spillway_optimizer.papa.proposal import adjusted
from spillway_optimizer.papa.sharing import ApplicationMesh
from spillway_optimizer.papa.step import Parameters, choose, discrepancies, judge, restart, shift, without
from spillway_optimizer.papa.steps_table import step_row
from spillway_optimizer.papa.watch import Watch
from spillway_optimizer.policies import ADJUSTED
from spillway_optimizer.problem.rules import RuleKey, Rules, Weights, changed
from spillway_optimizer.process.states import States
from spillway_optimizer.solving.config import PapaTuning
from spillway_optimizer.solving.mesh import Away

# A step that makes more requests fail is no improvement, even if the failures are fast.
_FAILED_SHARE_SLACK = 0.01


class Adjusting:
    """Adjusts the rules of an application, one step at a time.

    Its state is the checkpoint, which the mesh stores too.
    """

    def __init__(
        self,
        settings: PapaTuning,
        topology: Topology,
        mesh: ApplicationMesh,
        file: GuardrailFile | Follower,
        states: States,
        subject: str = "papa",
    ):
        """`subject`: what log lines are about."""
        self.settings, self.topology, self.mesh = settings, topology, mesh
        self.guardrails, self.states, self._subject = file, states, subject
        self.clusters = tuple(cluster.name for cluster in topology.clusters)
        self.watch = Watch(settings, topology, mesh, file, states)
        self.parameters = Parameters(
            gamma=settings.gamma,
            gamma_most=max(settings.gamma, settings.gamma_limit),
            direction=settings.direction,
            theta=settings.theta,
            delta_perf=settings.delta_perf,
            min_gap_ms=settings.min_gap_ms,
            sigma=settings.sigma,
        )
        self._autoscaled = frozenset(declared(topology))
        self.checkpoint: Checkpoint | None = None
        # What was measured after a step that was kept, and the rules that it was measured under.
        self._kept: tuple[Rules, Measurement] | None = None

    @property
    def _loaded(self) -> Checkpoint:
        assert self.checkpoint is not None  # every iteration begins by loading it
        return self.checkpoint

    async def turn(self) -> None:
        """Executes one iteration of appendix F's loop, as far as it is possible now.

        Logs why it could not be completed. Raises what the mesh raises when it cannot be read.
        """
        if guardrails.changed(self.guardrails, self.states):
            self._kept = None  # measured in another unit
        try:
            await self._iterate()
        except Interrupted as why:
            self._kept = None  # what was measured is old when the wait ends
            self.states.log(self._subject, f"waiting: {why}")
        except OptimizerError as error:
            self.states.log(self._subject, f"no step: {error}", logging.WARNING, "refused")

    async def _iterate(self) -> None:
        """Executes one iteration. Raises Interrupted if it cannot be completed."""
        self._may_step()
        if self.checkpoint is None:
            self.checkpoint = await self.mesh.load()
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
        before = await self._before(in_force)
        self._restart(in_force.rules, before)
        trial = await self._choose(in_force, before)
        if trial is None:
            await self._save(self._loaded)
            count = len(self._loaded.progress.converged)
            self.states.log(self._subject, f"{count} rules converged; nothing to do")
            return
        await self._step(in_force, trial, before)

    async def _before(self, in_force: InForce) -> Measurement:
        """Measures the rules in force, unless they were measured after the last step, just now."""
        kept, self._kept = self._kept, None
        if kept is not None and not changed(kept[0], in_force.rules, delta=0):
            return kept[1]
        return await self.watch.measure(in_force)

    def _restart(self, rules: Rules, now: Measurement) -> None:
        c = self._loaded
        progress = c.progress
        if c.rules is not None:
            progress = restart(progress, c.rules, rules, c.latency_ms, now.latency_ms, self.parameters)
        self.checkpoint = replace(c, progress=progress, rules=rules, latency_ms=now.latency_ms)

    async def _choose(self, in_force: InForce, before: Measurement) -> Trial | None:
        """Returns the next step, or None.

        Skips rules that wait for their rollback, rules of applications that fell back to a policy
        without a model, rules that no step can change, rules whose own cluster has an autoscaler
        for the service, and rules whose step would send more to a
        destination that is unknown.
        """
        left = {
            key: weights
            for key, weights in in_force.rules.items()
            if key not in self._loaded.parked
            and in_force.policies.get(key, in_force.policy) in ADJUSTED
            and not self._scales(key)
        }
        progress, least = self._loaded.progress, self.guardrails.current.minimum_share
        while key := choose(left, before.observations, before.rule_rps, progress, self.parameters, least):
            weights = left.pop(key)
            d = discrepancies(
                weights, before.observations[key], before.rule_rps.get(key, 0.0), self.parameters.direction
            )
            after = shift(weights, d, progress.sizes.get(key, self.parameters.gamma), least)
            if after == weights:  # the destinations that should give have no more than the least share
                continue
            if why := await self._gained(key, weights, after):
                self.states.log("unknown", f"no step of {key}: {why}")
            else:
                base = in_force.versions.get(key.source_cluster, 0)
                return Trial(key, dict(weights), after, before.objective_ms, base)
        return None

    def _scales(self, key: RuleKey) -> bool:
        """Returns whether an autoscaler acts on the load that a step of this rule would change."""
        return (service_of(key.class_id), key.source_cluster) in self._autoscaled

    async def _step(self, in_force: InForce, trial: Trial, before: Measurement) -> None:
        key, weights, after = trial.key, trial.before, trial.after
        gaps = ", ".join(f"{c} {o.gap_ms:+.1f} ms" for c, o in sorted(before.observations[key].items()))
        self.states.log(self._subject, f"trying {key} {weights} -> {after}")
        # Saved before it is published, so that a restart after a crash finds the step and rolls it
        # back.
        await self._save(replace(self._loaded, trial=trial))
        reason = f"PAPA: observed against predicted: {gaps}"
        ruleset_id = await self._publish(in_force, key, after, reason)
        try:
            ruleset = await self.watch.until(
                lambda now: now.ruleset_id == ruleset_id or _published(now, trial) is not None
            )
            if (left := _published(ruleset, trial)) is None:
                await self._refused(trial, ruleset)
                return
            if left != _positive(after):
                trial = replace(trial, after=left)
                await self._save(replace(self._loaded, trial=trial))
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
            kept = self._loaded.ended(key, _positive(trial.after))
            await self._save(replace(kept, progress=progress, latency_ms=result.latency_ms))
            self._kept = ruleset.rules, result
            return
        self.checkpoint = replace(self._loaded, progress=progress)
        if not await self._roll_back(trial, result.objective_ms, gaps):
            # Others have changed the rule, so the measurement no longer applies to it.
            await self._save(replace(self._loaded, progress=without(progress, {key})))
        elif key in progress.converged:
            reason = f"{self.parameters.theta} attempts in a row without improvement"
            self._row(trial, result.objective_ms, "converged", reason, ruleset.ruleset_id)

    async def _refused(self, trial: Trial, ruleset: InForce) -> None:
        """Ends a step of which the guardrails have left nothing: a failed attempt."""
        why = "superseded: the guardrails leave nothing of the step"
        self._row(trial, float("nan"), "superseded", why, ruleset.ruleset_id)
        progress = judge(self._loaded.progress, trial.key, False, self.parameters)
        await self._save(replace(self._loaded, trial=None, progress=progress))

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
        return test.verdict, measure(found)

    async def _roll_back(self, trial: Trial, objective_ms: float | None, why: str) -> bool:
        """Restores the weights from before the trial.

        Returns False, without publishing, if others have changed them since. Parks the trial while
        a destination that would get more is unknown. Raises Interrupted while the rollback is not
        possible.
        """
        in_force = await self.watch.complete(settled=False)
        key, before, after = trial.key, _positive(trial.before), _published(in_force, trial)
        if after is None:
            await self._save(self._loaded.ended(key, None))
            return False
        if reason := await self._gained(key, after, trial.before):
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
        if in_force is not None and _published(in_force, trial) is None:
            await self._save(replace(self._loaded, trial=None))

    def _may_step(self) -> None:
        """Raises Interrupted while the guardrails say `kill` or `freeze`, for rollbacks too."""
        if holding := self.guardrails.current.holding:
            raise Interrupted(holding)

    async def _publish(self, in_force: InForce, key: RuleKey, weights: Weights, why: str) -> str:
        """Proposes a change of one rule. Returns the proposal's id.

        Raises Interrupted while it is not possible.
        """
        self._may_step()
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
        return ruleset_id

    async def _save(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        await self.mesh.save(checkpoint)

    def _row(
        self, trial: Trial, objective_after_ms: float, outcome: str, reason: str, ruleset_id: str
    ) -> None:
        self.states.counters[outcome] += 1
        at = self.mesh.now()
        self.mesh.add("papa_steps", step_row(at, trial, objective_after_ms, outcome, reason, ruleset_id))


def _weights(in_force: InForce, key: RuleKey) -> dict[str, int] | None:
    weights = in_force.rules.get(key)
    return None if weights is None else dict(weights)


def _published(in_force: InForce, trial: Trial) -> dict[str, int] | None:
    """Returns what is in force of the step, which the publisher may have shortened; None: nothing.

    A version of others may follow at once, so the rule says whether it is PAPA's.
    """
    weights = _weights(in_force, trial.key)
    if weights is None or weights == _positive(trial.after):
        return weights
    by_papa = trial.base is not None and trial.key in in_force.changed_by(Origin.ORIGIN_PAPA, trial.base)
    return weights if by_papa and weights != _positive(trial.before) else None


def _positive(weights: Weights) -> dict[str, int]:
    return {cluster: weight for cluster, weight in weights.items() if weight > 0}
