"""One solve, from telemetry to a proposal and its row: build, route, extract, decide, verify, publish."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nats.errors import MaxPayloadError
from spillway.v1.ruleset_pb2 import Ruleset
from spillway.v1.topology_pb2 import Topology
from spillway_contracts.guardrails import GuardrailFile

from spillway_optimizer import OptimizerError, hot, metrics
from spillway_optimizer.case import Case
from spillway_optimizer.config import Optimizer
from spillway_optimizer.decide import Action, Decision, Memory, Thresholds, decide, renewal
from spillway_optimizer.extract import UnverifiedError, integer_rules, loss
from spillway_optimizer.following import Following
from spillway_optimizer.history import History
from spillway_optimizer.lease import Lease, beside
from spillway_optimizer.logs import States
from spillway_optimizer.model import Limits, Model, build
from spillway_optimizer.policies import SPILLWAY
from spillway_optimizer.projection import project
from spillway_optimizer.proposals import Proposals
from spillway_optimizer.reading import NATS_AWAY
from spillway_optimizer.smoothing import Rates, smooth
from spillway_optimizer.solves import Occasion, Solved, solve_row
from spillway_optimizer.telemetry import Telemetry
from spillway_optimizer.triggers import Trigger, jumps

_LOG = logging.getLogger(__name__)


class Solving:
    """State: the smoothed demand, and what this leader proposed."""

    def __init__(
        self,
        settings: Optimizer,
        topology: Topology,
        redis,
        history: History,
        proposals: Proposals,
        lease: Lease,
        guardrails: GuardrailFile,
        states: States,
    ):
        self.settings, self.topology, self.redis, self.history = settings, topology, redis, history
        self.proposals, self.lease, self.guardrails, self.states = proposals, lease, guardrails, states
        self.clusters = tuple(cluster.name for cluster in topology.clusters)
        self._token = 0  # of the lease that this solve runs under
        self.forget()

    def forget(self) -> None:
        self.memory = Memory()
        self.demand: Rates = {}
        self._demand_at: float | None = None

    async def run(self, now: float, trigger: Trigger, told: Telemetry, following: Following) -> str | None:
        """The name of a server that keeps it from publishing, if any. Raises one of REDIS_AWAY."""
        if self.lease.fencing_token != self._token:
            # Another led between: what was proposed before is no longer what is in force.
            self.forget()
            self._token = self.lease.fencing_token
        in_force = await hot.in_force(self.redis, self.clusters)
        case = Case(Occasion(now, "", following.name, trigger.kind), in_force)
        try:
            await self._decide(case, told, trigger, following)
        except OptimizerError as error:
            case.refusal = f"{type(error).__name__}: {error}"
        except Exception as error:
            # A mistake of ours for one input must neither end the loop nor take every standby with it.
            _LOG.exception("this solve failed")
            self.states.counters["internal_errors"] += 1
            case.refusal = f"internal error: {type(error).__name__}: {error}"
        try:
            if case.refusal is not None:
                await self._go_on(case)
            self._compare(case, told)
            return await self._conclude(case)
        except OptimizerError as error:
            self._refuse(case, f"{type(error).__name__}: {error}")
        except Exception as error:
            _LOG.exception("publishing failed")
            self.states.counters["internal_errors"] += 1
            self._refuse(case, f"internal error: {type(error).__name__}: {error}")
        return None

    async def _decide(self, case: Case, told: Telemetry, trigger: Trigger, following: Following) -> None:
        """Fills `case` as far as it goes. Raises OptimizerError."""
        now = case.occasion.at
        self._smooth(told, now)
        case.model = model = await self._beside_the_lease(lambda: self._build(told, now, case.in_force))
        case.occasion = replace(case.occasion, window=model.window.id)
        if model.problem is None:
            case.refusal = "; ".join(model.refusals)
            return
        router, started = following.router(), time.monotonic()
        solution = await self._beside_the_lease(lambda: router.route(model.problem))
        case.solved = Solved(model.problem, solution, (time.monotonic() - started) * 1000)
        memory = self.memory

        def rules() -> None:
            best = project(model.problem, solution)
            candidate = integer_rules(model.problem, best)
            lost = loss(model.problem, solution, best, candidate)
            case.solved = replace(case.solved, least_bad=best.evaluation, loss=lost)
            case.decision = decide(
                memory,
                case.occasion.policy,
                candidate,
                case.occasion.policy == SPILLWAY,
                model.problem,
                case.in_force,
                now,
                self._thresholds(model.problem.constraints.max_shift),
                urgent=trigger.kind not in ("start", "period"),
                least_bad=best.evaluation,
            )
            self._check(case)

        await self._beside_the_lease(rules)

    def _build(self, told: Telemetry, now: float, in_force: hot.InForce | None) -> Model:
        limits = Limits(board_max_age_s=self.settings.optimizer_board_max_age_s)
        routing = in_force.routing(now) if in_force else None
        return build(told, self.topology, now, limits, self.demand, self.guardrails.current, routing)

    async def _go_on(self, case: Case) -> None:
        """A solve that came to nothing ends no rules that are sound: they are renewed, and its row says so."""
        if case.model is None or case.model.problem is None:
            return
        problem, least_bad = case.model.problem, case.solved.least_bad if case.solved else None
        memory, thresholds = self.memory, self._thresholds(problem.constraints.max_shift)

        def rules() -> None:
            case.decision = renewal(memory, problem, case.in_force, least_bad, case.occasion.at, thresholds)
            if case.decision is not None:
                self._check(case)

        await self._beside_the_lease(rules)

    def _smooth(self, told: Telemetry, now: float) -> None:
        """A jump is no noise to be averaged away."""
        observed, half_life_s = hot.rates(told.demand), self.settings.optimizer_demand_half_life_s
        if self._demand_at is None:
            self.demand = smooth(None, observed, 0.0, half_life_s)
        else:
            jumped = jumps(self.demand, observed, self.settings.optimizer_load_change)
            self.demand = smooth(self.demand, observed, now - self._demand_at, half_life_s, jumped)
        self._demand_at = now

    async def _beside_the_lease(self, work: Callable[[], Any]) -> Any:
        """Runs `work` in a thread."""
        every_s = self.settings.optimizer_lease_s / 3
        return await beside(self.lease, every_s, asyncio.to_thread(work))

    async def _conclude(self, case: Case) -> str | None:
        decision = case.decision
        if decision is None:
            self._refuse(case, case.refusal or "")
            return None
        if case.refusal is not None:
            self._say_refused(case.refusal)
        if decision.action is Action.WAIT or self.guardrails.current.frozen:
            self._settle(case, decision)
            return None
        if not await self._publish(case.ruleset):
            self._record(case, "refused", "nats is away")
            return "nats"
        self._settle(case, decision, case.ruleset.id)
        return None

    def _compare(self, case: Case, told: Telemetry) -> None:
        """Rules that stay are those that what was observed went by."""
        if case.evaluation is None or case.decision is None or case.decision.action is Action.PROPOSE:
            return
        now, max_age_s = case.occasion.at, self.settings.optimizer_board_max_age_s
        observed_ms = metrics.observed_ms(told, now, max_age_s)
        metrics.note_prediction(self.states, case.evaluation.mean_latency_ms, observed_ms)

    def _thresholds(self, max_shift: float) -> Thresholds:
        s = self.settings
        own = Thresholds(s.optimizer_min_weight_change, s.optimizer_min_gain, s.optimizer_renew_s)
        return own.in_steps(max_shift)

    def _check(self, case: Case) -> None:
        """Raises UnverifiedError."""
        most = self.guardrails.current.maximum_expiry_seconds
        case.check(self.topology, self._token, min(self.settings.optimizer_ttl_s, most))

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
        self.states.say("nats", "reachable")
        return True

    def _settle(self, case: Case, decision: Decision, published: str = "") -> None:
        """After what was decided is done; `published` is the id of the ruleset, '' when none was."""
        outcome, reason = decision.action.value, decision.reason
        if decision.action is not Action.WAIT and not published:
            outcome, reason = Action.WAIT.value, "frozen: true in the guardrails; nothing is proposed"
        else:
            self.memory = decision.memory
        self._record(case, outcome, reason, published)
        self.states.counters[outcome] += 1
        if case.refusal is None:
            self.states.say("model", "sound")
        if outcome == Action.PROPOSE.value:
            evaluation, solved = case.evaluation, case.solved
            _LOG.info(
                "proposed %s: policy %s, %s, predicted mean %.1f ms at %.0f req/s, gap %s, lost %.2e by merging and "
                "%.2e by rounding",
                *(published, case.occasion.policy, reason, evaluation.mean_latency_ms, evaluation.demand_rps),
                *(solved.solution.relative_gap, solved.loss.merging, solved.loss.rounding),
            )

    def _refuse(self, case: Case, reason: str) -> None:
        self._say_refused(reason)
        # What rules there were are not those that would hold now.
        self._record(replace(case, evaluation=None, notes=(), refusal=None), "refused", reason)

    def _say_refused(self, reason: str) -> None:
        self.states.say("model", f"refused: {reason}", logging.WARNING, "refused")

    def _record(self, case: Case, outcome: str, reason: str, published: str = "") -> None:
        row = solve_row(case.occasion, outcome, reason, case.said(), case.solved, case.evaluation, published)
        self.history.add("solves", row)
        metrics.note_solve(self.states, case.occasion.at, case.solved, case.evaluation)
