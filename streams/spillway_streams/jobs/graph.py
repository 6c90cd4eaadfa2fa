"""graph: calls and edges -> call ratios, network times, demand at the entry.

Memory is a sliding window: after a restart it fills again from what was not acknowledged and from
what comes.
"""

import time

import faust
from faust.types import TP
from spillway_contracts import names

from spillway_streams import callgraph, columns, runner
from spillway_streams.callgraph import CallGraph
from spillway_streams.event_time import Watermark
from spillway_streams.hot import Boards
from spillway_streams.jobs.batches import DeadLetters, Unstored, decode

_MEMORY_WINDOWS = 20


class Graph:
    """The job's state: sums per second, and the messages behind rows that are not stored yet."""

    def __init__(self, app: faust.App, context: runner.Context) -> None:
        settings = context.settings
        self._context, self._settings = context, settings
        memory = settings.graph_window * _MEMORY_WINDOWS
        per_second = max(settings.max_network_samples // settings.graph_window, 1)
        self._graph = CallGraph(memory, per_second, context.counters)
        self._watermark = Watermark()
        self._unstored = Unstored()
        self._letters = DeadLetters(app, context)
        self._boards = Boards(settings.redis_url, settings.board_expiry, context.status)
        self._news = False
        self._board_at: int | None = None
        self._rows_at: int | None = None

    async def start(self) -> None:
        await self._boards.reach()

    async def take_calls(self, event: faust.EventT) -> None:
        await self._unstored.room()
        batch = await decode(columns.CALLS, event, self._letters, self._context)
        if columns.length(batch):
            self._graph.add_calls(batch)
            newest = int(batch["started_at"].max()) // 1_000_000
            self._watermark.note(event.message.partition, newest, time.monotonic())
            self._context.counters.add("calls", columns.length(batch))
        self._unstored.add(event)
        self._news = True

    async def take_edges(self, event: faust.EventT) -> None:
        await self._unstored.room()
        batch = await decode(columns.EDGES, event, self._letters, self._context)
        if columns.length(batch):
            self._graph.add_edges(batch)
            self._context.counters.add("edges", columns.length(batch))
        self._unstored.add(event)
        self._news = True

    async def board(self) -> None:
        """Demand and network for Redis."""
        now = self._watermark.now(time.monotonic())
        if now is None or not (self._news or now != self._board_at):
            await self._boards.reach()
            return
        self._board_at, self._news = now, False
        end = now - int(self._settings.lateness)
        demand = self._graph.demand(end - self._settings.board_window, end)
        pairs = self._graph.network_times(end - self._settings.graph_window, end, end * 1000)
        put = {names.REDIS_KEY_DEMAND.format(cluster=cluster): entries for cluster, entries in demand.items()}
        await self._boards.put(put | {names.REDIS_KEY_NETWORK: callgraph.network_board(pairs, end)})

    async def rows(self) -> None:
        """Call ratios and network times for ClickHouse; then acknowledges."""
        events = self._unstored.take()
        now = self._watermark.now(time.monotonic())
        if now is not None and (events or now != self._rows_at):
            self._rows_at = now
            end = now - int(self._settings.lateness)
            first, at = end - self._settings.graph_window, end * 1000
            store = self._context.store
            ratios = self._graph.call_ratios(first, end, at)
            pairs = self._graph.network_times(first, end, at)
            await store.insert("call_ratios", list(callgraph.CALL_RATIOS), _columns(ratios))
            await store.insert("network_times", list(callgraph.NETWORK_TIMES), _columns(pairs))
            self._context.counters.add("rows: call_ratios", len(ratios))
        self._unstored.stored(events)

    def forget(self, revoked: set[TP]) -> None:
        self._unstored.forget(revoked)
        for tp in revoked:
            self._watermark.forget(tp.partition)


def _columns(rows: list[tuple]) -> list[list]:
    return [list(column) for column in zip(*rows, strict=True)]


def build(context: runner.Context) -> faust.App:
    app = runner.app("graph", context.settings)
    job = Graph(app, context)

    @app.agent(runner.topic(app, names.KAFKA_TOPIC_CALLS))
    async def calls(stream: faust.StreamT) -> None:
        async for event in stream.noack().events():
            await job.take_calls(event)

    @app.agent(runner.topic(app, names.KAFKA_TOPIC_EDGES))
    async def edges(stream: faust.StreamT) -> None:
        async for event in stream.noack().events():
            await job.take_edges(event)

    app.task(job.start)
    runner.every(app, context.settings.board_period, job.board)
    runner.every(app, context.settings.graph_period, job.rows)

    @app.on_partitions_revoked.connect
    async def revoked(_: faust.App, revoked: set[TP], **__: object) -> None:
        job.forget(revoked)

    return app
