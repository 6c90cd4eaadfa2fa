"""One run, from telemetry to a proposal and its rows.

Builds the model, routes, judges every application, and publishes.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from nats.errors import MaxPayloadError
from redis.asyncio import Redis
from spillway.v1.ruleset_pb2 import Origin, Ruleset
from spillway.v1.topology_pb2 import Topology
from spillway_contracts.guardrails import GuardrailFile

from spillway_optimizer import OptimizerError
from spillway_optimizer.clients import hot
from spillway_optimizer.clients.history import History
from spillway_optimizer.clients.lease import Lease, beside
from spillway_optimizer.clients.proposals import Proposals
from spillway_optimizer.inputs import guardrails
from spillway_optimizer.inputs.smoothing import Rates, smooth
from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.inputs.unknown import LastKnown, Unknown, of, unknowns
from spillway_optimizer.judging.judging import Watch, sample
from spillway_optimizer.judging.memories import REST, Parting, rules_by_key
from spillway_optimizer.judging.memory import Memory, Thresholds
from spillway_optimizer.model.failures import Successes
from spillway_optimizer.model.model import ApplicationModel, Limits, Model, Window, build
from spillway_optimizer.problem.rules import Rules
from spillway_optimizer.process.states import States
from spillway_optimizer.rulesets.assemble import Priced, Stamp, UnverifiedError, assembled
from spillway_optimizer.rulesets.decide import Action, Decision
from spillway_optimizer.rulesets.idle import Idle, absent_of, decided_of
from spillway_optimizer.rulesets.lost_rules import LostRules
from spillway_optimizer.service import metrics
from spillway_optimizer.service.application_result import (
    ApplicationResult,
    Circumstances,
    judged,
    plain,
    refused,
    resting,
    rolled_back,
    sent,
)
from spillway_optimizer.service.config import Optimizer
from spillway_optimizer.service.following import Following
from spillway_optimizer.service.outcomes import Outcomes, Run, known_classes
from spillway_optimizer.service.reading import NATS_AWAY
from spillway_optimizer.service.routing import Failed, route_all
from spillway_optimizer.service.solves_table import Occasion, Solved
from spillway_optimizer.service.triggers import Trigger, jumps

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")


class Solving:
    """Runs solves. Its state: the smoothed demand, and this leader's proposals by application."""

    def __init__(
        self,
        settings: Optimizer,
        topology: Topology,
        redis: Redis,
        history: History,
        proposals: Proposals,
        lease: Lease,
        guardrails: GuardrailFile,
        states: States,
    ):
        self.settings, self.topology, self.redis = settings, topology, redis
        self.proposals, self.lease, self.guardrails, self.states = proposals, lease, guardrails, states
        self.clusters = tuple(cluster.name for cluster in topology.clusters)
        self._outcomes = Outcomes(history, states)
        # Served from the start, so that the first rollback shows as an increase.
        states.counters["rolled_back"] += 0
        self._last_known = LastKnown()
        self._lost = LostRules()
        self._token = 0  # fencing token of the lease that this solve runs under
        self.forget()

    def forget(self) -> None:
        """Drops the state, as at the start of the process."""
        self.memories: Mapping[str, Memory] = {}
        self.watches: dict[str, Watch] = {}
        self.demand: Rates = {}
        self._parting, self._idle = Parting({}), Idle()
        self.unknown = Unknown()
        self.successes = Successes()
        self._demand_at: float | None = None

    async def run(
        self, now: float, trigger: Trigger, telemetry: Telemetry, following: Following
    ) -> str | None:
        """Runs once. Returns the name of the server that prevents publishing, or None.

        Raises one of REDIS_AWAY.
        """
        if self.lease.fencing_token != self._token:
            # Another process led in between, so our earlier proposals are no longer in force.
            self.forget()
            self._token = self.lease.fencing_token
        in_force = hot.held_as(await hot.in_force(self.redis, self.clusters), telemetry)
        urgent = trigger.kind not in ("start", "period")
        occasion = Occasion(now, "", following.name, trigger.kind)
        run = Run(occasion, urgent, in_force, Window(now, now), known_classes(in_force))
        results: Sequence[ApplicationResult] = ()
        try:
            self._lost.check(in_force, telemetry.serving, now)
            run, results = await self._results(run, telemetry, following)
            self._compare(run, results, telemetry)
            return await self._conclude(run, results)
        except OptimizerError as error:
            why = f"{type(error).__name__}: {error}"
        except Exception as error:
            _LOG.exception("publishing failed")
            self.states.counters["internal_errors"] += 1
            why = f"internal error: {type(error).__name__}: {error}"
        for result in results or (ApplicationResult(REST, Memory(), Memory()),):
            self._outcomes.refuse(run, result, why)
        return None

    async def _results(
        self, run: Run, telemetry: Telemetry, following: Following
    ) -> tuple[Run, Sequence[ApplicationResult]]:
        """Returns the result of every application.

        If building the model fails by a mistake of ours, all rules are held unchanged.
        """
        try:
            self._last_known = self._last_known.after(telemetry, run.occasion.at)
            telemetry = self._last_known.completed(telemetry)
            self._smooth(telemetry, run.occasion.at)
            model = await self._beside_the_lease(lambda: self._build(telemetry, run))
        except Exception as error:
            _LOG.exception("the model failed")
            self.states.counters["internal_errors"] += 1
            why = f"internal error: {type(error).__name__}: {error}"
            model = Model((), (why,), (), run.window, run.classes)
        occasion = replace(run.occasion, window=model.window.id)
        run = replace(run, occasion=occasion, window=model.window, classes=model.classes)
        problems = {a.name: a.problem for a in model.applications if a.problem is not None}
        following.forget_all_but([*problems, REST])
        solved = await self._beside_the_lease(lambda: route_all(problems, following.router))
        self.states.counters["internal_errors"] += sum(
            isinstance(outcome, Failed) and outcome.internal for outcome in solved.values()
        )
        return run, await self._beside_the_lease(lambda: self._judge(run, model, solved, telemetry))

    def _judge(
        self, run: Run, model: Model, solved: Mapping[str, Solved | Failed], telemetry: Telemetry
    ) -> list[ApplicationResult]:
        routed = self._routed(run)
        parting = Parting.of({a.name: a.services for a in model.applications}).after(self._parting, routed)
        self._parting = parting
        parts = parting.split(routed)
        decided = decided_of(model, parts)
        self._idle = self._idle.after(routed, decided, self.unknown, self.guardrails.current, run.occasion.at)
        held = rules_by_key(run.in_force, run.occasion.at) or plain(routed)
        idle = parting.split({key: why for key, why in self._idle.why.items() if key in held})
        absent = absent_of(model, parts, idle, self._idle.unknown)
        lapsed = routed.keys() - decided - self._idle.why.keys()
        rules = parting.split({key: rule for key, rule in held.items() if key not in lapsed})
        known = parting.memories(self.memories, [a.name for a in (*model.applications, *absent)])
        results = []
        for application in (*model.applications, *absent):
            name = application.name
            around = Circumstances(
                run.occasion.policy,
                run.occasion.at,
                run.urgent,
                known[name],
                parting.in_force(run.in_force, name, parts),
                rules.get(name, {}),
                self._thresholds(application),
                idle.get(name, {}),
            )
            application = replace(application, notes=(*model.mesh_notes, *application.notes))
            watch = self.watches.setdefault(name, self._watch())
            if not run.ours:
                watch = self.watches[name] = self._watch()
            around = replace(around, again=partial(_again, watch, run.occasion.at, around.weights))
            result = replace(self._result(application, solved.get(name), around), before=around.weights)
            results.append(self._watched_result(result, application, around, watch, telemetry))
        self.watches = {result.name: self.watches[result.name] for result in results}
        return results

    def _watch(self) -> Watch:
        return Watch(self.settings.rollback_interval_s, self.settings.load_change)

    def _watched_result(
        self,
        result: ApplicationResult,
        application: ApplicationModel,
        around: Circumstances,
        watch: Watch,
        telemetry: Telemetry,
    ) -> ApplicationResult:
        """Returns the result after judging. If judging fails, it stays as it was decided."""
        try:
            return self._observed(result, application, around, watch, telemetry)
        except Exception as error:
            _LOG.exception("judging failed")
            self.states.counters["internal_errors"] += 1
            why = f"not judged: internal error: {type(error).__name__}: {error}"
            return replace(result, notes=(*result.notes, why))

    def _observed(
        self,
        result: ApplicationResult,
        application: ApplicationModel,
        around: Circumstances,
        watch: Watch,
        telemetry: Telemetry,
    ) -> ApplicationResult:
        """Judges rules that are in force, and replaces the result by a rollback where needed.

        Observations are compared with the prediction and with those before the change.
        """
        solved, decision, part = result.solved, result.decision, result.part
        if solved is None or decision is None or part is None or result.proposes or not around.weights:
            return result
        if any(around.weights.get(key) != weights for key, weights in decision.rules.items()):
            return result
        price = self.settings.failure_cost_ms
        seen = sample(telemetry, self.unknown, solved.problem, part.evaluation, around.now, price)
        if seen is not None:
            watch.observe(seen)
        restore = watch.to_restore(around.weights, around.now)
        if restore is None:
            return result
        back = rolled_back(decision.rules, solved, application, around, *restore)
        if isinstance(back, ApplicationResult):
            return back
        watch.not_possible(around.now, back)
        return replace(result, notes=(*result.notes, f"worse than before, and cannot be rolled back: {back}"))

    def _result(
        self, application: ApplicationModel, solved: Solved | Failed | None, around: Circumstances
    ) -> ApplicationResult:
        if solved is None and not application.refusals:
            return resting(application, around)
        if solved is None:
            return refused(application, "; ".join(application.refusals), around, None)
        try:
            return judged(application, solved, around)
        except OptimizerError as error:
            why = f"{type(error).__name__}: {error}"
        except Exception as error:
            _LOG.exception("deciding failed")
            self.states.counters["internal_errors"] += 1
            why = f"internal error: {type(error).__name__}: {error}"
        return refused(replace(application, problem=None), why, around, None)

    def _build(self, telemetry: Telemetry, run: Run) -> Model:
        s, now, current = self.settings, run.occasion.at, self.guardrails.current
        limits = Limits(s.board_max_age_s, failure_cost_ms=s.failure_cost_ms)
        success = self.successes.rates()
        return build(telemetry, self.topology, now, limits, self.demand, current, self._routed(run), success)

    def _routed(self, run: Run) -> Rules:
        """Returns the rules that relays route by, or the last proposed ones if Redis has none."""
        if run.in_force is not None:
            return run.in_force.routing(run.occasion.at)
        return {k: rule for m in self.memories.values() for k, rule in (m.intended or {}).items()}

    def _smooth(self, telemetry: Telemetry, now: float) -> None:
        """Updates the smoothed demand.

        A jump is not noise, so it is not averaged. Demand that is unknown keeps its last known
        value.
        """
        max_age_s = self.settings.board_max_age_s
        self.unknown = unknown = unknowns(telemetry, self.clusters, now, max_age_s)
        self.successes = self.successes.after(telemetry, unknown, now)
        half_life_s = self.settings.demand_half_life_s
        held = {key: rps for key, rps in self.demand.items() if of(unknown, key)}
        observed = {**hot.rates(telemetry.demand), **held}
        if self._demand_at is None:
            self.demand = smooth(None, observed, 0.0, half_life_s)
        else:
            jumped = jumps(self.demand, observed, self.settings.load_change)
            self.demand = smooth(self.demand, observed, now - self._demand_at, half_life_s, jumped)
        self._demand_at = now

    async def _beside_the_lease(self, work: Callable[[], _T]) -> _T:
        """Runs `work` in a thread and renews the lease meanwhile."""
        every_s = self.settings.lease_s / 3
        return await beside(self.lease, every_s, asyncio.to_thread(work))

    def _thresholds(self, application: ApplicationModel) -> Thresholds:
        s = self.settings
        thresholds = Thresholds(s.min_weight_change, s.min_gain, s.renew_s)
        return (
            thresholds.in_steps(application.problem.constraints.max_shift)
            if application.problem
            else thresholds
        )

    def _compare(self, run: Run, results: Sequence[ApplicationResult], telemetry: Telemetry) -> None:
        """Records prediction and observation, if no rules change in this run.

        Only then did the observed requests use the rules that the prediction is for.
        """
        evaluations = [result.part.evaluation for result in results if result.part is not None]
        if not evaluations or any(result.proposes or _unpriced(result) for result in results):
            return
        now, max_age_s = run.occasion.at, self.settings.board_max_age_s
        observed_ms = metrics.observed_ms(telemetry, now, max_age_s)
        demand_rps = sum(e.demand_rps for e in evaluations)
        predicted = sum(e.compute_ms_rps + e.network_ms_rps for e in evaluations)
        metrics.note_prediction(self.states, predicted / max(demand_rps, 1e-9), observed_ms)

    async def _conclude(self, run: Run, results: Sequence[ApplicationResult]) -> str | None:
        for result in results:
            self._outcomes.log_model(result)
        frozen = self.guardrails.current.frozen
        if not any(result.wants for result in results) or frozen:
            for result in results:
                self._outcomes.settle(run, result, "", frozen)
            self._finish(run, results, published=False, frozen=frozen)
            return None
        ruleset = await self._beside_the_lease(lambda: self._ruleset(run, results))
        if not await self._publish(ruleset):
            for result in results:
                self._outcomes.record(run, result, "refused", "nats is away")
            return "nats"
        for result in results:
            self._outcomes.settle(run, result, ruleset.id)
        self._finish(run, results, published=True)
        return None

    def _ruleset(self, run: Run, results: Sequence[ApplicationResult]) -> Ruleset:
        """Assembles the ruleset to publish. Raises UnverifiedError."""
        proposing = any(result.proposes for result in results)
        # The memory of a result with a part has a policy, because its rules were decided.
        policies = [
            policy
            for result in results
            if result.part is not None and (policy := result.published.policy) is not None
        ]
        in_force = run.in_force.policy if run.in_force else ""
        current = self.guardrails.current
        stamp = Stamp(
            ruleset_id=str(uuid.uuid4()),
            policy=run.occasion.policy if proposing else next(iter(policies), in_force),
            origin=Origin.ORIGIN_OPTIMIZER,
            window=run.window,
            created_at=time.time(),  # not the tick's time: the publisher counts its age from here
            ttl_s=min(self.settings.ttl_s, current.maximum_expiry_seconds),
            classes=run.classes,
            fencing_token=self._token,
            base_version=run.in_force.base_version if run.in_force else self._lost.version,
        )
        parts, held = sent(results)
        return assembled(parts, held, guardrails.pinned(current), stamp, self.topology)

    async def _publish(self, ruleset: Ruleset) -> bool:
        if not self.lease.held() or self.lease.fencing_token != self._token:
            raise UnverifiedError("the lease ran out while solving")
        try:
            await self.proposals.publish(ruleset)
        except MaxPayloadError as error:
            size = ruleset.ByteSize()
            raise UnverifiedError(
                f"the ruleset's {size} bytes are more than NATS takes; raise its max_payload"
            ) from error
        except NATS_AWAY as error:
            self.states.away("nats", error)
            return False
        self.states.log("nats", "reachable")
        return True

    def _finish(
        self, run: Run, results: Sequence[ApplicationResult], published: bool, frozen: bool = False
    ) -> None:
        """Stores the memories for the next run."""
        kept = {
            result.name: result.published if published else result.memory
            for result in results
            if not (frozen and result.wants)
        }
        for result in results:
            if published and (proposal := result.proposal):
                self._watched(run, result, *proposal)
        self.memories = {
            **{c.name: self.memories[c.name] for c in results if c.name in self.memories},
            **kept,
        }
        budget = self.guardrails.current.egress_budget_usd_per_hour
        metrics.note_solve(self.states, run.occasion.at, results, budget)

    def _watched(self, run: Run, result: ApplicationResult, decision: Decision, part: Priced) -> None:
        watch, at = self.watches[result.name], run.occasion.at
        if decision.action is Action.ROLL_BACK:
            watch.rolled_back(at, decision.reason)
        elif run.ours:
            watch.changed(at, result.before, decision.rules, part.evaluation.demand_rps)


def _unpriced(result: ApplicationResult) -> bool:
    return result.part is None and result.refusal is not None


def _again(watch: Watch, now: float, in_force: Rules, rules: Rules, demand_rps: float) -> str | None:
    return watch.again(rules, now, demand_rps, in_force)
