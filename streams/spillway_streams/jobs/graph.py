"""graph: turns calls, edges and network times into call ratios, network times and entry demand.

Parts of edges and of network times are stored, then positions, then the messages are acknowledged.
The requests that edges are divided by come from calls, which `curves` stores. Here they are only in
memory, and their messages are acknowledged once no window needs them.
"""

import asyncio
import math
import time
from collections.abc import Callable, Collection, Mapping

import faust
from faust.types import TP
from spillway_contracts import names
from spillway_contracts.hot_state import NetworkEntry, RouteEntry

from spillway_streams.batches import columns, positions
from spillway_streams.batches.columns import Columns, Schema
from spillway_streams.batches.parts import AbsurdRows, Parts, checked
from spillway_streams.batches.positions import Batch
from spillway_streams.boards import boards
from spillway_streams.boards.boards import HotTable, Window
from spillway_streams.clients import restore
from spillway_streams.clients.hot import Boards, Entry
from spillway_streams.graph import callgraph, outcomes
from spillway_streams.graph.callgraph import CallGraph
from spillway_streams.graph.outcomes import Outcomes
from spillway_streams.ingest.admission import Gate, UnadmittedError
from spillway_streams.jobs import runner
from spillway_streams.jobs.batches import Reader, Trailing, Unstored, acknowledge, consume, parts_columns
from spillway_streams.jobs.graph_state import PartitionState
from spillway_streams.jobs.live import Live
from spillway_streams.jobs.partition_states import PartitionStates, follow
from spillway_streams.load.attributes import PayloadError
from spillway_streams.process.config import GraphSettings

JOB = "graph"
_MEMORY_WINDOWS = 20
_TRACE_S = 60.0  # a call is known at most this long after its start
# Seconds by which the newest call of a partition may be ahead of its slowest source. Spans may come
# from clocks that are a minute ahead; the rest is how far sources are read apart.
_SPREAD_S = 60 + 20
_TABLES = {
    names.KAFKA_TOPIC_EDGES: ("edge_parts", callgraph.EDGE_PARTS),
    names.KAFKA_TOPIC_NETWORK: ("network_parts", callgraph.NETWORK_PARTS),
}


