"""The running publisher: loops for NATS, Redis and ClickHouse side by side until SIGTERM."""

import asyncio
import contextlib
import signal
import time
from datetime import UTC, datetime

from nats.aio.client import Client
from spillway.v1.ruleset_pb2 import Ruleset
from spillway.v1.topology_pb2 import Topology
from spillway_contracts import ContractError, names, slices
from spillway_contracts.guardrails import GuardrailFile
from spillway_runtime import health
from spillway_runtime.status import describe

from spillway_publisher.bucket import jetstream
from spillway_publisher.bucket.bucket import Bucket
from spillway_publisher.bucket.checkpoints import Checkpoints
from spillway_publisher.bucket.keys import Keys
from spillway_publisher.bucket.values import Stored
from spillway_publisher.clients.clickhouse import ClickHouse
from spillway_publisher.clients.history import History
from spillway_publisher.clients.hot_state import HotState
from spillway_publisher.process.config import RunSettings
from spillway_publisher.process.loops import end, run_together
from spillway_publisher.process.telemetry import NATS, Telemetry, log
from spillway_publisher.rules.known import Known
from spillway_publisher.rules.presence import HANDOVER_S
from spillway_publisher.service import metrics
from spillway_publisher.service.acknowledging import Acknowledging
from spillway_publisher.service.acting import Acting
from spillway_publisher.service.enforcing import Enforcing, propose
from spillway_publisher.service.proposals import Proposals
from spillway_publisher.service.reports import Reports
from spillway_publisher.service.trials import Trials

RETRY_S = 0.5
FLUSH_S = 2.0
LEARN_S, LEARN_AGAIN_S = 5.0, 15.0


