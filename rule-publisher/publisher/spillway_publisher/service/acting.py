"""Decides about operators' acts, keeps those that it accepts, and notes what became of each."""

import asyncio
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta

from nats.aio.msg import Msg
from nats.js import JetStreamContext
from spillway.v1.topology_pb2 import Topology
from spillway_contracts import ContractError, names
from spillway_contracts.acts import Act, KeptAct
from spillway_contracts.guardrails import GuardrailFile, Guardrails
from spillway_runtime.logs import fields

from spillway_publisher.bucket.acts import ActsBucket
from spillway_publisher.bucket.bucket import ConflictError
from spillway_publisher.bucket.jetstream import KEPT_ACTS_S, TROUBLE
from spillway_publisher.bucket.keys import Keys
from spillway_publisher.clients import rows
from spillway_publisher.clients.history import History
from spillway_publisher.process.telemetry import Telemetry, log
from spillway_publisher.rules import acts
from spillway_publisher.rules.acts import Ruling, Situation

FETCH_S = 2.0
LOOK_S = 0.2


class Overlay:
    """The guardrail file under the acts in force. It is followed like the file itself."""

    def __init__(self, file: GuardrailFile, bucket: ActsBucket, clusters: Collection[str]) -> None:
        self._file, self._bucket, self._clusters = file, bucket, sorted(clusters)
        self._composed: tuple[tuple[Guardrails, tuple[str, ...]], Guardrails] | None = None
        self._last = self.current
        self._left_out: list[str] = []

    @property
    def file(self) -> Guardrails:
        """The last good guardrails of the file alone."""
        return self._file.current

    @property
    def current(self) -> Guardrails:
        """What may be published now. Composed again when the file or the acts have changed."""
        now = datetime.now(UTC)
        in_force = [kept.act for kept in self.in_force(now)]
        key = self.file, tuple(act.id for act in in_force)
        if self._composed is None or self._composed[0][0] is not key[0] or self._composed[0][1] != key[1]:
            self._composed = key, acts.compose(self.file, in_force, now, self._clusters)
        return self._composed[1]

    def in_force(self, now: datetime) -> list[KeptAct]:
        """Returns the acts in force."""
        return [kept for kept in self._bucket.kept.values() if kept.in_force(now)]

    def changed(self) -> bool:
        """Reads the file again, and returns whether the guardrails under the acts changed.

        Raises ContractError once for each wrong state of the file, as GuardrailFile does.
        """
        self._file.changed()
        before, self._last = self._last, self.current
        if self._last is before:
            return False
        self._say_what_is_left_out()
        return self._last != before

    def _say_what_is_left_out(self) -> None:
        in_force = [kept.act for kept in self.in_force(datetime.now(UTC))]
        before, self._left_out = self._left_out, acts.left_out(self.file, in_force, self._clusters)
        if self._left_out and self._left_out != before:
            log.error(
                "denials of acts %s are not applied in full: a cluster has left the topology, or the "
                "guardrail file leaves no room below %d denials per cluster",
                ", ".join(self._left_out),
                names.VALUE_DENIALS_PER_CLUSTER,
            )


