"""classify: turns calls and edges into class rules and findings.

Its memory is samples of about the last half hour, which fills again after a restart or a rebalance.
The calls of a service come in one partition, so one worker decides for the service.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import astuple

import faust
from faust.types import TP
from spillway_contracts import names

from spillway_streams.batches import columns, positions
from spillway_streams.classes import findings, rules, tables
from spillway_streams.classes.decide import Decider
from spillway_streams.classes.memory import Memory
from spillway_streams.classes.options import Options
from spillway_streams.jobs import runner
from spillway_streams.jobs.batches import Reader, acknowledge, consume
from spillway_streams.jobs.partition_states import follow
from spillway_streams.process.config import ClassifySettings

log = logging.getLogger("spillway.classify")
_CALLS = (
    "started_at", "trace_id", "span_id", "cluster", "service", "class", "source_cluster", "source_service",
    "exclusive_us", "in_flight", "request_bytes", "response_bytes", "status", "failed", "adjusted_count",
)  # fmt: skip
_EDGES = ("trace_id", "span_id", "source_service", "source_class", "class", "adjusted_count")


class Classify:
    """The job's state: the memory of its services, and what was decided."""

    def __init__(self, app: faust.App, context: runner.Context[ClassifySettings]) -> None:
        settings = context.settings
        self._app, self._context, self._counters = app, context, context.counters
        options = Options(
            classes_per_service=settings.classes_per_service,
            confirm=settings.class_confirm,
            min_samples=settings.class_min_samples,
            lease=settings.class_lease_s,
        )
        self._memory = Memory(settings.class_memory_s, context.counters)
        self._decider = Decider(options)
        self._novelty = findings.novelty()
        self._partitions: dict[str, int] = {}  # service -> the partition that its calls came in
        self._ours: set[int] = set()  # partition numbers of this worker
        self._positions = positions.Positions()
        self._reader = Reader(app, context)
        self._lock = asyncio.Lock()  # needed because a decision reads the memory from a thread

    async def take_calls(self, event: faust.EventT) -> None:
        """Adds a message of calls to the memory."""
        await self._take(event, "calls", columns.CALLS, _CALLS, self._memory.add_calls, "service")

    async def take_edges(self, event: faust.EventT) -> None:
        """Adds a message of edges to the memory."""
        await self._take(event, "edges", columns.EDGES, _EDGES, self._memory.add_edges, "source_service")

    async def _take(
        self,
        event: faust.EventT,
        what: str,
        schema: columns.Schema,
        only: tuple,
        add: Callable[[columns.Columns], None],
        service: str,
    ) -> None:
        """Adds a batch to the memory with `add`.

        Repeated batches are dropped, so that requests are counted once. For samples a repeat would
        make no difference, because they are chosen by span. `service`: the column that names the
        service of each row.
        """
        identity, batch = await self._reader.batch(event, schema, only)
        if identity is not None and batch is not None:  # both, or neither
            async with self._lock:
                if event.message.generation_id != self._app.consumer_generation_id:
                    return  # the message comes again, and must not be taken for a repeat then
                if not self._positions.take(identity):
                    self._counters.add("repeated_batches")
                elif error := self._failure(add, batch):
                    await self._reader.refuse(event, "unusable", error)
                else:
                    self._note(batch[service].values, event.message.partition)
                    self._counters.add(what, columns.length(batch))
        acknowledge(self._app, event.message)

    def _failure(self, add: Callable[[columns.Columns], None], batch: columns.Columns) -> Exception | None:
        """Adds the batch to the memory, and returns the exception that this raised, if any.

        Rows that decode may still fail here. Half a batch in memory does no harm, because samples
        of half a batch are samples too.
        """
        self._memory.turn(time.time())
        try:
            add(batch)
        except Exception as error:
            log.exception("a batch of %d rows", columns.length(batch))
            return error
        return None

    def _note(self, services: list[str], partition: int) -> None:
        self._partitions.update(
            (service, partition) for service in services if service in self._memory.services
        )

    async def decide(self) -> None:
        """Decides rules and findings for each service, one after the other.

        Rules that are written count as in force at the next decision.
        """
        rows = await self._context.clickhouse.select(tables.RULES_SQL)
        history = rules.by_service(tables.read_rules(zip(*rows, strict=True)))
        async with self._lock:
            self._forget_others()
        for service in sorted(self._memory.services):
            started = time.monotonic()
            async with self._lock:
                memory = self._memory.services.get(service)
                if memory is None:
                    continue
                arguments = (
                    service,
                    memory,
                    self._memory.names,
                    history.get(service, []),
                    _now_ms(),
                )
                try:
                    written, found = await asyncio.to_thread(self._decider.decide, *arguments)
                except Exception:  # one service's odd numbers must not leave the others undecided
                    log.exception("service %s: no decision", service)
                    self._counters.add("decisions_failed")
                    continue
            if self._partitions.get(service) in self._ours:
                await self._store(written, self._novelty.keep([astuple(finding) for finding in found]))
            self._counters.add("decisions")
            self._counters.add("decision_milliseconds", int((time.monotonic() - started) * 1000))

    async def _store(self, written: list[rules.Rule], found: list[tuple]) -> None:
        store, refused = self._context.clickhouse, self._reader.dead_letters.refused
        if written:
            await store.insert(
                tables.RULES, rules.COLUMNS, lambda: rules.stamped(written, _now_ms()), refused
            )
        await store.insert(tables.FINDINGS, findings.COLUMNS, found, refused)
        for rule in written:
            self._counters.add(f"rules: {rule.kind}")
            log.info(
                "%s %s %s -> %s: %s, %s",
                rule.service,
                rule.method,
                rule.template,
                rule.becomes,
                rule.kind,
                rule.reason,
            )
        self._counters.add("findings", len(found))

    def keep(self, assigned: set[TP]) -> None:
        """Notes the assigned partitions.

        Services of other partitions belong to another worker now; the memory of the remaining
        services stays.
        """
        self._ours = {tp.partition for tp in assigned}

    def _forget_others(self) -> None:
        """Forgets services that belong to other workers.

        Call it under the lock, because a decision in its thread iterates over all of this.
        """
        known = self._memory.services
        gone = {
            service
            for service, partition in self._partitions.items()
            if partition not in self._ours or service not in known
        }
        for service in gone:
            del self._partitions[service]
            known.pop(service, None)
        self._decider.forget(gone)
        self._novelty.forget(_now_ms(), lambda row: row[findings.SERVICE] in gone)


def _now_ms() -> int:
    return int(time.time() * 1000)


def build(context: runner.Context[ClassifySettings]) -> faust.App:
    """Creates the app of the job."""
    app = runner.app("classify", context.settings)
    job = Classify(app, context)
    consume(app, context.lag, names.KAFKA_TOPIC_CALLS, job.take_calls)
    consume(app, context.lag, names.KAFKA_TOPIC_EDGES, job.take_edges)
    runner.every(app, context.settings.class_period_s, job.decide)
    follow(app, job.keep, lambda _: None)
    return app