class Service:
    """The publisher's process: its parts, and the loops that run them."""

    def __init__(
        self,
        settings: RunSettings,
        topology: Topology,
        guardrails: GuardrailFile,
        keys: Keys,
        telemetry: Telemetry,
    ) -> None:
        self._settings, self._telemetry, self._keys = settings, telemetry, keys
        self._clusters = sorted(cluster.name for cluster in topology.clusters)
        self._bucket = Bucket(self._clusters, keys, telemetry)
        self._clickhouse = ClickHouse(settings.clickhouse_address)
        self._history = History(self._clickhouse, telemetry, settings.history_rows)
        self._hot_state = HotState(
            settings.redis_url.get_secret_value(),
            telemetry,
            settings.refresh_s,
            settings.redis_options(),
        )
        self._acting = Acting(topology, guardrails, keys, self._history, telemetry)
        overlay = self._acting.overlay
        self._proposals = Proposals(
            topology, overlay.current, self._bucket, self._hot_state, self._history, telemetry
        )
        self._checkpoints = Checkpoints(keys, telemetry, settings.checkpoints_bytes, settings.nats_replicas)
        self._proposals.on_published = self._checkpoints.note
        self._reports = Reports(set(self._clusters), self._hot_state, self._clickhouse, telemetry)
        self._proposals.placement = self._reports.placement
        # A connection of its own: a question must not wait behind rows, nor rows behind it.
        self._asked = ClickHouse(settings.clickhouse_address)
        self._acknowledging = Acknowledging(
            set(self._clusters), self._bucket.in_force, self._reports.envoys, self._history, self._asked
        )
        self._trials = Trials(
            topology,
            overlay,
            self._bucket.in_force,
            self._reports,
            self._acknowledging.answers,
            self._asked,
        )
        self._known = Known(self._clusters)
        self._proposals.in_force, self._proposals.unknown = self._in_force, self._unknown
        self._enforcing = Enforcing(
            overlay, topology, self._proposals, self._in_force, self._unknown, telemetry
        )
        self._enforcing.on_proposed = lambda kind, proposal_id: self._acting.proposed([kind], proposal_id)
        self._reported_unknown: str | None = None
        self._listening_since = self._learned = time.monotonic()
        self._recovered = False

    async def run(self) -> None:
        """Runs until SIGTERM or SIGINT."""
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        exposition = metrics.exposition(self._telemetry, self._bucket.in_force, self._history.waiting)
        server = health.Server(self._settings.health_listen, self._telemetry.report, exposition)
        try:
            history = asyncio.create_task(self._history.run())
            await _until(stop, [self._nats(), self._hot_state.run()], history)
            try:
                await asyncio.wait_for(self._history.drained(), FLUSH_S)
            except TimeoutError:
                log.warning(
                    "stopping while rows wait for ClickHouse; published versions are recovered at the next start"
                )
            history.cancel()
        finally:
            await self._hot_state.close()
            self._clickhouse.close()
            self._asked.close()
            server.close()

    async def _nats(self) -> None:
        """Connects and runs sessions. Starts again after any jetstream.TROUBLE."""
        client: Client | None = None
        try:
            while True:
                try:
                    if client is None or client.is_closed:
                        client = await jetstream.connect(
                            self._settings, names.NATS_INBOX_PUBLISHER, self._telemetry
                        )
                        self._proposals.forget()
                    await self._session(client)
                except* jetstream.TROUBLE as errors:
                    self._telemetry.servers.failed(NATS, _first(errors))
                    await asyncio.sleep(RETRY_S)
        finally:
            if client is not None:
                with contextlib.suppress(*jetstream.TROUBLE):
                    await asyncio.wait_for(client.close(), 1)

    async def _session(self, client: Client) -> None:
        """Prepares streams, bucket and consumers, then runs the loops on this connection."""
        js = client.jetstream(timeout=3)
        await jetstream.ensure(js, self._settings.reports_bytes, self._settings.nats_replicas)
        self._bucket.attach(js)
        await self._bucket.load()
        await self._acting.load(js)
        # Before the first proposal: a restart must not lift the acts in force.
        self._proposals.policy = self._acting.overlay.current
        await self._sign_again()
        await self._learn(js)
        self._listening_since = time.monotonic()
        if not self._recovered:
            self._history.recover(await self._stored())
            self._recovered = True
        proposals = await jetstream.proposals_consumer(js, self._settings.ack_wait_s)
        acts = await jetstream.acts_consumer(js, self._settings.ack_wait_s)
        acks = await jetstream.acks_consumer(js)
        heartbeats = await jetstream.heartbeats_consumer(js)
        answers = await jetstream.answers_consumer(js, self._in_force_since())
        await self._enforcing.enforce(js)
        self._note_checkpoint()
        self._telemetry.servers.ok(NATS)
        try:
            await run_together(
                self._proposals.run(proposals),
                self._acting.run(js, acts),
                self._acting.follow(js),
                self._reports.acks(acks),
                self._reports.heartbeats(heartbeats),
                self._acknowledging.run(answers),
                self._trials.run(lambda proposal: propose(js, proposal)),
                self._refresh(js),
                self._enforcing.follow(js),
                self._checkpoints.run(js),
            )
        finally:
            for consumer in (proposals, acts, acks, heartbeats, answers):
                with contextlib.suppress(*jetstream.TROUBLE):
                    await consumer.unsubscribe()

    def _in_force_since(self) -> datetime:
        """Returns the time of the oldest version in force: Envoys answered to it after that."""
        now_ms = time.time_ns() // 1_000_000
        versions = [ruleset.version for ruleset in self._bucket.in_force().values()]
        return datetime.fromtimestamp(min([now_ms, *versions]) / 1000, UTC)

    async def _refresh(self, js) -> None:
        """Updates Redis from the bucket, and keys from their files."""
        while True:
            if self._keys_changed():
                self._known.forget()
                await self._bucket.load()
                await self._acting.load(js)
                await self._sign_again()
                await self._learn(js)
            if self._report_unknown() or self._enforcing.due:
                await self._enforcing.enforce(js)
            if (
                self._reported_unknown
                and self._known.unread
                and time.monotonic() - self._learned > LEARN_AGAIN_S
            ):
                await self._learn(js)
            self._hot_state.in_force(self._in_force())
            await asyncio.sleep(self._settings.refresh_s)
            await self._bucket.refresh()

    async def _learn(self, js) -> None:
        """Reads the newest checkpoint, in case the bucket has lost what relays hold.

        Publishing continues when it cannot be read.
        """
        self._in_force()
        try:
            checkpoint = await asyncio.wait_for(self._checkpoints.newest(js), LEARN_S)
            self._known.unread = None
        except jetstream.TROUBLE as error:
            why = error if str(error) else f"no answer within {LEARN_S:g} s"
            self._known.unread = describe(why)
            log.warning("the newest checkpoint cannot be read: %s", self._known.unread)
            return
        finally:
            self._learned = time.monotonic()
        now = time.time_ns()
        if checkpoint is None or checkpoint.version > now // 1_000_000 + names.VALUE_VERSION_AHEAD_MS:
            return
        self._bucket.learn(checkpoint)
        if learned := self._known.learn(checkpoint, now):
            where = ", ".join(learned)
            log.warning(
                "the bucket lost rulesets that relays hold; checkpoint %d is used instead, for %s",
                checkpoint.version,
                where,
            )

    def _in_force(self) -> dict[str, Ruleset]:
        return self._known.in_force(self._bucket.in_force())

    def _unknown(self) -> str | None:
        self._in_force()
        listened = time.monotonic() - self._listening_since >= HANDOVER_S
        return self._known.unknown(self._reports.serving(), listened)

    def _report_unknown(self) -> bool:
        """Logs why it is unknown which rulesets relays route by.

        Returns whether it became known, or became unknown.
        """
        before, self._reported_unknown = self._reported_unknown, self._unknown()
        if self._reported_unknown and self._reported_unknown != before:
            log.warning("what is in force is unknown: %s", self._reported_unknown)
        return (before is None) != (self._reported_unknown is None)

    def _note_checkpoint(self) -> None:
        """Notes a checkpoint of the rulesets in force at the start.

        They may have been published before checkpoints existed.
        """
        in_force = self._bucket.in_force()
        if set(in_force) == set(self._clusters) and len({r.version for r in in_force.values()}) == 1:
            self._checkpoints.note(slices.join(r for _, r in sorted(in_force.items())))

    async def _sign_again(self) -> None:
        if count := await self._bucket.sign_again():
            log.info(
                "%d values of the bucket are signed again, with the current key %s", count, self._keys.id
            )

    async def _stored(self) -> list[Stored]:
        """Returns the bucket's history as one whole ruleset per version.

        Versions that are still being written are left out.
        """
        parts: dict[int, list[Stored]] = {}
        for cluster in self._clusters:
            for stored in await self._bucket.history(cluster):
                parts.setdefault(stored.ruleset.version, []).append(stored)
        return [
            Stored(slices.join(part.ruleset for part in found), found[0].at)
            for version, found in sorted(parts.items())
            if not self._bucket.missing(version)
        ]

    def _keys_changed(self) -> bool:
        """Returns whether the keys changed.

        Invalid files are logged and counted; the last good keys stay.
        """
        try:
            changed = self._keys.changed()
        except ContractError as error:
            self._telemetry.counters["keys.wrong"] += 1
            log.error("the new keys are wrong; the last good ones stay: %s", error)
            return False
        if changed:
            self._telemetry.counters["keys.taken"] += 1
            log.info("new keys are in use; rulesets are signed with %s", self._keys.id)
        return changed


async def _until(stop: asyncio.Event, loops: list, beside: asyncio.Task) -> None:
    """Runs the loops until the event is set, or until one of them or `beside` fails.

    Raises the exception of the failed one.
    """
    tasks = [asyncio.create_task(loop) for loop in (stop.wait(), *loops)]
    done, _ = await asyncio.wait([*tasks, beside], return_when=asyncio.FIRST_COMPLETED)
    await end(tasks)
    for task in done:
        task.result()


def _first(errors: BaseExceptionGroup) -> BaseException:
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
