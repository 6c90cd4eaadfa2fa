"""Follows the guardrails, and proposes what must not wait: local-first, denials, frozen weights.

The guardrails are those of the file under the acts in force (acting.py).
"""

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping

from nats.js import JetStreamContext
from spillway.v1.ruleset_pb2 import ORIGIN_OPERATOR, Ruleset
from spillway.v1.topology_pb2 import Topology
from spillway_contracts import ContractError, names
from spillway_contracts import ruleset as contract
from spillway_runtime.logs import fields

from spillway_publisher.process.telemetry import Telemetry, log
from spillway_publisher.rules import canary, denials, freeze
from spillway_publisher.rules.checks import is_local_first
from spillway_publisher.service.acting import Overlay
from spillway_publisher.service.proposals import Proposals

KILL_EXPIRY_S = 120
ENFORCE_S = 10.0
# Between two looks at the guardrail file. A change counts when two looks agree, so the kill switch
# is proposed at most twice this time after the file changed.
LOOK_S = 0.2


class Enforcing:
    """`in_force`: returns the rulesets by cluster. `unknown`: why they are unknown, or None."""

    def __init__(
        self,
        guardrails: Overlay,
        topology: Topology,
        proposals: Proposals,
        in_force: Callable[[], Mapping[str, Ruleset]],
        unknown: Callable[[], str | None],
        telemetry: Telemetry,
    ) -> None:
        self._guardrails, self._topology, self._proposals = guardrails, topology, proposals
        self._clusters = [cluster.name for cluster in topology.clusters]
        self._in_force, self._unknown, self._telemetry = in_force, unknown, telemetry
        self._enforced = time.monotonic()
        self._said: list[str] = []  # why frozen weights cannot be renewed
        # Called with the kind of the acts that may have led to a proposal, and its id
        self.on_proposed: Callable[[str, str], None] = lambda kind, proposal_id: None

    @property
    def due(self) -> bool:
        """Whether to enforce again: our proposal is refused when another one comes in between."""
        return time.monotonic() - self._enforced > ENFORCE_S and not self._guardrails.current.shadow

    async def follow(self, js: JetStreamContext) -> None:
        """Applies changes of the guardrails for ever. Raises jetstream.TROUBLE.

        It is a loop of its own, which nothing else of this process delays, so the kill switch acts
        within a second.
        """
        while True:
            changed = self._changed()
            self._proposals.policy = self._guardrails.current
            if changed:
                await self.enforce(js)
            await asyncio.sleep(LOOK_S)

    def _changed(self) -> bool:
        """Returns whether the guardrails changed.

        An invalid file is logged and counted; the last good one stays.
        """
        try:
            changed = self._guardrails.changed()
        except ContractError as error:
            self._telemetry.counters["guardrails.wrong"] += 1
            log.warning("the guardrails are wrong; the last good ones stay: %s", error)
            return False
        if changed:
            values = self._guardrails.current.model_dump(mode="json")
            log.info("guardrails changed", extra=fields(guardrails=values))
        return changed

    async def enforce(self, js: JetStreamContext) -> None:
        """Proposes local-first or the guardrails' denials, unless they are in force.

        Renews what is frozen.
        """
        self._enforced = time.monotonic()
        policy, in_force, unknown = self._guardrails.current, self._in_force(), self._unknown()
        if policy.kill and (unknown or not all(is_local_first(ruleset) for ruleset in in_force.values())):
            await self._propose_local_first(js)
            return
        if unknown and policy.maximum_shift is not None:
            return  # denials alone would drop at once the rules that relays hold
        now_ns, fences = time.time_ns(), self._proposals.fences()
        if proposal := denials.renewal(in_force, policy, self._topology, now_ns):
            if canary.on(in_force, self._clusters):
                proposal.origin = ORIGIN_OPERATOR  # others wait for the end of the trial
            await propose(js, proposal)
            self.on_proposed("deny", proposal.id)
            log.warning("denied_destinations changed: the rules in force are proposed again, adapted to them")
        elif unknown:
            return  # a renewal without what is not known would drop it
        elif proposal := freeze.renewal(in_force, policy, self._topology, fences, now_ns):
            problems = contract.check(proposal, self._topology)
            if self._said != problems:
                self._said = problems
                for problem in problems:
                    log.error("freeze: true: the weights in force cannot be renewed: %s", problem)
            if problems:
                return
            await propose(js, proposal)
            self.on_proposed("freeze", proposal.id)
            log.info("freeze: true: the weights in force are renewed", extra=fields(id=proposal.id))

    async def _propose_local_first(self, js: JetStreamContext) -> None:
        """Proposes local-first in place of the rulesets in force: the kill switch acts at once.

        The proposal takes the same way as any other.
        """
        now = time.time_ns()
        proposal = Ruleset(id=f"kill-{uuid.uuid4()}", origin=ORIGIN_OPERATOR, policy="kill")
        proposal.input_window.id = "none"
        proposal.created_at.FromNanoseconds(now)
        proposal.expires_at.FromNanoseconds(now + KILL_EXPIRY_S * 10**9)
        known = next(iter(self._in_force().values()), Ruleset())
        proposal.traffic_classes.extend(known.traffic_classes)
        await propose(js, proposal)
        self.on_proposed("kill", proposal.id)
        log.warning("kill: true: local-first is proposed in place of the rulesets in force")


async def propose(js: JetStreamContext, proposal: Ruleset) -> None:
    """Sends a proposal of the publisher itself, as the operator may. Raises jetstream.TROUBLE."""
    subject = names.NATS_SUBJECT_PROPOSALS.format(origin="operator")
    await js.publish(subject, proposal.SerializeToString(), headers={"Nats-Msg-Id": proposal.id})
