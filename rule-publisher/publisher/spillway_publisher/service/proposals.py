"""Turns proposals into published versions: the order of effects around one proposal.

The order is: decide (guardrails), claim the version, write every cluster's key, note it for Redis
and ClickHouse, acknowledge the message. After a crash before the end, the message is delivered
again. The claim key's history then shows that the proposal already has a version, and only missing
keys are written.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from google.protobuf.message import DecodeError
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from spillway.v1.ruleset_pb2 import Origin, Ruleset
from spillway.v1.topology_pb2 import Topology
from spillway_contracts import bases, names, slices
from spillway_contracts.guardrails import Guardrails
from spillway_runtime.logs import fields

from spillway_publisher.bucket.bucket import Bucket, ConflictError
from spillway_publisher.bucket.jetstream import TROUBLE
from spillway_publisher.clients import rows
from spillway_publisher.clients.history import History
from spillway_publisher.clients.hot_state import HotState
from spillway_publisher.process.telemetry import Telemetry, log
from spillway_publisher.rules import canary, fences, trying
from spillway_publisher.rules.checks import Context, contract_problems
from spillway_publisher.rules.guardrails import Decision, decide
from spillway_publisher.rules.weights import TOTAL

FETCH_S = 2.0


@dataclass(frozen=True)
class Attempt:
    """A version that is being written. The write may have succeeded although its answer was lost.

    `ended`: the ruleset on trial that it replaces.
    """

    proposal_id: str
    version: int
    ruleset: Ruleset
    reason: str
    ended: Ruleset | None


class Proposals:
    """Handles one message at a time."""

    def __init__(
        self,
        topology: Topology,
        policy: Guardrails,
        bucket: Bucket,
        hot_state: HotState,
        history: History,
        telemetry: Telemetry,
    ) -> None:
        self._topology, self._bucket = topology, bucket
        self.policy = policy  # the service replaces it when the operator changes the file
        self._hot_state, self._history, self._telemetry = hot_state, history, telemetry
        self._clusters = [cluster.name for cluster in topology.clusters]
        self.in_force: Callable[[], dict[str, Ruleset]] = bucket.in_force
        # Why it is unknown which rulesets are in force
        self.unknown: Callable[[], str | None] = lambda: None
        # By cluster: the services with a live Envoy. Clusters where that is unknown are left out.
        self.placement: Callable[[], Mapping[str, frozenset[str]]] = dict
        # Called with the whole ruleset, which has its version
        self.on_published: Callable[[Ruleset], None] = lambda whole: None
        # Tokens of refused proposals, by origin: the token, and the newest version at the time of
        # the refusal. The bucket knows the tokens of published versions, across restarts too.
        self._refused_fences: dict[Origin, tuple[int, int]] = {}
        self._unsettled: Msg | None = None
        self._attempt: Attempt | None = None

    def forget(self) -> None:
        """Drops the unsettled message because its connection is closed.

        NATS will deliver it again.
        """
        self._unsettled = None

    async def run(self, consumer: JetStreamContext.PullSubscription) -> None:
        """Handles messages for ever. Raises jetstream.TROUBLE.

        The caller must then repair the connection and call again. The unsettled message is handled
        first.
        """
        while True:
            if self._unsettled is None:
                try:
                    (self._unsettled,) = await consumer.fetch(1, timeout=FETCH_S)
                except TimeoutError:
                    # Raises when a server that lost its data has lost the consumer
                    await consumer.consumer_info()
                    continue
            await self.handle(self._unsettled)
            self._unsettled = None

    async def handle(self, message: Msg) -> None:
        """Publishes or refuses one proposal.

        Settles the message unless jetstream.TROUBLE is raised.
        """
        try:
            proposal = Ruleset.FromString(message.data)
        except DecodeError as error:
            sequence = message.metadata.sequence.stream
            self._telemetry.malformed("proposal", message.subject, sequence, str(error))
            self._refuse(
                Ruleset(), "undecodable", f"does not decode: {message.subject} sequence {sequence}: {error}"
            )
            await message.term()
            return
        # The time at which NATS stored it, which is the same when it is delivered again
        self._history.reached(proposal, 0, rows.PROPOSED, proposal.reason, message.metadata.timestamp)
        if problem := origin_problem(proposal, message.subject):
            self._refuse(proposal, "authority", problem)
            await message.term()
            return
        try:
            published = await self._settle(proposal, message)
        except TROUBLE:
            raise
        except Exception as error:
            log.exception("proposal %s could not be handled", proposal.id)
            self._refuse(proposal, "internal error", f"internal error: {type(error).__name__}: {error}")
            published = False
        await (message.ack() if published else message.term())

    async def _settle(self, proposal: Ruleset, message: Msg) -> bool:
        """Returns True when the proposal is published, now or earlier; False when it is refused."""
        read = False
        while True:
            given = self._bucket.version_of(proposal.id)
            if given is not None and not self._bucket.missing(given):
                self._note_written(proposal.id, given)
                return True
            context = Context(
                self._topology,
                self.policy,
                self.in_force(),
                time.time_ns(),
                resumed=given is not None,
                fences=self.fences(),
                placement=self.placement(),
                unknown=self.unknown(),
            )
            decision = decide(self._whole(proposal, context), context)
            if decision.ruleset is None and not read:
                # The other publisher may have written since: what it began is completed
                await self._bucket.refresh()
                read = True
                continue
            if decision.ruleset is None:
                self._note_refused_fence(proposal)
                written = f" (version {given} had been written to some clusters)" if given else ""
                self._refuse(proposal, decision.refused_by, decision.reason + written)
                return False
            version = given or self._bucket.next_version()
            self._history.reached(proposal, 0, rows.CHECKED, decision.reason)
            self._attempt = self._attempted(proposal.id, decision, context, given, version)
            try:
                await self._write(self._attempt.ruleset, version, claimed=given is not None)
            except ConflictError:
                self._telemetry.counters["proposals.conflict"] += 1
                await self._bucket.load()

    def _attempted(
        self, proposal_id: str, decision: Decision, context: Context, given: int | None, version: int
    ) -> Attempt:
        """Returns what is to be written: the decision's ruleset, or its trial."""
        assert decision.ruleset is not None  # a refused one is not written
        before = {c: ruleset for c, ruleset in context.in_force.items() if ruleset.version != given}
        ended = canary.on(before, self._clusters)
        ruleset, reason = decision.ruleset, decision.reason
        if (trial := trying.begun(ruleset, context, given)) is not None:
            ruleset, reason = trial, "; ".join(filter(None, [reason, _tried(trial)]))
        bases.stamp(ruleset, context.in_force, version)
        return Attempt(proposal_id, version, ruleset, reason, ended.whole if ended else None)

    async def _write(self, ruleset: Ruleset, version: int, claimed: bool) -> None:
        """Claims the version, then writes the keys where it is missing.

        Raises ConflictError and jetstream.TROUBLE. Calling it again with the claimed version
        continues where it stopped.
        """
        parts = slices.cut(ruleset, self._clusters, version)
        if not claimed:
            await self._bucket.claim(parts[self._bucket.claim_cluster])
        for cluster in self._bucket.missing(version):
            await self._bucket.write(cluster, parts[cluster])

    def _whole(self, proposal: Ruleset, context: Context) -> Ruleset:
        """Returns what the proposal asks for; for a reset of fences, a ruleset of all clusters."""
        if proposal.reset_fences:
            return fences.reset(proposal, context.in_force, context.policy, context.topology, context.now_ns)
        return proposal

    def fences(self) -> dict[Origin, int]:
        """Returns the newest fencing token of each origin, of published and refused proposals."""
        newest = self._bucket.fences.newest()
        for origin, (token, version) in self._refused_fences.items():
            if version >= self._bucket.fences.reset_in(origin):
                newest[origin] = max(newest.get(origin, 0), token)
        return newest

    def _note_refused_fence(self, proposal: Ruleset) -> None:
        """Notes the fencing token of a refused proposal: its sender is the leader nevertheless.

        Tokens that are implausible, or that come with an invalid proposal, are ignored.
        """
        if not fences.plausible(proposal.fencing_token, time.time_ns()):
            return
        in_force = self.in_force()
        if bases.partial_problems(proposal, in_force):
            return
        if not contract_problems(bases.completed(proposal, in_force), self._topology):
            known = max(self.fences().get(proposal.origin, 0), proposal.fencing_token)
            self._refused_fences[proposal.origin] = (known, self._bucket.newest_version)

    def _note_written(self, ruleset_id: str, version: int) -> None:
        """Records the publication once every cluster has this version or a newer one."""
        attempt = self._attempt
        if attempt is None or (attempt.proposal_id, attempt.version) != (ruleset_id, version):
            self._telemetry.counters["proposals.duplicate"] += 1
            return
        self._attempt = None
        self._publish_noted(attempt)

    def _publish_noted(self, attempt: Attempt) -> None:
        ruleset, version, reason = attempt.ruleset, attempt.version, attempt.reason
        self._telemetry.counters["proposals.published"] += 1
        self._hot_state.in_force(self.in_force())
        self._history.published(ruleset, version, reason, attempt.ended)
        whole = Ruleset(version=version)
        whole.MergeFrom(ruleset)
        self.on_published(whole)
        extra = fields(
            ruleset_version=version,
            id=ruleset.id,
            policy=ruleset.policy,
            reason=reason,
            rules=len(ruleset.rules),
        )
        log.info("ruleset published", extra=extra)

    def _refuse(self, proposal: Ruleset, by: str, reason: str) -> None:
        self._telemetry.counters["proposals.refused"] += 1
        self._telemetry.counters[f"refused.{by}"] += 1
        self._history.refused(proposal, reason)
        log.warning("proposal refused", extra=fields(id=proposal.id, reason=reason))


def _tried(trial: Ruleset) -> str:
    where = ", ".join(trial.canary.clusters) or "all clusters"
    return f"on trial by {trial.canary.share / TOTAL:.2%} of the Envoys of {where}"


def origin_problem(proposal: Ruleset, subject: str) -> str | None:
    """Returns why the proposal's origin may not be proposed on this subject, or None.

    A subject's writer may propose in its own origin only. The operator's subject may propose in any
    origin, and only it may ask for a reset of fences or conclude a trial.
    """
    operator = names.NATS_SUBJECT_PROPOSALS.format(origin="operator")
    origin = Origin.Name(proposal.origin) if proposal.origin in Origin.values() else str(proposal.origin)
    if proposal.reset_fences and subject != operator:
        return f"reset_fences: proposed by {subject}; only {operator} may ask for it"
    if proposal.concludes and subject != operator:
        return f"concludes: proposed by {subject}; only {operator} may conclude a trial"
    if problem := fences.reset_problem(proposal):
        return problem
    expected = names.NATS_SUBJECT_PROPOSALS.format(origin=origin.removeprefix("ORIGIN_").lower())
    if subject in (expected, operator) or not proposal.origin:
        return None
    return f"origin: {origin}; proposed by {subject}, which may propose in its own name only"
