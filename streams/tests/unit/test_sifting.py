"""Rows that ClickHouse always rejects, among rows that it accepts."""

import json
import struct
from types import SimpleNamespace

import numpy as np
import pytest
from clickhouse_driver.errors import ServerException
from hypothesis import given
from hypothesis import strategies as st
from spillway_runtime import retry
from spillway_runtime.status import Status
from spillway_streams.batches import sifting
from spillway_streams.batches.sifting import RefusedRows
from spillway_streams.batches.strings import Strings
from spillway_streams.clients import store
from spillway_streams.clients.store import Store


async def _insert(sizes: list[int], bad: set[int]) -> tuple[list[int], list[int], int]:
    """Inserts numbers in blocks of these sizes. Returns stored and rejected ones, dead letters."""
    stored, refused, refusals = [], [], 0
    edges = np.cumsum([0, *sizes])
    blocks = [{"n": np.arange(a, b)} for a, b in zip(edges, edges[1:], strict=False)]

    async def put(some: list[dict]) -> None:
        numbers = [n for block in some for n in block["n"].tolist()]
        if bad & set(numbers):
            raise RefusedRows("bad")
        stored.extend(numbers)

    async def refused_rows(table: str, reason: str, rows: int, payload: bytes) -> None:
        nonlocal refusals
        refusals += 1
        found = [json.loads(line)["n"] for line in payload.splitlines()]
        assert (table, reason, rows) == ("t", "bad", len(found))
        refused.extend(found)

    await sifting.insert("t", ["n"], blocks, put, refused_rows)
    return stored, refused, refusals


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.sets(st.integers(0, 199), max_size=15))
async def test_good_rows_are_stored_once_and_bad_ones_told(sizes, bad):
    """For any blocks and rows: none is lost, none is stored with a bad one, and order is kept."""
    stored, refused, refusals = await _insert(sizes, bad)
    assert stored == [n for n in range(sum(sizes)) if n not in bad]
    assert refused == sorted(n for n in bad if n < sum(sizes)) and refusals == len(refused)


async def test_a_flood_of_bad_rows_is_not_looked_at_one_by_one():
    """All of 10 000 rows are rejected: every row is dead-lettered, in far fewer messages."""
    stored, refused, refusals = await _insert([5000, 5000], set(range(10_000)))
    assert stored == [] and sorted(refused) == list(range(10_000)) and refusals < 600


async def test_bad_rows_here_and_there_cost_no_good_ones():
    """Forty of 100 000 rows are dead-lettered one by one. All others are stored."""
    bad = set(range(1_000, 81_000, 2_000))
    stored, refused, refusals = await _insert([100_000], bad)
    assert refused == sorted(bad) and refusals == 40 and len(stored) == 99_960


async def test_rows_that_are_made_anew_are_so_for_each_half():
    """A rule's time is that of the attempt that stores it, even beside a rejected rule."""
    made, stored = 0, []

    def rows() -> list[tuple]:
        nonlocal made
        made += 1
        return [(name, made) for name in "ab"]

    async def put(some: list) -> None:
        [block] = some
        found = block()
        if found[0][0] == "a":
            raise RefusedRows("no")
        stored.extend(found)

    async def refused_rows(*_: object) -> None:
        pass

    await sifting.insert("t", ["name", "at"], [rows], put, refused_rows)
    assert stored == [("b", made)]


async def test_a_refused_row_is_readable():
    """Dead letters have readable ids, texts and numbers, also of rows that are tuples."""
    refusals = []

    async def put(_: list) -> None:
        raise RefusedRows("no")

    async def refused_rows(*what: object) -> None:
        refusals.append(json.loads(what[3]))

    block = {"id": np.frombuffer(b"ab\0\0", "u1").reshape(1, 4), "s": Strings.of(["x"]), "v": np.array([1.5])}
    await sifting.insert("t", list(block), [block], put, refused_rows)
    await sifting.insert("t", ["a", "b"], [lambda: [(1, "y")]], put, refused_rows)
    assert refusals == [{"id": "ab", "s": "x", "v": 1.5}, {"a": 1, "b": "y"}]


@pytest.mark.parametrize(
    ("error", "is_of_the_row"),
    [
        (ServerException("constraint", 469), True),
        (struct.error("too large"), True),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates"), True),
        (ServerException("no such table", 60), False),
        (ServerException("no such column", 16), False),
        (ServerException("memory", 241), False),
        (ConnectionError("away"), False),
    ],
)
async def test_only_what_a_row_alone_can_cause_ends_the_attempts(monkeypatch, error, is_of_the_row):
    """An invalid row is dead-lettered, and the store is healthy. Other errors are retried."""
    errors, refusals = [error], []

    class Client:
        def disconnect(self) -> None:
            pass

        def execute(self, *_: object, **__: object) -> list:
            if errors:
                raise errors.pop()
            return []

    async def refused_rows(*what: object) -> None:
        refusals.append(what)

    monkeypatch.setattr(store, "Client", SimpleNamespace(from_url=lambda _: Client()))
    monkeypatch.setattr(retry, "_FIRST_S", 0.0)
    status = Status(Store.NAME)
    await Store("clickhouse://localhost", status).insert("t", ["a"], [(1,)], refused_rows)
    assert len(refusals) == is_of_the_row and not errors and not status.problems()
