"""The hot path of a job: sums of what just ended become boards in Redis, several times a second.

A board is written at once when an Envoy reports that its load has changed, and changes of demand
are announced. The sums are not exact after a crash and never used for history. The messages that
they need are read again after an assignment.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from typing import Generic, Protocol, TypeVar

import faust
from faust.types import TP
from spillway_contracts import names
from spillway_contracts.hot_state import DemandEntry, LoadBoardEntry, UnknownEntry
from spillway_native import partition_of

from spillway_streams.batches import columns, marks, positions
from spillway_streams.boards import boards, counted, held, totals
from spillway_streams.boards.boards import HotTable, Times
from spillway_streams.boards.counted import CountedBoards
from spillway_streams.boards.held import Held
from spillway_streams.boards.placement import Placement
from spillway_streams.boards.uncounted import Uncounted
from spillway_streams.clients.hot import Boards, Entry
from spillway_streams.jobs import runner
from spillway_streams.jobs.batches import Reader, Trailing, acknowledge
from spillway_streams.jobs.partition_states import PartitionStates
from spillway_streams.process.config import HotSettings

# Log time beyond the window, for late arrivals; it is read again after an assignment.
_KEEP_S = 20.0
_REWRITE_S = 1.0  # a board without new data is written again after this, so that it does not expire
_PLACEMENT_S = 1.0


class PartitionState(Protocol):
    """What Live needs of the memory of a partition number."""

    hot: HotTable


S = TypeVar("S", bound=PartitionState)
ByCluster = Mapping[str, dict[str, LoadBoardEntry] | dict[str, DemandEntry]]


class Live(Generic[S]):
    """Adds arrivals to the hot tables of the partitions, and writes the boards made of them."""

    def __init__(
        self,
        app: faust.App,
        context: runner.Context[HotSettings],
        redis: Boards,
        states: PartitionStates[S],
        reader: Reader,
        entries_only: bool = False,
    ) -> None:
        """`entries_only`: rates count only calls that none of our services made."""
        settings = context.settings
        self._app, self._redis, self._states, self._reader = app, redis, states, reader
        self._settings, self._partitions = settings, context.layout.partitions
        self._counters = context.counters
        self._trailing = Trailing(settings.board_window_s + settings.board_settle_s + _KEEP_S)
        self._offsets: dict[TP, int] = {}
        self._caught_up: set[TP] = set()
        self._held: dict[int, Held] = {}
        self._entries_only = entries_only
        self._counted: dict[int, CountedBoards] = {}
        self._placement, self._placed_at = Placement(context.counters), 0.0
        self._uncounted = Uncounted(context.counters)
        self._has_new_data = False
        self._written_at = 0.0
        self.soon = asyncio.Event()  # set when a board should not wait for its period

    async def take(self, event: faust.EventT) -> None:
        """Adds a message of arrivals to the hot table of its partition."""
        message = event.message
        state = await self._states.of(message)
        if state is None:
            return
        rows = await self._reader.rows(event, columns.ARRIVALS, boards.ARRIVAL_COLUMNS)
        if not self._states.owns(message, state):
            return
        if rows is not None:
            try:
                mark = marks.from_headers(message.headers)
                source = mark.source if mark else positions.source_of(message.headers)
                state.hot.add(rows, message.timestamp, source, mark)
            except (marks.MarkError, positions.HeaderError) as error:
                await self._reader.refuse(event, "unidentified", error)
        self._offsets[message.tp] = message.offset
        self._trailing.add(event)
        self._has_new_data = True

    def take_totals(self, event: faust.EventT, state: PartitionState, cluster: str | None) -> None:
        """Takes counters of Envoys from a message of metrics.

        `cluster`: the cluster that the message was admitted for (admission.Gate). Raises
        PayloadError when the payload is not metrics.
        """
        message = event.message
        if time.time() - message.timestamp < _KEEP_S:  # older counters are of no use to a board
            reports = totals.decode(event.value or b"", self._counters, cluster)
            # In a partition where their service does not belong, Envoys never send again. They
            # would be missing for ever.
            ours = [
                report
                for report in reports
                if partition_of(report.service, self._partitions) == message.partition
            ]
            if state.hot.totals.add(ours, message.timestamp):
                self._has_new_data = True
                self.soon.set()
            self._counters.add("totals", len(ours))
            self._counters.add("rejected_totals: in another service's partition", len(reports) - len(ours))

    async def board(
        self,
        key: str,
        entries: Callable[[S, Times], ByCluster],
        more: Mapping[str, Mapping[str, Entry]] | None = None,
        says_unknown: bool = False,
    ) -> None:
        """Writes the hash `key` of every cluster, and the hashes in `more`.

        The name of the cluster is filled into `key`. With `says_unknown`, also writes what is
        unknown, and announces clusters whose load has changed. Only one job does that.
        """
        for taken in self._trailing.take():
            acknowledge(self._app, taken.message)
        if not self._has_new_data and time.monotonic() < self._written_at + _REWRITE_S:
            await self._redis.reach()
            return
        self._has_new_data, self._written_at = False, time.monotonic()
        await self._read_placement()
        put: dict[str, dict[str, Entry]] = {}
        owners: dict[str, set[int]] = {}  # by key: partition numbers whose fields are known here
        clusters: dict[str, str] = {}  # by key: its cluster
        live = {number: state for number, state in self._states.ready.items() if self._is_live(number)}
        if says_unknown:
            self._take_uncounted(live)
        for number, state in live.items():
            of: dict[str, Mapping[str, Mapping[str, Entry]]] = {key: self._update(number, state, entries)}
            if says_unknown:
                of[names.REDIS_KEY_UNKNOWN] = self._unknown(number, state)
            for name, cluster, found in ((n, c, f) for n, board in of.items() for c, f in board.items()):
                place = name.format(cluster=cluster)
                put.setdefault(place, {}).update(found)
                owners.setdefault(place, set()).add(number)
                clusters[place] = cluster

        def is_placed(place: str, field: str) -> bool:
            return place in clusters and self._placement.has(clusters[place], field.partition(" ")[0])

        def owns(place: str, field: str) -> bool:
            service, numbers = field.partition(" ")[0], owners.get(place, set())
            return service == names.VALUE_WHOLE_CLUSTER or partition_of(service, self._partitions) in numbers

        await self._redis.put({**put, **(more or {})}, owns, is_placed)
        changed = {cluster for number in live for cluster in self._counted[number].changed}
        if says_unknown and changed:
            await self._redis.announce(sorted(changed))

    def _update(self, number: int, state: S, entries: Callable[[S, Times], ByCluster]) -> ByCluster:
        held_boards = self._held.setdefault(number, Held())
        now = time.time()
        held_boards.update(
            state.hot,
            lambda times: entries(state, times),
            now,
            self._settings.unknown_hold_s,
            self._placement.names,
        )
        by_counters = self._counted.setdefault(number, CountedBoards(self._entries_only, self._counters))
        fresh = {cluster for cluster, at in held_boards.times.items() if now - at <= totals.SILENT_S}
        came = {place: found for place, found in held_boards.came.items() if place[0] in fresh}
        return by_counters.apply(held_boards.entries, state.hot.totals, came, now, self._placement.connected)

    def _unknown(self, number: int, state: S) -> Mapping[str, dict[str, UnknownEntry]]:
        held_boards = self._held[number]
        found = held.unknown(held_boards, state.hot, time.time(), self._settings.unknown_after_s)
        placed = [
            place
            for place in self._placement.services()
            if partition_of(place[1], self._partitions) == number
        ]
        seen = held_boards.services()
        self._uncounted.spans_arrived(seen)
        present = {*seen, *state.hot.totals.services(), *placed}
        reasons = counted.statements(
            found, self._counted[number], held_boards.times, seen, present, self._uncounted.is_idle
        )
        unknown = sum(bool(entry.reason) for fields in reasons.values() for entry in fields.values())
        self._counters.gauge(f"unknown_of_partition_{number}", unknown)
        return dict.fromkeys(held_boards.times, {}) | reasons

    def _take_uncounted(self, live: Mapping[int, PartitionState]) -> None:
        sending = [place for state in live.values() for place in state.hot.totals.services()]
        self._uncounted.take(
            self._placement,
            sending,
            lambda service: partition_of(service, self._partitions) in live,
            time.time(),
        )

    async def _read_placement(self) -> None:
        if time.monotonic() < self._placed_at + _PLACEMENT_S:
            return
        self._placed_at = time.monotonic()
        clusters: set[str] = set()
        for state in self._states.ready.values():
            clusters.update(state.hot.times.clusters())
            clusters.update(cluster for cluster, _ in state.hot.totals.services())
        self._placement.take(await self._redis.placement(sorted(clusters)), time.time())

    def _is_live(self, number: int) -> bool:
        """Whether this worker has read the arrivals of a partition number to their end.

        What is read again after an assignment makes no board before that.
        """
        for tp, offset in self._offsets.items():
            if tp.partition == number and tp not in self._caught_up:
                if not runner.caught_up(self._app, tp, offset):
                    return False
                self._caught_up.add(tp)
        return True

    def forget(self, revoked: Collection[TP]) -> None:
        """Forgets boards, and the messages of revoked partitions."""
        self._redis.forget()
        self._trailing.forget(revoked)
        self._held, self._counted = {}, {}
        for tp in revoked:
            self._offsets.pop(tp, None)
            self._caught_up.discard(tp)
