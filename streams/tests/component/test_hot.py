"""Boards in a real Redis that several workers write."""

from redis import Redis
from spillway_contracts.hot_state import DemandEntry
from spillway_runtime.status import Status
from spillway_streams.clients.hot import Boards

KEY = "test:demand"


def _entries(at: float, *classes: str) -> dict[str, dict[str, DemandEntry]]:
    return {KEY: {name: DemandEntry(at, 1.0, 0.0, 2.0) for name in classes}}


async def test_each_writer_sees_to_its_own_fields(redis_url):
    """Several writers share a hash, and each removes its own fields that fell silent.

    Fields that a writer left behind when it ended are pruned by age. Fields that nobody can decode
    are pruned too. A writer leaves a field alone that has another owner now.
    """
    redis = Redis.from_url(redis_url, decode_responses=True)
    redis.delete(KEY)
    writer, other, gone = (Boards(redis_url, 15.0, 18.0, Status(Boards.NAME)) for _ in range(3))
    await gone.put(_entries(80.0, "old", "young"))
    redis.hset(KEY, "nonsense", "?")
    await writer.put(_entries(100.0, "a", "b"))
    assert set(redis.hgetall(KEY)) == {"a", "b"}
    await other.put(_entries(100.2, "c"))
    await writer.put(_entries(100.4, "b"))
    assert set(redis.hgetall(KEY)) == {"b", "c"} and 10_000 < redis.pttl(KEY) <= 15_000
    await other.put({})
    assert set(redis.hgetall(KEY)) == {"b"}
    await other.put(_entries(101.0, "b", "d"))
    writer.forget()
    await writer.put(_entries(101.1, "e"))
    assert set(redis.hgetall(KEY)) == {"b", "d", "e"}
    assert DemandEntry.from_json(redis.hget(KEY, "b")).at == 101.0


async def test_what_is_kept_is_pruned_by_no_age(redis_url):
    """Last known values of a service that still has Envoys stay at any age.

    These are values that this writer shows, and values that another writer left.
    """
    redis = Redis.from_url(redis_url, decode_responses=True)
    redis.delete(KEY)
    gone, writer = (Boards(redis_url, 15.0, 18.0, Status(Boards.NAME)) for _ in range(2))
    await gone.put(_entries(10.0, "placed", "left"))
    boards = {KEY: _entries(100.0, "a")[KEY] | _entries(10.0, "shown")[KEY]}
    await writer.put(boards, keeps=lambda key, field: (key, field) == (KEY, "placed"))
    assert set(redis.hgetall(KEY)) == {"a", "shown", "placed"}


async def test_an_absent_redis_is_named_and_forgotten_once_it_is_back(redis_url):
    """A board that cannot be written is dropped.

    The status names Redis until it can be reached again.
    """
    status = Status(Boards.NAME)
    away = Boards("redis://127.0.0.1:1/0", 15.0, 18.0, status)
    await away.put(_entries(1.0, "a"))
    assert await away.placement(["west"]) == {"west": None}
    assert Boards.NAME in status.problems()
    here = Boards(redis_url, 15.0, 18.0, status)
    await here.reach()
    assert not status.problems()


async def test_a_key_that_is_no_hash_is_removed_and_written_at_the_next_turn(redis_url):
    """Otherwise the key would stay for ever.

    A key that is not a hash never expires, and no board can be written to it.
    """
    redis, status = Redis.from_url(redis_url, decode_responses=True), Status(Boards.NAME)
    redis.delete(KEY)
    redis.set(KEY, "no hash")
    board = Boards(redis_url, 15.0, 18.0, status)
    await board.put(_entries(1.0, "a") | {f"{KEY}:2": _entries(1.0, "b")[KEY]})
    assert Boards.NAME in status.problems() and set(redis.hgetall(f"{KEY}:2")) == {"b"}
    await board.put(_entries(2.0, "a"))
    assert set(redis.hgetall(KEY)) == {"a"} and not status.problems()