class Graph:
    """The memory of each partition number, and messages with rows not stored yet."""

    def __init__(self, app: faust.App, context: runner.Context[GraphSettings]) -> None:
        settings = context.settings
        self._app, self._context, self._settings = app, context, settings
        self._window = Window(settings.board_window_s, settings.board_settle_s)
        self.states = PartitionStates(app, self._make, self._restore)
        self._unstored = Unstored(app)
        self._requests = Trailing(settings.graph_window_s + _TRACE_S)
        self._gate = Gate(context.settings.accept_unadmitted, context.counters)
        self._reader = Reader(app, context)
        lives = settings.board_expiry_s, settings.unknown_hold_s
        options, counters = settings.redis_options(), context.counters
        redis = Boards(settings.redis_url, *lives, context.status, options, counters)
        self._live = Live(app, context, redis, self.states, self._reader, entries_only=True)

    def _make(self, _: int) -> PartitionState:
        settings, counters = self._settings, self._context.counters
        graph = CallGraph(settings.graph_window_s * _MEMORY_WINDOWS, settings.max_keys, counters)
        seen = Outcomes(math.ceil(settings.lateness_s) + _SPREAD_S, settings.max_keys, counters)
        return PartitionState(graph, HotTable(self._window, settings.max_keys, counters), seen)

    async def _restore(self, states: Mapping[int, PartitionState]) -> None:
        store, seconds = self._context.clickhouse, self._settings.graph_window_s * _MEMORY_WINDOWS
        stored = await restore.positions(store, JOB, states)
        for number, state in states.items():
            positions_here = [row for row in stored if row[1] == number]
            edges = await restore.parts(store, "edges", names.KAFKA_TOPIC_EDGES, positions_here, seconds)
            network = await restore.parts(
                store, "network", names.KAFKA_TOPIC_NETWORK, positions_here, seconds
            )
            await asyncio.to_thread(state.restore, positions_here, edges, network)
            rows = sum(len(found[0]) for found in (edges, network) if found)
            self._context.counters.add("restored_rows", rows)

    async def take_calls(self, event: faust.EventT) -> None:
        """Takes the requests of a message of calls into memory."""
        of = callgraph.request_parts
        state, batch, parts = await self._next(event, columns.CALLS, callgraph.CALL_COLUMNS, of)
        if state:
            if batch and parts:
                state.add_requests(batch, parts[0], self._settings.lateness_s)
            self._requests.add(event, batch)

    async def take_edges(self, event: faust.EventT) -> None:
        """Takes a message of edges into memory, and queues its parts for storing."""
        of = (callgraph.edge_parts, outcomes.parts)
        only = callgraph.EDGE_COLUMNS | outcomes.COLUMNS
        state, batch, parts = await self._next(event, columns.EDGES, only, *of)
        if state:
            if batch and parts:
                state.add(state.graph.edges, state.watermark, batch, parts[0])
                state.outcomes.add(parts[1])
            self._unstored.add(event, batch, parts[0] if parts else None)

    async def take_network(self, event: faust.EventT) -> None:
        """Takes a message of network times into memory, and queues its parts for storing."""
        of = callgraph.network_parts
        state, batch, parts = await self._next(event, columns.NETWORK, columns.NETWORK, of)
        if state:
            if batch and parts:
                state.add(state.graph.network, state.network_watermark, batch, parts[0])
            self._unstored.add(event, batch, parts[0] if parts else None)

    async def take_arrivals(self, event: faust.EventT) -> None:
        """Takes a message of arrivals, for the demand board."""
        await self._live.take(event)

    async def take_metrics(self, event: faust.EventT) -> None:
        """Takes counters of Envoys from a message of metrics.

        Messages that cannot be read are only counted here, because `curves` sends them to the dead
        letters.
        """
        state = await self.states.of(event.message)
        if state is None:
            return
        try:
            self._live.take_totals(event, state, self._gate.cluster(event.message.headers))
        except UnadmittedError:
            self._context.counters.add("metrics_unadmitted")
        except PayloadError:
            self._context.counters.add("metrics_undecodable")
        acknowledge(self._app, event.message)

    @property
    def soon(self) -> asyncio.Event:
        """Set when a board should not wait for its period."""
        return self._live.soon

    async def _next(
        self, event: faust.EventT, schema: Schema, only: Collection[str], *of: Callable[[Columns], Parts]
    ) -> tuple[PartitionState | None, Batch | None, list[Parts]]:
        """Returns the state, the batch, and the parts of a message that each of `of` returns.

        The state is None when the partition was given away. The batch is None when the message was
        dead-lettered. There are no parts when they must not be counted.
        """
        state, parts = await self.states.of(event.message), list[Parts]()
        if state is None:
            return None, None, parts
        await self._unstored.room()
        batch, rows = await self._reader.batch(event, schema, only)
        try:
            parts = [checked(each(rows)) for each in of] if rows is not None else []
        except AbsurdRows as error:
            await self._reader.refuse(event, "absurd", error)
            batch = None
        if not self.states.owns(event.message, state):
            return None, None, []
        is_new = batch is not None and parts and state.take(batch, self._context.counters)
        return state, batch, parts if is_new else []

    async def board(self) -> None:
        """Writes demand, network times, outcomes and what is unknown to Redis."""

        def entries(state: PartitionState, times: boards.Times) -> boards.Demand:
            return boards.demand_board(state.hot, times)

        settings = self._settings
        pairs: dict[str, NetworkEntry] = {}
        for state in self.states.ready.values():
            end, rows = state.network_times(settings.graph_window_s, settings.lateness_s, time.monotonic())
            pairs |= callgraph.network_board(rows, end)
        more: dict[str, Mapping[str, Entry]] = {names.REDIS_KEY_NETWORK: pairs, **self._routes()}
        await self._live.board(names.REDIS_KEY_DEMAND, entries, more, says_unknown=True)

    def _routes(self) -> dict[str, dict[str, RouteEntry]]:
        """Returns what callers saw, by key of each source cluster."""
        found: dict[str, dict[str, RouteEntry]] = {}
        for state in self.states.ready.values():
            seen = state.outcomes_board(self._settings.lateness_s, time.monotonic())
            for cluster, routes in seen.items():
                fields = found.setdefault(names.REDIS_KEY_ROUTE.format(cluster=cluster), {})
                fields |= {RouteEntry.field(*route): entry for route, entry in routes.items()}
        return found

    async def store(self) -> None:
        """Stores parts, then positions, then acknowledges the messages.

        Parts that are stored twice replace themselves.
        """
        taken, requests = self._unstored.take(), self._requests.take()
        for topic, (table, names_) in _TABLES.items():
            of_topic = [entry for entry in taken if entry.batch and entry.batch.topic == topic]
            await self._context.clickhouse.insert_columns(
                table, parts_columns(of_topic, names_), self._reader.dead_letters.refused
            )
        done = positions.rows(JOB, (entry.batch for entry in [*taken, *requests] if entry.batch))
        await self._insert("positions", positions.POSITIONS, done)
        self._unstored.stored(taken)
        for entry in requests:
            acknowledge(self._app, entry.message)
        states = self.states.ready.values()
        self._context.counters.gauge("partitions", len(states))
        self._context.counters.gauge("edge_keys", sum(len(state.graph.edges) for state in states))

    async def rows(self) -> None:
        """Stores call ratios and network times in ClickHouse, where there is new data."""
        wall, window, lateness = time.monotonic(), self._settings.graph_window_s, self._settings.lateness_s
        ratios, pairs = [], []
        for state in self.states.ready.values():
            watermarks = (state.watermark.now(wall), state.network_watermark.now(wall))
            if watermarks != state.written_watermarks:
                state.written_watermarks = watermarks
                ratios += state.ratios(window, lateness, wall)
                pairs += state.network_times(window, lateness, wall)[1]
        await self._insert("call_ratios", callgraph.CALL_RATIOS, ratios)
        await self._insert("network_times", callgraph.NETWORK_TIMES, pairs)

    async def _insert(self, table: str, names_: tuple[str, ...], rows: list[tuple]) -> None:
        await self._context.clickhouse.insert(table, names_, rows, self._reader.dead_letters.refused)

    def assigned(self, partitions: set[TP]) -> None:
        self.states.assigned(partitions)

    def revoked(self, partitions: set[TP]) -> None:
        self.states.revoked()
        self._unstored.forget(partitions)
        self._requests.forget(partitions)
        self._live.forget(partitions)


def build(context: runner.Context[GraphSettings]) -> faust.App:
    """Creates the app of the job."""
    app = runner.app(JOB, context.settings)
    job = Graph(app, context)
    consume(app, context.lag, names.KAFKA_TOPIC_CALLS, job.take_calls)
    consume(app, context.lag, names.KAFKA_TOPIC_EDGES, job.take_edges)
    consume(app, context.lag, names.KAFKA_TOPIC_NETWORK, job.take_network)
    consume(app, context.lag, names.KAFKA_TOPIC_ARRIVALS, job.take_arrivals)
    consume(app, context.lag, names.KAFKA_TOPIC_OTLP_METRICS, job.take_metrics)
    follow(app, job.assigned, job.revoked)
    runner.every(app, context.settings.board_period_s, job.board, job.soon)
    runner.every(app, context.settings.store_period_s, job.store)
    runner.every(app, context.settings.graph_period_s, job.rows)
    return app
