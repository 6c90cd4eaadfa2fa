"""The optimizer's loop: one leader, one period, one verified ruleset at a time."""

import asyncio
import logging
import time
import uuid

from spillway.v1.ruleset_pb2 import Origin, Ruleset
from spillway.v1.topology_pb2 import Topology

from spillway_optimizer import OptimizerError, hot
from spillway_optimizer.config import Optimizer
from spillway_optimizer.decide import Action, Memory, Thresholds, decide
from spillway_optimizer.extract import Stamp, UnverifiedError, from_rules
from spillway_optimizer.health import Health
from spillway_optimizer.history import History
from spillway_optimizer.lease import Lease
from spillway_optimizer.logs import States
from spillway_optimizer.model import Limits, Model, build
from spillway_optimizer.policies import REGISTRY, SPILLWAY
from spillway_optimizer.proposals import Proposals
from spillway_optimizer.reading import NATS_AWAY, REDIS_AWAY, Reader
from spillway_optimizer.rules import of_shares
from spillway_optimizer.smoothing import Rates, smooth
from spillway_optimizer.solution import Policy
from spillway_optimizer.solvers.exact import Exact
from spillway_optimizer.solvers.outer import Stop
from spillway_optimizer.solves import Solved, solve_row
from spillway_optimizer.telemetry import Telemetry

_TICK_S = 0.5
_LOG = logging.getLogger(__name__)


