"""exclusive: spans -> calls with exclusive time and edges, into Kafka and ClickHouse.

A message is acknowledged only after every trace that it touched is closed and its rows are in
Kafka and in ClickHouse, so a crash repeats rows (the tables merge repeats) and never loses one.
"""

import asyncio
import logging
import time
from dataclasses import dataclass, field

import faust
from faust.types import TP
from spillway_contracts import names

from spillway_streams import columns, otlp, runner
from spillway_streams.classify import Templates
from spillway_streams.exclusive import calls_and_edges
from spillway_streams.jobs.batches import DeadLetters
from spillway_streams.ledger import Ledger
from spillway_streams.spans import Span
from spillway_streams.window import Limits, Trace, Window

log = logging.getLogger("spillway.exclusive")


@dataclass
class _Partition:
    window: Window
    ledger: Ledger = field(default_factory=Ledger)
    offset: int = -1
    message_at: float = 0.0  # Kafka timestamp of the last message
    seen_at: float = 0.0  # monotonic clock when it was taken


class Exclusive:
    """The job's state: one window and ledger per assigned partition."""

    def __init__(self, app: faust.App, context: runner.Context) -> None:
        self._app, self._context = app, context
        self._counters, self._status = context.counters, context.status
        settings = context.settings
        self._limits = Limits(settings.window, settings.hold, settings.max_spans, settings.max_trace_spans)
        self._max_unflushed = settings.max_unflushed_spans
        self._templates = Templates(context.counters, settings.classes_per_service)
        self._calls = runner.topic(app, names.KAFKA_TOPIC_CALLS)
        self._edges = runner.topic(app, names.KAFKA_TOPIC_EDGES)
        self._letters = DeadLetters(app, context)
        self._partitions: dict[TP, _Partition] = {}
        self._room = asyncio.Event()
        self._room.set()
        self._taken = 0  # spans taken since the last flush began

    async def take(self, event: faust.EventT) -> None:
        """One message into its partition's window; what is not believed goes to the dead letters."""
        await self._room.wait()
        message = event.message
        decoded = await self._decode(event)
        partition = self._partition(message.tp)
        if message.offset <= partition.offset:
            return  # delivered twice within one assignment; the first one is still held
        holders = partition.window.add(decoded.spans, message.offset, message.timestamp)
        partition.ledger.hold(message.offset, event, holders)
        partition.offset, partition.message_at = message.offset, message.timestamp
        partition.seen_at = time.monotonic()
        self._counters.add("messages")
        self._counters.add("spans", len(decoded.spans))
        self._taken += len(decoded.spans)
        if self._taken >= self._max_unflushed:
            self._room.clear()

    def _partition(self, tp: TP) -> _Partition:
        if tp not in self._partitions:
            self._partitions[tp] = _Partition(Window(self._limits, self._counters))
        return self._partitions[tp]

    async def _decode(self, event: faust.EventT) -> otlp.Decoded:
        message, payload = event.message, event.value
        try:
            decoded = otlp.decode(payload or b"", int(message.timestamp * 1e6), self._counters)
        except Exception as error:  # a poison message must not stop its partition
            if not isinstance(error, otlp.PayloadError):
                log.exception("offset %s of %s", message.offset, message.tp)
            reason = str(error) if isinstance(error, otlp.PayloadError) else f"internal error: {error!r}"
            self._counters.add("dead_letters: undecodable")
            await self._letters.bury(event, reason, payload or b"")
            return otlp.Decoded()
        for reason, rejected in decoded.rejected.items():
            spans = sum(len(scope.spans) for r in rejected.resource_spans for scope in r.scope_spans)
            self._counters.add(f"rejected_spans: {reason}", spans)
            await self._letters.bury(event, reason, rejected.SerializeToString())
        return decoded

    async def flush(self) -> None:
        """Closes what is due, stores its rows, then acknowledges."""
        self._taken = 0
        closed = [(tp, held, self._close(tp, held)) for tp, held in self._partitions.items()]
        for tp, held, traces in closed:
            if traces:
                await self._store(tp, traces)
            for offset in (offset for trace in traces for offset in trace.offsets):
                held.ledger.release(offset)
            if self._partitions.get(tp) is held:  # still ours, and not assigned anew meanwhile
                for event in held.ledger.take_done():
                    event.ack()
        self._room.set()

    def _close(self, tp: TP, partition: _Partition) -> list[Trace]:
        if runner.caught_up(self._app, tp, partition.offset):
            partition.window.advance(partition.message_at + time.monotonic() - partition.seen_at)
        return partition.window.close()

    async def _store(self, tp: TP, traces: list[Trace]) -> None:
        calls, edges = self._rows(traces)
        key = str(tp.partition).encode()
        outputs = (
            ("calls", columns.CALLS, calls, self._calls),
            ("edges", columns.EDGES, edges, self._edges),
        )
        for table, schema, batch, topic in outputs:
            if not columns.length(batch):
                continue
            await runner.deliver(topic, columns.to_ipc(schema, batch), key, self._status)
            await self._context.store.insert(table, list(schema), columns.to_clickhouse(schema, batch))
            self._counters.add(table, columns.length(batch))
        self._counters.add("traces", len(traces))

    def _rows(self, traces: list[Trace]) -> tuple[columns.Columns, columns.Columns]:
        spans = [trace.spans for trace in traces]
        try:
            return calls_and_edges(spans, self._templates, self._counters)
        except Exception:
            log.exception("%s traces; trying them one by one", len(traces))
        good = [one for one in spans if self._is_computable(one)]
        return calls_and_edges(good, self._templates, self._counters)

    def _is_computable(self, spans: list[Span]) -> bool:
        try:
            calls_and_edges([spans], self._templates, self._counters)
        except Exception:
            log.exception("trace %s of %s spans is lost", spans[0].trace_id, len(spans))
            self._counters.add("traces_lost: internal error")
            return False
        return True

    def forget(self, revoked: set[TP]) -> None:
        """Partitions that another worker has now: it starts from what was committed."""
        for tp in revoked:
            self._partitions.pop(tp, None)


def build(context: runner.Context) -> faust.App:
    app = runner.app("exclusive", context.settings)
    job = Exclusive(app, context)

    @app.agent(runner.topic(app, names.KAFKA_TOPIC_OTLP_SPANS))
    async def consume(stream: faust.StreamT) -> None:
        async for event in stream.noack().events():
            await job.take(event)

    runner.every(app, context.settings.flush_period, job.flush)

    @app.on_partitions_revoked.connect
    async def revoked(_: faust.App, revoked: set[TP], **__: object) -> None:
        job.forget(revoked)

    return app