class Acting:
    """Handles one act at a time. All publishers together have at most one in flight."""

    def __init__(
        self, topology: Topology, file: GuardrailFile, keys: Keys, history: History, telemetry: Telemetry
    ) -> None:
        self._topology, self._file = topology, file
        self._history, self._telemetry = history, telemetry
        self._bucket = ActsBucket(keys, telemetry)
        self.overlay = Overlay(file, self._bucket, [cluster.name for cluster in topology.clusters])
        self._noted: set[str] = set()  # acts whose expiry is noted

    async def load(self, js: JetStreamContext) -> None:
        """Reads the acts in force, before anything is published. Raises jetstream.TROUBLE."""
        await self._bucket.load(js, datetime.now(UTC))

    async def run(self, js: JetStreamContext, consumer: JetStreamContext.PullSubscription) -> None:
        """Decides for ever. Raises jetstream.TROUBLE; NATS then delivers the act again."""
        while True:
            try:
                (message,) = await consumer.fetch(1, timeout=FETCH_S)
            except TimeoutError:
                await consumer.consumer_info()  # raises when the server has lost the consumer
                continue
            await self.handle(js, message)

    async def follow(self, js: JetStreamContext) -> None:
        """Reads what the other publisher accepts, for ever. Raises jetstream.TROUBLE."""
        while True:
            await self._bucket.refresh(js)
            self._note_expired(datetime.now(UTC))
            await asyncio.sleep(LOOK_S)

    async def handle(self, js: JetStreamContext, message: Msg) -> None:
        """Accepts or refuses one act. Settles the message unless jetstream.TROUBLE is raised."""
        via = message.subject.removeprefix(names.NATS_SUBJECT_ACTS.format(via=""))
        at = message.metadata.timestamp
        try:
            act = Act.from_json(message.data)
        except ContractError as error:
            sequence = message.metadata.sequence.stream
            self._telemetry.malformed("act", message.subject, sequence, str(error))
            self._history.acted(rows.unreadable_act_row(sequence, via, at, acts.REFUSED, str(error)))
            self._telemetry.counters[f"acts.{acts.REFUSED}"] += 1
            await message.term()
            return
        try:
            ruling = await self._settle(js, act, via, at)
        except TROUBLE:
            raise
        except Exception as error:
            log.exception("act %s could not be handled", act.id)
            ruling = Ruling(f"internal error: {type(error).__name__}: {error}")
        self._note(act, ruling, at)
        await (message.term() if ruling.refused else message.ack())

    async def _settle(self, js: JetStreamContext, act: Act, via: str, at: datetime) -> Ruling:
        while True:
            await self._bucket.refresh(js)
            now = datetime.now(UTC)
            situation = Situation(self._topology, self._file.current, self._bucket.kept, now)
            ruling = acts.decide(act, via, situation)
            if ruling.refused:
                return ruling
            kept = KeptAct(act=act, at=at, before=ruling.before, after=ruling.after)
            if ruling.ended is not None:
                kept = ruling.ended.model_copy(update={"ended_by": act, "ended_at": at})
            known = self._bucket.kept.get(kept.act.id)
            if known is not None and (ruling.ended is None or known == kept):
                return ruling  # the message is delivered again
            try:
                await self._bucket.put(js, kept)
                return ruling
            except ConflictError:
                continue  # another publisher wrote in between

    def _note(self, act: Act, ruling: Ruling, at: datetime) -> None:
        """Adds the rows of a decision, and logs it."""
        outcome = acts.REFUSED if ruling.refused else acts.ACCEPTED
        values = ruling.before, ruling.after
        self._telemetry.counters[f"acts.{outcome}"] += 1
        self._history.acted(rows.act_row(act, at, outcome, ruling.refused or "", *values))
        if ruling.ended is not None and not ruling.refused:
            who = f"by {act.actor} ({act.id}): {act.reason}"
            self._history.acted(rows.act_row(ruling.ended.act, at, acts.ENDED, who, *values))
        say = log.warning if ruling.refused else log.info
        extra = fields(id=act.id, act=act.act, actor=act.actor, reason=act.reason, why=ruling.refused or "")
        say("act %s", outcome, extra=extra)

    def _note_expired(self, now: datetime) -> None:
        """Adds a row for each act that has expired. Another publisher adds the same row."""
        self._bucket.forget(now - timedelta(seconds=KEPT_ACTS_S))
        self._noted &= set(self._bucket.kept)
        due = [
            kept
            for key, kept in sorted(self._bucket.kept.items())
            if kept.ended_by is None and kept.expires <= now and key not in self._noted
        ]
        for kept in due:
            self._noted.add(kept.act.id)
            situation = Situation(self._topology, self._file.current, self._bucket.kept, now)
            values = acts.lifted(kept, situation)
            self._history.acted(rows.act_row(kept.act, kept.expires, acts.EXPIRED, "", *values))

    def proposed(self, kinds: Iterable[str], proposal_id: str) -> None:
        """Notes that the publisher has proposed a ruleset because of acts of these kinds."""
        now = datetime.now(UTC)
        for kept in self.overlay.in_force(now):
            if kept.act.act in kinds:
                row = rows.act_row(kept.act, now, acts.PROPOSED, proposal=proposal_id)
                self._history.acted(row)
