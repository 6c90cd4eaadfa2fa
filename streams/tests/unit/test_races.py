"""What may happen between two awaits: a cancelled query, a rebalance while a board is written."""

import asyncio
import threading
from types import SimpleNamespace

import pytest
from redis.exceptions import NoPermissionError
from spillway_contracts.hot_state import DemandEntry
from spillway_runtime.status import Status
from spillway_streams.clients import store
from spillway_streams.clients.hot import Boards
from spillway_streams.clients.store import Store
from spillway_streams.process.counters import Counters


async def test_a_cancelled_query_keeps_its_connection_to_itself(monkeypatch):
    """A rebalance cancels a restore, but not the thread that waits for the answer.

    Another statement on its connection would read that answer as its own.
    """
    made, began, may_end = [], threading.Event(), threading.Event()

    class Client:
        def __init__(self) -> None:
            made.append(self)
            self.statements: list[str] = []

        def execute(self, sql: str, *_: object, **__: object) -> list:
            self.statements.append(sql)
            if sql == "slow":
                began.set()
                may_end.wait(30)
            return []

    monkeypatch.setattr(store, "Client", SimpleNamespace(from_url=lambda _: Client()))
    clickhouse = Store("clickhouse://localhost", Status(Store.NAME))
    await clickhouse.select("first")
    restoring = asyncio.create_task(clickhouse.select("slow"))
    await asyncio.to_thread(began.wait, 30)
    restoring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await restoring
    await clickhouse.insert("calls", ["a"], [[1]], refused=None)
    may_end.set()
    await clickhouse.select("last")
    assert [client.statements for client in made] == [
        ["first", "slow"],
        ["INSERT INTO calls (`a`) VALUES", "last"],
    ]


async def test_fields_that_were_given_away_while_a_board_was_written_are_not_removed(monkeypatch):
    """Partitions are revoked before Redis answers: the next board leaves their fields alone."""
    boards, removed = Boards("redis://localhost", 15.0, 60.0, Status(Boards.NAME)), []
    entries = {"k": {"mine": DemandEntry(1.0, 1.0, 0.0, 1.0)}}

    async def write(_: dict, silent: dict) -> None:
        removed.extend(field for fields in silent.values() for field in fields)
        if not removed and writing[0]:
            boards.forget()

    async def prune(*_: object) -> None:
        pass

    writing = [True]
    monkeypatch.setattr(boards, "_write", write)
    monkeypatch.setattr(boards, "_prune", prune)
    await boards.put(entries)
    writing[0] = False
    await boards.put({})
    assert removed == []
    await boards.put(entries)
    await boards.put({})
    assert removed == ["mine"]


async def test_a_placement_that_may_not_be_read_is_shown_and_hides_no_other(monkeypatch):
    """Redis refuses the placement of one cluster. It is counted and named while that lasts.

    It is shown even though boards can be written.
    """
    status, counters = Status(Boards.NAME), Counters()
    boards = Boards("redis://localhost", 15.0, 60.0, status, counters=counters)
    replies: list = [NoPermissionError("no permissions to access a key"), b"{}"]

    class Pipe:
        def get(self, _: str) -> None:
            pass

        async def execute(self, raise_on_error: bool = True) -> list:
            for reply in replies:
                if raise_on_error and isinstance(reply, Exception):
                    raise reply
            return replies

        async def __aenter__(self) -> "Pipe":
            return self

        async def __aexit__(self, *_: object) -> None:
            pass

    async def write(*_: object) -> None:
        pass

    monkeypatch.setattr(boards._redis, "pipeline", lambda **_: Pipe())
    monkeypatch.setattr(boards, "_write", write)
    assert await boards.placement(["west", "east"]) == {"west": None, "east": b"{}"}
    await boards.reach()
    assert "NoPermissionError" in status.problems()[Boards.NAME] and "west" in status.problems()[Boards.NAME]
    assert counters["placement_refused"] == 1
    replies[0] = None
    await boards.placement(["west", "east"])
    await boards.reach()
    assert not status.problems()
