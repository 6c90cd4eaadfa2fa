"""exclusive: turns spans into calls with exclusive time, edges, and arrivals for the boards.

Calls and edges go to Kafka and ClickHouse. Everything is a function of the partition's log, so a
repeat after a crash or a rebalance equals what was there. The offset is committed far behind what
is read, so that a successor has all that it needs for the repeat.
"""

import asyncio
import logging
import time
from collections.abc import Iterator

import faust
from faust.types import TP
from spillway_contracts import names
from spillway_native import Batch, Closed, PayloadError

from spillway_streams.batches import columns, native_batch
from spillway_streams.batches.marks import Coverage
from spillway_streams.boards import boards
from spillway_streams.classes.rules import KINDS
from spillway_streams.clients.dead_letters import Origin
from spillway_streams.clients.latest_sender import LatestSender
from spillway_streams.clients.sending import Message, Sender
from spillway_streams.clients.store import Store
from spillway_streams.clients.transport import Consumer, Start
from spillway_streams.ingest.admission import Gate, UnadmittedError
from spillway_streams.ingest.class_rules import FRESH_MS, PERIOD_S, RulesReader
from spillway_streams.ingest.offsets import Note, Verdict
from spillway_streams.ingest.outputs import Outputs, headers, to_messages
from spillway_streams.ingest.shard import MAX_ROWS, NativeError, Rejected, Shard, Shards
from spillway_streams.jobs import runner
from spillway_streams.jobs.batches import consume
from spillway_streams.process import threads
from spillway_streams.process.config import ExclusiveSettings

log = logging.getLogger("spillway.exclusive")
_COMMIT_PERIOD_S = 1.0
_WAITING = 8  # rows that wait for an insert: at most this part of the rows that may be unstored
_USEFUL_S = 2.0  # what ended longer ago is of no use to a board
# Marks without rows: their shortest period, and their greatest rate of all sources together.
_MARK_S, _MARKS_PER_S = 0.5, 2000
# Bytes of a value. If its batch is compressed, the client has already unpacked all of it by then.
# Anyone who may write to otlp_spans can therefore fill this process's memory.
_MAX_PAYLOAD = 1 << 28


