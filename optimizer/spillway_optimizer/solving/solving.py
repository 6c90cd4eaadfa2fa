"""One run, from telemetry to a proposal and its rows.

Builds the model, routes, judges every application, and publishes.
"""

import logging
import math
import uuid
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

from spillway.v1.ruleset_pb2 import Origin, Ruleset
from spillway.v1.topology_pb2 import Topology
from spillway_contracts.guardrails import GuardrailFile

from spillway_optimizer import OptimizerError
from spillway_optimizer.inputs import guardrails
from spillway_optimizer.inputs.in_force import held_as
from spillway_optimizer.inputs.smoothing import Rates
from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.inputs.unknown import Unknown
from spillway_optimizer.judging.memories import REST
from spillway_optimizer.judging.memory import Memory
from spillway_optimizer.model.model import Limits, Model, Window, build
from spillway_optimizer.policies import MINIMISING, MODEL_FREE
from spillway_optimizer.process.states import States
from spillway_optimizer.rulesets.assemble import Stamp, UnverifiedError, assembled
from spillway_optimizer.rulesets.lost_rules import LostRules
from spillway_optimizer.solving import metrics
from spillway_optimizer.solving.application_result import ApplicationResult, sent
from spillway_optimizer.solving.applications import Applications, Inputs
from spillway_optimizer.solving.config import OptimizerTuning
from spillway_optimizer.solving.fallback import EVERY, Fallback
from spillway_optimizer.solving.mesh import Away, Mesh
from spillway_optimizer.solving.observations import Observations
from spillway_optimizer.solving.outcomes import Outcomes, Run, known_classes
from spillway_optimizer.solving.routers import Routers
from spillway_optimizer.solving.routing import route_all
from spillway_optimizer.solving.solves_table import Occasion
from spillway_optimizer.solving.triggers import REGULAR, Basis, Trigger
from spillway_optimizer.workers.parallel import Parallel
from spillway_optimizer.workers.solved import Failed, Solved

_LOG = logging.getLogger(__name__)


