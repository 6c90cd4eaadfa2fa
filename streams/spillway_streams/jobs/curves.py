"""curves: calls and CPU use -> load per second, buckets, curves, capacities, the load board.

Memory is rebuilt from load_1s and cpu_1s at start. A message is acknowledged once the seconds that
it changed are in ClickHouse.
"""

import asyncio
import time

import faust
from faust.types import TP
from spillway_contracts import names

from spillway_streams import boards, columns, cpu, load, modelling, otlp, runner
from spillway_streams.event_time import Watermark
from spillway_streams.hot import Boards
from spillway_streams.jobs.batches import DeadLetters, Unstored, decode
from spillway_streams.modelling import Modeller, Novelty, Options

_LOAD_SQL = """
SELECT toUnixTimestamp(at), cluster, service, class, arrivals, failed, duration_ms, exclusive_ms, in_flight,
    service_rate
FROM load_1s FINAL WHERE at > (SELECT max(at) FROM load_1s) - %(seconds)s"""
_CPU_SQL = """
SELECT toUnixTimestamp(at), cluster, service, pod, utilisation
FROM cpu_1s FINAL WHERE at > (SELECT max(at) FROM cpu_1s) - %(seconds)s"""


class Curves:
    """The job's state: the tables of load and CPU, and what is not stored yet."""

    def __init__(self, app: faust.App, context: runner.Context) -> None:
        settings = context.settings
        self._context, self._settings = context, settings
        self._load = load.LoadTable(settings.memory_seconds, context.counters)
        self._cpu = cpu.CpuTable(settings.memory_seconds)
        self._cpu_rows: list[cpu.Point] = []
        options = Options(settings.min_samples, settings.shift_window, settings.capacity_seconds)
        self._modeller = Modeller(options)
        self._new_curves = Novelty(identity=(2, 3), values=(4, 5, 8, 13))
        self._new_capacities = Novelty(identity=(2, 3), values=(4, 5))
        self._watermark = Watermark()
        self._unstored = Unstored()
        self._letters = DeadLetters(app, context)
        self._boards = Boards(settings.redis_url, settings.board_expiry, context.status)
        self._restored = asyncio.Event()
        self._board_at: int | None = None

    async def restore(self) -> None:
        """Rebuilds memory from ClickHouse; messages wait until it is done."""
        parameters = {"seconds": self._settings.memory_seconds}
        rows = await self._context.store.select(_LOAD_SQL, parameters)
        self._load.restore(zip(*rows, strict=True))
        points = await self._context.store.select(_CPU_SQL, parameters)
        self._cpu.add(cpu.Point(*point) for point in zip(*points, strict=True))
        await self._boards.reach()
        self._context.counters.add("restored_seconds", len(rows[0]) if rows else 0)
        self._restored.set()

    async def take_calls(self, event: faust.EventT) -> None:
        await self._restored.wait()
        await self._unstored.room()
        batch = await decode(columns.CALLS, event, self._letters, self._context)
        if columns.length(batch):
            self._load.add(batch)
            newest = int(batch["started_at"].max()) // 1_000_000
            self._watermark.note(event.message.partition, newest, time.monotonic())
            self._context.counters.add("calls", columns.length(batch))
        self._unstored.add(event)

    async def take_metrics(self, event: faust.EventT) -> None:
        await self._restored.wait()
        await self._unstored.room()
        try:
            points = cpu.decode(event.value or b"", self._context.counters)
        except otlp.PayloadError as error:
            self._context.counters.add("dead_letters: undecodable")
            await self._letters.bury(event, str(error), event.value or b"")
            points = []
        self._cpu.add(points)
        self._cpu_rows += points
        self._context.counters.add("cpu_points", len(points))
        self._unstored.add(event)

    async def tick(self) -> None:
        """Boards first, they are what somebody waits for; then the rows; then acknowledges."""
        await self._restored.wait()
        events = self._unstored.take()
        now = self._watermark.now(time.monotonic())
        if now is not None and (events or now != self._board_at):
            self._board_at = now
            await self._put_board(now - int(self._settings.lateness))
        else:
            await self._boards.reach()
        rows, dirty = self._load.take_dirty()
        points, self._cpu_rows = self._cpu_rows, []
        store = self._context.store
        await store.insert("load_1s", list(load.LOAD_1S), rows)
        await store.insert("cpu_1s", list(cpu.CPU_1S), [list(c) for c in zip(*points, strict=True)])
        await self._store("buckets", modelling.BUCKETS, list(self._modeller.buckets(dirty)))
        self._unstored.stored(events)

    async def _put_board(self, end: int) -> None:
        board = boards.load_board(self._load, self._cpu, end - self._settings.board_window, end)
        await self._boards.put(
            {names.REDIS_KEY_LOAD.format(cluster=cluster): entries for cluster, entries in board.items()}
        )

    async def fit(self) -> None:
        """New versions of curves and capacities."""
        await self._restored.wait()
        curves, capacities = self._modeller.fit(self._load, self._cpu, int(time.time() * 1000))
        await self._store("curves", modelling.CURVES, self._new_curves.keep(curves))
        await self._store("capacities", modelling.CAPACITIES, self._new_capacities.keep(capacities))

    async def _store(self, table: str, names: tuple[str, ...], rows: list[tuple]) -> None:
        await self._context.store.insert(table, list(names), [list(c) for c in zip(*rows, strict=True)])
        self._context.counters.add(f"rows: {table}", len(rows))

    def forget(self, revoked: set[TP]) -> None:
        self._unstored.forget(revoked)
        for tp in revoked:
            self._watermark.forget(tp.partition)


def build(context: runner.Context) -> faust.App:
    app = runner.app("curves", context.settings)
    job = Curves(app, context)

    @app.agent(runner.topic(app, names.KAFKA_TOPIC_CALLS))
    async def calls(stream: faust.StreamT) -> None:
        async for event in stream.noack().events():
            await job.take_calls(event)

    @app.agent(runner.topic(app, names.KAFKA_TOPIC_OTLP_METRICS))
    async def metrics(stream: faust.StreamT) -> None:
        async for event in stream.noack().events():
            await job.take_metrics(event)

    runner.every(app, context.settings.board_period, job.tick)
    runner.every(app, context.settings.fit_period, job.fit)
    app.task(job.restore)

    @app.on_partitions_revoked.connect
    async def revoked(_: faust.App, revoked: set[TP], **__: object) -> None:
        job.forget(revoked)

    return app
