"""curves: turns calls and CPU use into load, buckets, curves, capacities and the load board.

Load is kept per second. Memory is rebuilt from what is stored when a partition is assigned. A
message of calls is acknowledged once its parts, and then its position, are in ClickHouse. A batch
whose sequence was already taken is dropped.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter

import faust
from faust.types import TP
from spillway_contracts import names

from spillway_streams import StreamsError
from spillway_streams.batches import columns, positions
from spillway_streams.batches.novelty import Novelty
from spillway_streams.batches.parts import AbsurdRows, Parts, checked
from spillway_streams.batches.positions import Batch, Positions
from spillway_streams.boards import boards
from spillway_streams.boards.boards import HotTable, Window
from spillway_streams.boards.event_time import Watermark
from spillway_streams.clients import restore
from spillway_streams.clients.hot import Boards
from spillway_streams.ingest.admission import Gate, UnadmittedError
from spillway_streams.jobs import runner
from spillway_streams.jobs.batches import Reader, Unstored, consume, parts_columns
from spillway_streams.jobs.live import Live
from spillway_streams.jobs.partition_states import PartitionStates, follow
from spillway_streams.load import cpu, load
from spillway_streams.model import modelling, service
from spillway_streams.model.modelling import Fitted, Modeller, Options
from spillway_streams.process.config import CurvesSettings

JOB = "curves"
_REFIT_S = 30.0  # a service without new data is fitted again after this, because recent data ages
# After a restore, this many of the newest seconds count as changed, because their buckets may not
# be stored although their parts are.
_WITHOUT_BUCKETS_S = 120
log = logging.getLogger("spillway.curves")

_ROWS = (attrgetter("curves"), attrgetter("capacities"), attrgetter("buckets"))


@dataclass(frozen=True)
class LastFit:
    """The last fit of a service.

    `at`: when it was made (monotonic seconds). `newest`: the newest second that the service had,
    and `since` the time from which on it was the newest (monotonic seconds).
    `without_buckets`: seconds for which no buckets were made. `disagreeing`: number of clusters in
    which the evidence of the capacity disagrees.
    """

    at: float
    newest: int
    since: float
    without_buckets: Mapping[load.Key, set[int]]
    disagreeing: int  # capacities whose evidence disagrees


@dataclass
class PartitionState:
    """Memory of one partition number: its services with their calls, CPU use and models."""

    load: load.LoadTable
    cpu: cpu.CpuTable
    hot: HotTable
    modeller: Modeller
    positions: Positions = field(default_factory=Positions)
    watermark: Watermark = field(default_factory=Watermark)
    new_curves: Novelty = field(default_factory=lambda: Novelty(identity=(2, 3), values=(4, 5, 8, 13)))
    new_capacities: Novelty = field(default_factory=lambda: Novelty(identity=(2, 3), values=(4, 5, 7, 8)))
    exclusive_ms: dict[tuple[str, str], float] = field(default_factory=dict)
    fits: dict[str, LastFit] = field(default_factory=dict)

    def fold(self, batch: Batch, rows: columns.Columns, wall: float) -> Parts | None:
        """Takes a batch of calls into memory, and returns the parts to store.

        Returns None for a repeated batch. Raises AbsurdRows for rows that cannot be true; nothing
        is taken then.
        """
        parts = checked(load.parts_of(rows))
        if not self.positions.take(batch):
            return None
        self.load.add_parts(parts)
        if len(parts):
            self.watermark.note(batch.source, int(parts.at.max()), wall)
        return parts

    def restore(self, stored: Iterable[tuple], parts: list[tuple], points: list[tuple]) -> None:
        """Fills the memory from stored rows.

        `stored`: positions of this partition. `parts`: columns of the parts up to them. `points`:
        columns of CPU use.
        """
        self.positions = Positions(stored)
        if parts:
            self.load.add_parts(load.restored(parts))
            self.load.forget_dirty(_WITHOUT_BUCKETS_S)
        self.cpu.add(cpu.Point(*point) for point in zip(*points, strict=True))

    def update_exclusive_times(self, window: int, lateness: float, wall: float) -> None:
        """Updates the mean exclusive times.

        Classes without calls in the window keep their last value.
        """
        now = self.watermark.now(wall)
        if now is not None:
            end = now - int(lateness)
            known = {(key.cluster, key.class_id) for key in self.load.series}
            old = {name: ms for name, ms in self.exclusive_ms.items() if name in known}
            self.exclusive_ms = old | self.load.exclusive_ms(end - window, end)


class Curves:
    """The memory of each partition number, and the rows that are not stored yet."""

    def __init__(self, app: faust.App, context: runner.Context[CurvesSettings]) -> None:
        settings = context.settings
        self._app, self._context, self._settings = app, context, settings
        self._window = Window(settings.board_window_s, settings.board_settle_s)
        self.states = PartitionStates(app, self._make, self._restore)
        self._unstored = Unstored(app)
        self._reader = Reader(app, context)
        self._gate = Gate(settings.accept_unadmitted, context.counters)
        lives = settings.board_expiry_s, settings.unknown_hold_s
        options, counters = settings.redis_options(), context.counters
        redis = Boards(settings.redis_url, *lives, context.status, options, counters)
        self._live = Live(app, context, redis, self.states, self._reader)

    def _make(self, _: int) -> PartitionState:
        settings, counters = self._settings, self._context.counters
        options = Options(settings.min_samples, settings.shift_window_s, settings.capacity_s)
        return PartitionState(
            load.LoadTable(settings.memory_s, counters, settings.max_keys, settings.max_key_seconds),
            cpu.CpuTable(settings.memory_s, settings.max_keys),
            HotTable(self._window, settings.max_keys, counters),
            Modeller(options),
        )

    async def _restore(self, states: Mapping[int, PartitionState]) -> None:
        """Restores memory from the parts up to exactly the stored positions.

        All later batches come again.
        """
        store, calls = self._context.clickhouse, names.KAFKA_TOPIC_CALLS
        seconds = self._settings.memory_s
        stored = await restore.positions(store, JOB, states)
        for number, state in states.items():
            positions_here = [row for row in stored if row[1] == number]
            parts = await restore.parts(
                store, "load", calls, positions_here, seconds, self._settings.max_key_seconds
            )
            points = await restore.cpu(store, number, self._context.layout.partitions, seconds)
            windows = await restore.windows(store, number, self._context.layout.partitions, seconds)
            state.modeller.restore(zip(*windows, strict=True))
            await asyncio.to_thread(state.restore, positions_here, parts, points)
            self._context.counters.add("restored_seconds", len(parts[0]) if parts else 0)

    async def take_calls(self, event: faust.EventT) -> None:
        """Takes a message of calls into memory, and queues its parts for storing."""
        message = event.message
        state = await self.states.of(message)
        if state is None:
            return
        await self._unstored.room()
        batch, rows = await self._reader.batch(event, columns.CALLS, load.CALL_COLUMNS)
        if not self.states.owns(message, state):
            return
        parts = None
        if batch is not None and rows is not None:  # both, or neither
            try:
                parts = state.fold(batch, rows, time.monotonic())
                self._context.counters.add(
                    "repeated_calls" if parts is None else "calls", columns.length(rows)
                )
            except AbsurdRows as error:
                await self._reader.refuse(event, "absurd", error)
                batch = None
        self._unstored.add(event, batch, parts)

    async def take_metrics(self, event: faust.EventT) -> None:
        """Takes CPU readings and counters of Envoys from a message of metrics."""
        state = await self.states.of(event.message)
        if state is None:
            return
        await self._unstored.room()
        points: list[cpu.Point] = []
        try:
            cluster = self._gate.cluster(event.message.headers)
            points = cpu.decode(event.value or b"", self._context.counters, cluster)
            self._live.take_totals(event, state, cluster)
        except UnadmittedError as error:
            await self._reader.refuse(event, "unadmitted", error)
        except StreamsError as error:
            await self._reader.refuse(event, "undecodable", error)
        if self.states.owns(event.message, state):
            state.cpu.add(points)
            self._context.counters.add("cpu_points", len(points))
            self._unstored.add(event, rows=points)

    async def take_arrivals(self, event: faust.EventT) -> None:
        """Takes a message of arrivals, for the load board."""
        await self._live.take(event)

    async def store(self) -> None:
        """Stores rows, then positions, then acknowledges the messages.

        Rows that are stored twice replace themselves.
        """
        taken = self._unstored.take()
        await self._context.clickhouse.insert_columns(
            "load_parts", parts_columns(taken, load.LOAD_PARTS), self._reader.dead_letters.refused
        )
        points = [point for entry in taken if isinstance(entry.rows, list) for point in entry.rows]
        await self._insert("cpu_1s", cpu.CPU_1S, points)
        for state in self.states.ready.values():
            state.update_exclusive_times(
                self._settings.board_window_s, self._settings.lateness_s, time.monotonic()
            )
        done = positions.rows(JOB, (entry.batch for entry in taken if entry.batch))
        await self._insert("positions", positions.POSITIONS, done)
        self._unstored.stored(taken)
        states = self.states.ready.values()
        self._context.counters.gauge("partitions", len(states))
        disagreeing = sum(last.disagreeing for state in states for last in state.fits.values())
        self._context.counters.gauge("capacities_disagreeing", disagreeing)
        self._context.counters.gauge("load_keys", sum(len(state.load.series) for state in states))

    async def board(self) -> None:
        """Writes the load board of all classes that this worker owns."""

        def entries(state: PartitionState, times: boards.Times) -> boards.Board:
            return boards.load_board(state.hot, state.exclusive_ms, state.cpu, times)

        await self._live.board(names.REDIS_KEY_LOAD, entries)

    async def fit(self) -> None:
        """Stores new versions of curves and capacities, and the buckets of what changed."""
        for number, state in list(self.states.ready.items()):
            now_ms = int(time.time() * 1000)
            fitted = [entry async for entry in self._fitted(state, now_ms, time.monotonic())]
            if self.states.ready.get(number) is not state:
                return  # all partitions were assigned anew, and their new owner knows more
            rows = [[row for entry in fitted for row in of(entry)] for of in _ROWS]
            await self._insert("curves", modelling.CURVES, state.new_curves.keep(rows[0]))
            await self._insert("capacities", modelling.CAPACITIES, state.new_capacities.keep(rows[1]))
            await self._insert("buckets", modelling.BUCKETS, rows[2])
            state.modeller.forget(state.load.series)
            state.new_curves.forget(now_ms)
            state.new_capacities.forget(now_ms)

    async def _fitted(self, state: PartitionState, now_ms: int, wall: float) -> AsyncIterator[Fitted]:
        """Fits each service that has new data, or that has not been fitted for a while.

        A fit runs in a thread on a copy of what is known of the service. Calls, boards and rows
        therefore do not wait.
        """
        services = service.gather(state.load)
        state.fits = {name: last for name, last in state.fits.items() if name in services}
        for name, keys in services.items():
            known = [
                key for by_class in keys.values() for key in by_class.values() if key in state.load.series
            ]
            dirty, last = state.load.take_dirty(known), state.fits.get(name)
            if not known or (last and dirty == last.without_buckets and wall - last.at < _REFIT_S):
                state.load.give_back(dirty)
                continue
            recorded = service.record(name, keys, state.load, state.cpu)
            newest = max(state.load.series[key].newest for key in known)
            since = last.since if last and last.newest == newest else wall
            try:
                fitted = await asyncio.to_thread(
                    state.modeller.fit_service, recorded, dirty, now_ms, int(wall - since)
                )
            except Exception:  # one service's odd numbers must not leave the others without curves
                log.exception("service %s: no fit", name)
                self._context.counters.add("fits_failed")
                state.load.give_back(dirty)
                continue
            state.load.give_back(fitted.without_buckets)
            state.fits[name] = LastFit(wall, newest, since, fitted.without_buckets, fitted.disagreeing)
            yield fitted

    async def _insert(self, table: str, columns: tuple[str, ...], rows: list[tuple]) -> None:
        await self._context.clickhouse.insert(table, columns, rows, self._reader.dead_letters.refused)

    def assigned(self, partitions: set[TP]) -> None:
        self.states.assigned(partitions)

    def revoked(self, partitions: set[TP]) -> None:
        self.states.revoked()
        self._unstored.forget(partitions)
        self._live.forget(partitions)


def build(context: runner.Context[CurvesSettings]) -> faust.App:
    """Creates the app of the job."""
    app = runner.app(JOB, context.settings)
    job = Curves(app, context)
    consume(app, context.lag, names.KAFKA_TOPIC_CALLS, job.take_calls)
    consume(app, context.lag, names.KAFKA_TOPIC_OTLP_METRICS, job.take_metrics)
    consume(app, context.lag, names.KAFKA_TOPIC_ARRIVALS, job.take_arrivals)
    runner.every(app, context.settings.board_period_s, job.board)
    runner.every(app, context.settings.store_period_s, job.store)
    runner.every(app, context.settings.fit_period_s, job.fit)
    follow(app, job.assigned, job.revoked)
    return app
