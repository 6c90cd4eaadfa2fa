"""The hot path of a job: sums of what just ended -> boards in Redis, several times a second.

Not exact after a crash and never used for history: what is needed of it is read again at an assignment.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Protocol, TypeVar

import faust
from faust.types import TP
from spillway_contracts.hot_state import DemandEntry, LoadBoardEntry

from spillway_streams import boards, columns, runner
from spillway_streams.boards import HotTable
from spillway_streams.hot import Boards, Entry
from spillway_streams.jobs.batches import Reader, Trailing, acknowledge
from spillway_streams.jobs.shares import Shares

_KEEP_S = 10.0  # of log time beyond a board's window: spans arrive that late at most


class Share(Protocol):
    hot: HotTable


S = TypeVar("S", bound=Share)
ByCluster = Mapping[str, Mapping[str, LoadBoardEntry | DemandEntry]]


class Live:
    """Arrivals folded into the shares' hot tables, and the boards that they make."""

    def __init__(
        self, app: faust.App, redis: Boards, shares: Shares, memory_s: float, reader: Reader
    ) -> None:
        self._app, self._redis, self._shares, self._reader = app, redis, shares, reader
        self._trailing = Trailing(memory_s + _KEEP_S)
        self._offsets: dict[TP, int] = {}
        self._caught_up: set[TP] = set()
        self._news = False
        self._more: Mapping[str, Mapping[str, Entry]] = {}

    async def take(self, event: faust.EventT) -> None:
        message = event.message
        share = await self._shares.of(message)
        if share is None:
            return
        rows = await self._reader.rows(event, columns.ARRIVALS, boards.ARRIVAL_COLUMNS)
        if not self._shares.owns(message, share):
            return
        if rows is not None:
            share.hot.add(rows, message.timestamp)
        self._offsets[message.tp] = message.offset
        self._trailing.add(event)
        self._news = True

    async def board(
        self,
        key: str,
        entries: Callable[[S, float], ByCluster],
        more: Mapping[str, Mapping[str, Entry]] | None = None,
    ) -> None:
        """Writes hash `key` ({cluster} filled in) of every cluster, and `more`; nothing when nothing
        is new."""
        for taken in self._trailing.take():
            acknowledge(self._app, taken.message)
        shares = [share for number, share in self._shares.ready.items() if self._is_live(number)]
        at = boards.newest(share.hot for share in shares)
        if not self._news and (more or {}) == self._more:
            await self._redis.reach()
            return
        self._news, self._more = False, more or {}
        put: dict[str, dict[str, Entry]] = {}
        for share in shares if at is not None else ():
            for cluster, found in entries(share, at).items():
                put.setdefault(key.format(cluster=cluster), {}).update(found)
        await self._redis.put({**put, **self._more})

    def _is_live(self, number: int) -> bool:
        """What is read again after an assignment is no board before its end is reached."""
        for tp, offset in self._offsets.items():
            if tp.partition == number and tp not in self._caught_up:
                if not runner.caught_up(self._app, tp, offset):
                    return False
                self._caught_up.add(tp)
        return True

    def forget(self, revoked: Collection[TP]) -> None:
        self._redis.forget()
        self._trailing.forget(revoked)
        self._caught_up.difference_update(revoked)
        for tp in revoked:
            self._offsets.pop(tp, None)