class Exclusive:
    """The job's state: one shard per assigned partition."""

    def __init__(self, app: faust.App, context: runner.Context[ExclusiveSettings]) -> None:
        settings = context.settings
        self._app, self._context, self._settings = app, context, settings
        self._counters = context.counters
        self._gate = Gate(settings.accept_unadmitted, context.counters)
        self._sender = Sender(app, context.status)
        self._dead_letters = runner.dead_letters(app, context)
        self._rules = RulesReader(Store(settings.clickhouse_address, context.status), context.layout.oldest_s)
        self._maker = Shards(settings, context.layout.partitions)
        self._outputs = Outputs(
            self._sender,
            self._dead_letters,
            context.clickhouse,
            context.counters,
            settings.insert_period_s,
            settings.max_unstored_rows // _WAITING,
        )
        self._shards: dict[TP, Shard] = {}
        self._room = asyncio.Event()
        self._room.set()
        self._stored_spans = 0  # spans still open after the last flush
        self._commit_at = 0.0
        self._rules_known = asyncio.Event()
        self._arrivals = LatestSender(
            self._sender, max(1, round(_USEFUL_S / settings.arrivals_period_s)), self._counters
        )
        self._mark_at = 0.0

    @property
    def _consumer(self) -> Consumer:
        return self._app.consumer

    def open(self, tp: TP, start: Start) -> int:
        """Returns the offset to read an assigned partition from.

        A shard that still exists goes on, unless its offset is outside the log.
        """
        shard = self._shards.get(tp)
        if shard is None or not start.first <= shard.offsets.next_offset <= start.end:
            shard = self._shards[tp] = self._maker.open(start)
        shard.offsets.sought()
        return shard.offsets.next_offset

    def keep(self, assigned: set[TP]) -> None:
        """Drops the shards of partitions that another worker has now."""
        for tp in self._shards.keys() - assigned:
            del self._shards[tp]
        self._room.set()

    async def take(self, event: faust.EventT) -> None:
        """Takes one message into its shard. What is not believed goes to the dead letters."""
        await self._room.wait()
        message = event.message
        shard = self._shards.get(message.tp)
        if shard is None:
            return  # another worker has the partition by now
        verdict = shard.offsets.judge(message.offset)
        if verdict is Verdict.SEEK:
            await self._seek(message.tp, shard)
        if verdict is not Verdict.TAKE:
            return
        payload = event.value or b""
        origin = Origin(message.topic, message.partition, message.offset)
        for kind, rejected in await self._decode(shard, payload, origin, message):
            if message.offset >= shard.dead_lettered:
                await self._dead_letters.send(origin, kind, rejected.reason, rejected.payload)
        shard.dead_lettered = max(shard.dead_lettered, message.offset + 1)
        self._counters.add("messages")
        unstored = self._open_spans() - self._stored_spans + self._outputs.rows
        if unstored > self._settings.max_unstored_rows:
            self._room.clear()

    async def _seek(self, tp: TP, shard: Shard) -> None:
        self._counters.add("messages_missed_and_sought")
        try:
            await self._consumer.seek_wait({tp: shard.offsets.next_offset})
        # A seek fails during a rebalance, for example. Otherwise the next message asks for it
        # again.
        except Exception as error:
            log.warning("%s: cannot seek %d: %r", tp, shard.offsets.next_offset, error)
            shard.offsets.sought()

    def _open_spans(self) -> int:
        return sum(shard.engine.open_spans for shard in self._shards.values())

    async def _decode(
        self, shard: Shard, payload: bytes, origin: Origin, message: faust.types.Message
    ) -> list[tuple[str, Rejected]]:
        """Adds a message to its shard. Returns what was set aside, with its kind."""
        try:
            cluster = self._gate.cluster(message.headers)
        except UnadmittedError as error:
            return [("unadmitted", Rejected(str(error), payload, 0))]
        if len(payload) > _MAX_PAYLOAD:
            return [
                ("oversized", Rejected(f"{len(payload)} bytes; must be at most {_MAX_PAYLOAD}", payload, 0))
            ]
        async with shard.lock:
            try:
                rejected = shard.take(payload, origin.offset, round(message.timestamp * 1000), cluster)
                self._gate.overridden(cluster, shard.engine.overridden)
            except PayloadError as error:
                return [("undecodable", Rejected(str(error), payload, 0))]
            except NativeError as error:
                log.error("%s: %s; open traces of the partition are lost", origin, error)
                self._counters.add("shards_lost: internal error")
                self._maker.replace(shard)
                return [("internal error", Rejected(str(error), payload, 0))]
        for rejection in rejected:
            self._counters.add(f"rejected_spans: {rejection.reason}", rejection.spans)
        return [("rejected spans", rejection) for rejection in rejected]

    async def flush(self) -> None:
        """Closes what is due, sends it, stores its rows when there is an insert, then commits.

        Repeats at once while there is more.
        """
        await self._rules_known.wait()
        more = True
        while more:
            shards, more = dict(self._shards), False
            for tp, shard in shards.items():
                if closed := await self._close(tp, shard):
                    rows = closed.calls.rows + closed.edges.rows
                    await threads.run(rows, self._outputs.add, tp.partition, closed)
                    shard.sent = shard.sent if closed.commit_offset is None else closed.commit_offset
                    more = more or rows > 0
            if await self._outputs.store():
                for shard in shards.values():
                    shard.done = shard.sent
            self._stored_spans = self._open_spans()
            self._room.set()
            await self._commit(shards)
            self._measure()

    async def _close(self, tp: TP, shard: Shard) -> Closed | None:
        """Returns what is due in one partition, after reading the class rules if that is necessary.

        While the rules cannot be read, messages and arrivals go on.
        """
        # Log time at the last read of the rules. The hosts' clocks may differ by any amount.
        known_ms = 0
        while True:
            async with shard.lock:
                shard.idle(self._consumer.progress(tp), round(self._settings.clock_skew_s * 1000))
                clock_ms = shard.engine.clock_ms
                if self._rules.is_fresh(clock_ms) or clock_ms <= known_ms + FRESH_MS:
                    return await self._close_locked(tp, shard)
            await self._read_rules()
            known_ms = clock_ms

    async def _close_locked(self, tp: TP, shard: Shard) -> Closed | None:
        try:
            most = MAX_ROWS // len(self._shards or (0,))
            closed = await threads.run(shard.engine.open_spans, shard.close, most)
        except NativeError as error:
            log.error("%s: %s; open traces of the partition are lost", tp, error)
            self._counters.add("shards_lost: internal error")
            self._maker.replace(shard)
            return None
        for name, n in shard.engine.counters().items():
            self._counters.add(name, n)
        return closed

    async def _commit(self, shards: dict[TP, Shard]) -> None:
        """Commits what is stored, for partitions that this worker still has.

        After a commit that fails, the next one covers the same offsets.
        """
        if time.monotonic() < self._commit_at:
            return
        self._commit_at = time.monotonic() + _COMMIT_PERIOD_S
        wanted = {}
        for tp, shard in shards.items():
            if shard.done > shard.committed and self._shards.get(tp) is shard:
                wanted[tp] = (shard.done, str(Note(shard.dead_lettered, self._maker.horizon_ms)))
        if wanted and await self._consumer.commit_to(wanted):
            for tp, (offset, _) in wanted.items():
                shards[tp].committed = offset

    def _measure(self) -> None:
        now_ms, lag, ahead = time.time() * 1000, 0.0, 0
        for tp, shard in self._shards.items():
            if clock := shard.engine.clock_ms:
                lag = max(lag, now_ms - clock)
            if progress := self._consumer.progress(tp):
                ahead += max(progress.end - shard.offsets.next_offset, 0)
        self._counters.gauge("partitions", len(self._shards))
        self._counters.gauge("open_spans", self._stored_spans)
        self._counters.gauge(
            "known_traces", sum(shard.engine.known_traces for shard in self._shards.values())
        )
        self._counters.gauge("clock_lag_s", round(lag / 1000, 3))
        self._counters.gauge("messages_not_read", ahead)

    async def send_arrivals(self) -> None:
        """Sends the calls that just ended, while boards can use them.

        The arrivals of all shards are sent together, because they go to the same partitions. At
        intervals, partitions without arrivals get a mark alone.
        """
        messages: list[Message] = []
        layout, sources = self._context.layout, self._context.layout.sources
        is_time = time.monotonic() >= self._mark_at
        if is_time:
            self._mark_at = time.monotonic() + max(_MARK_S, sources * layout.partitions / _MARKS_PER_S)
        for tp, shard in dict(self._shards).items():
            async with shard.lock:
                shard.idle(self._consumer.progress(tp), round(self._settings.clock_skew_s * 1000))
                batch = shard.engine.arrivals()
                found = await threads.run(batch.rows, _arrivals, tp.partition, batch, shard.coverage)
            if is_time:
                idle = set(range(layout.partitions)) - {message.partition for message in found}
                found += [_no_arrivals(tp.partition, partition) for partition in sorted(idle)]
            messages += _marked(found, tp.partition, max(sources, tp.partition + 1), shard.coverage)
        self._arrivals.send(messages)

    async def poll_rules(self) -> None:
        """Reads the class rules. `flush` waits for the first read."""
        await self._read_rules()
        self._rules_known.set()

    async def _read_rules(self) -> None:
        found = await self._rules.read()
        # A newer version may write kinds that this one does not know.
        rules = [rule for rule in found if rule[-1] in KINDS]
        self._counters.gauge("class_rules", len(rules))
        self._counters.gauge("class_rules_of_unknown_kind", len(found) - len(rules))
        if rules == self._maker.rules:
            return
        for shard in self._shards.values():
            shard.engine.set_rules(rules)
        self._maker.rules = rules