class Solving:
    """Runs solves. Its state: what was observed so far, and the applications between runs.

    `concluded`: the last run and its solutions by application, None if it ended with an error.
    """

    def __init__(
        self,
        settings: OptimizerTuning,
        topology: Topology,
        mesh: Mesh,
        guardrails: GuardrailFile,
        states: States,
        parallel: Parallel | None = None,
    ):
        self._parallel = parallel
        self.settings, self.topology, self.mesh = settings, topology, mesh
        self.guardrails, self.states = guardrails, states
        self.clusters = tuple(cluster.name for cluster in topology.clusters)
        self._outcomes = Outcomes(mesh, states)
        # Served from the start, so that the first rollback shows as an increase.
        states.counters["rolled_back"] += 0
        self.observed = Observations()
        self._lost = LostRules()
        self._token = 0  # fencing token of the lease that this solve runs under
        self._unfallen = Fallback(settings.fallback, settings.fallback_solves, settings.fallback_error)
        self.forget()

    def forget(self) -> None:
        """Drops the state, as at the start of the process."""
        self.observed = self.observed.forgotten()
        self.applications = Applications(self.settings, self.states)
        self._fallback = self._unfallen
        self.concluded: tuple[Occasion, Mapping[str, Solved]] | None = None

    @property
    def demand(self) -> Rates:
        """The smoothed demand, in requests per second."""
        return self.observed.demand

    @property
    def unknown(self) -> Unknown:
        """What telemetry did not know in the last run."""
        return self.observed.unknown

    def basis(self, telemetry: Telemetry, policy: str) -> Basis:
        """Returns the inputs of the last run, as far as a change of them calls for another one."""
        return Basis(self.demand, telemetry.placement, policy, self.unknown, self.observed.jumped_before_s())

    async def run(self, now: float, trigger: Trigger, telemetry: Telemetry, following: Routers) -> str | None:
        """Runs once. Returns the name of the server that prevents publishing, or None.

        Raises what the mesh raises when the rules in force cannot be read.
        """
        if self.mesh.fencing_token != self._token:
            # Another process led in between, so our earlier proposals are no longer in force.
            self.forget()
            self._token = self.mesh.fencing_token
        self.concluded = None
        in_force = held_as(await self.mesh.in_force(), telemetry)
        urgent = trigger.kind not in REGULAR
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
        self, run: Run, telemetry: Telemetry, following: Routers
    ) -> tuple[Run, Sequence[ApplicationResult]]:
        """Returns the result of every application.

        If building the model fails by a mistake of ours, all rules are held unchanged.
        """
        try:
            self.observed, telemetry = self.observed.completed(telemetry, run.occasion.at)
            self.observed = self.observed.after(telemetry, self.clusters, run.occasion.at, self.settings)
            model = await self._model(telemetry, run, following)
            self.observed = self.observed.scaling(model.scaling, telemetry, run.occasion.at, self.settings)
        except Exception as error:
            _LOG.exception("the model failed")
            self.states.counters["internal_errors"] += 1
            why = f"internal error: {type(error).__name__}: {error}"
            model = Model((), (why,), (), run.window, run.classes)
        occasion = replace(run.occasion, window=model.window.id)
        run = replace(run, occasion=occasion, window=model.window, classes=model.classes)
        problems = {a.name: a.problem for a in model.applications if a.problem is not None}
        following.forget_all_but([*problems, REST])
        if self._parallel:
            self._parallel.follow(following.name)
        solved = await self.mesh.beside(lambda: route_all(problems, following.router, self._parallel))
        self.states.counters["internal_errors"] += sum(
            isinstance(outcome, Failed) and outcome.internal for outcome in solved.values()
        )
        inputs = Inputs(model, solved, telemetry, self.unknown, self.guardrails.current, self._fallback)
        return run, await self.mesh.beside(lambda: self.applications.decide(run, inputs))

    async def _model(self, telemetry: Telemetry, run: Run, following: Routers) -> Model:
        """Returns the model. Applications that lack only curves or capacities fall back.

        So do those whose predictions are too uncertain.
        """
        if following.name not in MINIMISING:
            # Baselines are followed as they are: the operator has asked for them.
            self._fallback = self._unfallen
            following.fall_back("", ())
            every = EVERY if following.name in MODEL_FREE else ()
            return await self.mesh.beside(lambda: self._build(telemetry, run, every))
        before = self._fallback
        model = await self.mesh.beside(lambda: self._build(telemetry, run, before.applications))
        self._fallback = before.after(model)
        following.fall_back(self._fallback.policy, self._fallback.applications)
        for name in self._fallback.applications - before.applications:
            (fell,) = [application for application in model.applications if application.name == name]
            why = "no curves or capacities" if fell.no_model else fell.doubt.text
            state = f"fell back to {self._fallback.policy}: {why}"
            self.states.log(f"policy of {name}", state, logging.WARNING)
        for name in before.applications - self._fallback.applications:
            self.states.log(f"policy of {name}", f"{following.name} again")
        if self._fallback.applications == before.applications:
            return model
        applications = self._fallback.applications
        return await self.mesh.beside(lambda: self._build(telemetry, run, applications))

    def _build(self, telemetry: Telemetry, run: Run, model_free: Container[str]) -> Model:
        s, now, current = self.settings, run.occasion.at, self.guardrails.current
        self.applications.revalue(current.latency_values)
        most_error = s.fallback_error if s.fallback else math.inf
        limits = Limits(s.board_max_age_s, failure_cost_ms=s.failure_cost_ms, most_error=most_error)
        routed, success = self.applications.routed(run), self.observed.successes.rates()
        averages = self.observed.callers
        return build(
            telemetry, self.topology, now, limits, self.demand, current, routed, success, averages, model_free,
            self.observed.scale_outs,
        )  # fmt: skip

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
        policy = self.guardrails.current
        if policy.kill or not any(result.wants for result in results):
            for result in results:
                self._outcomes.settle(run, result, "", policy.holding)
            self._finish(run, results, published=False, killed=policy.kill)
            return None
        ruleset = await self.mesh.beside(lambda: self._ruleset(run, results))
        try:
            await self._publish(ruleset)
        except Away as server:
            for result in results:
                self._outcomes.record(run, result, "refused", f"{server} is away")
            return str(server)
        for result in results:
            self._outcomes.settle(run, result, ruleset.id, policy.holding)
        self._finish(run, results, published=True)
        return None

    def _ruleset(self, run: Run, results: Sequence[ApplicationResult]) -> Ruleset:
        """Assembles the ruleset to publish. Raises UnverifiedError."""
        proposing = any(result.proposes for result in results)
        # The memory of a result with a part has a policy, because its rules were decided. Rules of
        # applications that fell back name theirs.
        policies = [
            policy
            for result in results
            if result.part is not None and (policy := result.published.policy) is not None
        ]
        in_force = run.in_force.policy if run.in_force else ""
        ours = proposing or bool(self._fallback.applications)
        current = self.guardrails.current
        stamp = Stamp(
            ruleset_id=str(uuid.uuid4()),
            policy=run.occasion.policy if ours else next(iter(policies), in_force),
            origin=Origin.ORIGIN_OPTIMIZER,
            window=run.window,
            created_at=self.mesh.now(),  # not the tick's time: the publisher counts its age from here
            ttl_s=min(self.settings.ttl_s, current.maximum_expiry_seconds),
            classes=run.classes,
            fencing_token=self._token,
            base_version=run.in_force.base_version if run.in_force else self._lost.version,
        )
        parts, held = sent(results)
        return assembled(parts, held, guardrails.pinned(current), stamp, self.topology)

    async def _publish(self, ruleset: Ruleset) -> None:
        if not self.mesh.held() or self.mesh.fencing_token != self._token:
            raise UnverifiedError("the lease ran out while solving")
        await self.mesh.publish(ruleset)

    def _finish(
        self, run: Run, results: Sequence[ApplicationResult], published: bool, killed: bool = False
    ) -> None:
        """Keeps what the next run, the metrics and the audits need."""
        self.applications.keep(run, results, published, killed)
        budget = self.guardrails.current.egress_budget_usd_per_hour
        metrics.note_solve(self.states, run.occasion.at, results, budget)
        solved = {result.name: result.solved for result in results if result.solved is not None}
        self.concluded = run.occasion, solved


def _unpriced(result: ApplicationResult) -> bool:
    return result.part is None and result.refusal is not None