class Service:
    """State: the policy followed, the smoothed demand, what was proposed. Everything else is a value."""

    def __init__(
        self, settings: Optimizer, topology: Topology, redis, history: History, proposals: Proposals
    ):
        self.settings, self.topology, self.redis, self.proposals = settings, topology, redis, proposals
        self.clusters = tuple(cluster.name for cluster in topology.clusters)
        self.states = States(_LOG)
        self.history = history
        self.reader = Reader(redis, history, self.clusters, self.states)
        self.lease = Lease(redis, "optimizer", settings.optimizer_lease_s)
        self.policy = settings.policy
        self.told_policy: str | None = None  # the last valid one that Redis said
        self.memory = Memory()
        self.demand: Rates | None = None
        self.demand_at = self.due_at = 0.0
        self.health: Health | None = None

    async def run(self, stop: asyncio.Event) -> None:
        self.health = Health(self.settings.health_listen, self.states.counters)
        try:
            while not stop.is_set():
                try:
                    await self._tick(time.time())
                except REDIS_AWAY as error:
                    self.states.say("redis", f"away ({type(error).__name__})", logging.WARNING, "redis_away")
                    self._wait_for("redis")
                try:
                    await asyncio.wait_for(stop.wait(), _TICK_S)
                except TimeoutError:
                    pass
        finally:
            await self._close()

    async def _close(self) -> None:
        try:
            await self.lease.release()
        except REDIS_AWAY:
            pass  # it runs out by itself
        for ending in (self.reader.flush(), self.proposals.close(), self.redis.aclose()):
            try:
                async with asyncio.timeout(1.5):
                    await ending
            except (*NATS_AWAY, *REDIS_AWAY):
                pass
        self.health.close()

    async def _tick(self, now: float) -> None:
        if not await self.lease.hold():
            self.states.say("lease", "held by another; standing by")
            # What the leader proposes meanwhile is not ours to compare with.
            self.memory, self.demand = Memory(), None
            self._ready()
            return
        self.states.say("lease", "held")
        await self._follow_policy()
        if now < self.due_at and self.memory.policy in (None, self.policy):
            return
        self.due_at = now + self.settings.optimizer_period_s
        await self._run_once(now)
        await self.reader.flush()

    async def _follow_policy(self) -> None:
        wanted = await hot.policy(self.redis)
        if wanted is None and self.told_policy:
            # Redis has lost it, the operator has not taken it back: their choice goes on.
            await hot.restore_policy(self.redis, self.told_policy)
            wanted = self.told_policy
        elif wanted in REGISTRY:
            self.told_policy = wanted
        wanted = wanted or self.settings.policy
        if wanted in REGISTRY:
            self.states.say("policy", wanted)
            self.policy = wanted
        else:
            allowed = ", ".join(sorted(REGISTRY))
            self.states.say(
                "policy",
                f"unknown {wanted!r} in Redis, staying with {self.policy!r}; allowed: {allowed}",
                logging.WARNING,
                "unknown_policy",
            )

    async def _run_once(self, now: float) -> None:
        telemetry = await self.reader.read()
        if telemetry is None:
            self._wait_for("clickhouse")
            return
        model = build(telemetry, self.topology, now, self._limits(), self._smoothed(telemetry, now))
        for note in model.notes:
            _LOG.debug("%s", note)
        if model.problem is None:
            self._refuse(now, model, "; ".join(model.refusals))
            return
        try:
            solved = await asyncio.to_thread(self._solve, model)
            await self._propose(now, model, solved)
        except OptimizerError as error:
            self._refuse(now, model, f"{type(error).__name__}: {error}")

    def _limits(self) -> Limits:
        return Limits(board_max_age_s=self.settings.optimizer_board_max_age_s)

    def _smoothed(self, telemetry: Telemetry, now: float) -> Rates:
        observed = {(c, k): entry.rps for c, board in telemetry.demand.items() for k, entry in board.items()}
        half_life = self.settings.optimizer_demand_half_life_s
        self.demand = smooth(self.demand, observed, now - self.demand_at, half_life)
        self.demand_at = now
        return self.demand

    def _policy(self) -> Policy:
        if self.policy == SPILLWAY:
            return Exact(
                Stop(
                    relative_gap=self.settings.optimizer_relative_gap, seconds=self.settings.optimizer_solve_s
                )
            )
        return REGISTRY[self.policy]()

    def _solve(self, model: Model) -> Solved:
        started = time.monotonic()
        solution = self._policy().route(model.problem)
        return Solved(solution, (time.monotonic() - started) * 1000)

    async def _propose(self, now: float, model: Model, solved: Solved) -> None:
        problem, solution = model.problem, solved.solution
        candidate = of_shares(problem, solution.shares, solution.flows)
        in_force = await hot.in_force(self.redis, self.clusters)
        thresholds = Thresholds(
            self.settings.optimizer_min_weight_change,
            self.settings.optimizer_min_gain,
            self.settings.optimizer_renew_s,
        )
        minimises = self.policy == SPILLWAY
        decision = decide(self.memory, self.policy, candidate, minimises, problem, in_force, now, thresholds)
        ruleset, evaluation = from_rules(problem, decision.rules, self._stamp(model, now), self.topology)
        outcome, reason = decision.action.value, "; ".join((decision.reason, *solution.notes, *model.notes))
        if decision.action is not Action.WAIT and not await self._publish(ruleset):
            self._record(now, model, "refused", "nats is away", solved, evaluation)
            return
        self.memory = decision.memory
        published = ruleset.id if decision.action is not Action.WAIT else ""
        self._record(now, model, outcome, reason, solved, evaluation, published)
        self.states.counters[outcome] += 1
        self.states.say("model", "sound")
        if decision.action is Action.PROPOSE:
            _LOG.info(
                "proposed %s: policy %s, %s, predicted mean %.1f ms at %.0f req/s",
                *(
                    ruleset.id,
                    self.policy,
                    decision.reason,
                    evaluation.mean_latency_ms,
                    evaluation.demand_rps,
                ),
            )
        self._ready()

    def _stamp(self, model: Model, now: float) -> Stamp:
        return Stamp(
            ruleset_id=str(uuid.uuid4()),
            policy=self.policy,
            origin=Origin.ORIGIN_OPTIMIZER,
            window=model.window,
            created_at=now,
            ttl_s=self.settings.optimizer_ttl_s,
            classes=model.classes,
        )

    async def _publish(self, ruleset: Ruleset) -> bool:
        if not self.lease.held():
            raise UnverifiedError("the lease ran out while solving")
        try:
            await self.proposals.publish(ruleset)
        except NATS_AWAY as error:
            self.states.say("nats", f"away ({type(error).__name__})", logging.WARNING, "nats_away")
            self._wait_for("nats")
            return False
        self.states.say("nats", "reachable")
        return True

    def _refuse(self, now: float, model: Model, reason: str) -> None:
        self.states.say("model", f"refused: {reason}", logging.WARNING, "refused")
        self._record(now, model, "refused", reason)
        # Every server answered: that there is nothing to decide yet is no lack of readiness.
        self._ready()

    def _record(self, now: float, model: Model, outcome: str, reason: str, *known) -> None:
        self.history.add("solves", solve_row(now, model.window.id, self.policy, outcome, reason, *known))

    def _ready(self) -> None:
        if self.health is not None:
            self.health.waiting_for = None

    def _wait_for(self, server: str) -> None:
        """Only before the first success: an absent server later is logged, not a reason to be restarted."""
        if self.health is not None and self.health.waiting_for is not None:
            self.health.waiting_for = server