_NO_ROWS = columns.to_ipc(columns.ARRIVALS, columns.from_rows(columns.ARRIVALS, []))


def _arrivals(source: int, batch: Batch, coverage: Coverage) -> list[Message]:
    """Returns the messages of a batch of arrivals.

    The newest end of each cluster is noted in `coverage`.
    """
    if not batch.rows:
        return []
    rows = native_batch.read(columns.ARRIVALS, batch)
    coverage.saw(boards.newest_ends(rows))
    return [*to_messages(columns.ARRIVALS, names.KAFKA_TOPIC_ARRIVALS, source, batch, rows)]


def _no_arrivals(source: int, partition: int) -> Message:
    return Message(names.KAFKA_TOPIC_ARRIVALS, _NO_ROWS, partition, headers(source, 0))


def _marked(found: list[Message], source: int, sources: int, coverage: Coverage) -> Iterator[Message]:
    """Yields the messages with their marks.

    Of several messages to one partition, the last one has a mark, which covers all of them.
    """
    last = {message.partition: place for place, message in enumerate(found)}
    for place, message in enumerate(found):
        is_last = last[message.partition] == place
        mark = coverage.mark(source, sources, message.partition or 0) if is_last else None
        more = ((names.KAFKA_HEADER_MARK, mark.to_bytes()),) if mark else ()
        yield message._replace(headers=(*message.headers, *more))


def build(context: runner.Context[ExclusiveSettings]) -> faust.App:
    """Creates the app of the job."""
    app = runner.app("exclusive", context.settings)
    job = Exclusive(app, context)
    consume(app, context.lag, names.KAFKA_TOPIC_OTLP_SPANS, job.take, acks=False)
    app.transport.opener = job.open
    runner.every(app, context.settings.flush_period_s, job.flush)
    runner.every(app, context.settings.arrivals_period_s, job.send_arrivals)
    app.task(job.poll_rules)
    runner.every(app, PERIOD_S, job.poll_rules)

    @app.on_partitions_assigned.connect
    async def assigned(_: faust.App, assigned: set[TP], **__: object) -> None:
        job.keep(assigned)

    return app
