"""Rulesets in a real Redis, written by publishers that know different versions."""

import asyncio
import contextlib
import time

import pytest
from redis.asyncio import Redis
from spillway.v1.heartbeat_pb2 import Heartbeat
from spillway_contracts import names
from spillway_lab.testing import servers
from spillway_lab.testing.waiting import eventually_async
from spillway_publisher.clients.hot_state import HotState, to_json
from spillway_publisher.process.loops import end
from spillway_publisher.process.telemetry import Telemetry

pytestmark = pytest.mark.component

KEY = names.REDIS_KEY_IN_FORCE.format(cluster="north")
SPREAD = {"north": {"north": 4000, "south": 6000}}


@contextlib.asynccontextmanager
async def publisher(url: str):
    """Runs the part of a publisher that writes Redis, every 50 ms."""
    telemetry = Telemetry()
    state = HotState(url, telemetry, 0.05)
    running = asyncio.create_task(state.run())
    try:
        yield state, telemetry.counters
    finally:
        await end([running])  # one cancellation could be lost, and this publisher would go on writing
        await state.close()


async def test_a_standby_that_knows_an_older_ruleset_never_puts_it_back(tmp_path, make):
    """A standby writes the last version that it knew, every period.

    The higher version stays, and each attempt is counted. A value that is missing, unreadable or
    too far ahead for relays is replaced.
    """
    now = time.time_ns() // 1_000_000
    older, newer = make(SPREAD, version=now), make(SPREAD, version=now + 1)
    with servers.redis_process(tmp_path) as process:
        redis = Redis.from_url(process.url, decode_responses=True)
        async with publisher(process.url) as (leader, _):
            leader.in_force({"north": newer})
            await eventually_async(lambda: _holds(redis, newer), "the newer ruleset")
        async with publisher(process.url) as (standby, counters):
            standby.in_force({"north": older})
            await eventually_async(lambda: counters["hot_state.older_rulesets"] >= 3, "three attempts")
            assert await _holds(redis, newer)
            absurd = make(SPREAD, version=now + 2 * names.VALUE_VERSION_AHEAD_MS)
            for wrong in (None, "{", "[]", '{"version": "x"}', to_json(absurd)):
                await (redis.delete(KEY) if wrong is None else redis.set(KEY, wrong))
                await eventually_async(lambda: _holds(redis, older), f"what replaces {wrong}")
        await redis.aclose()


@pytest.mark.parametrize("set_by", [-3600, 3600])
async def test_a_clock_that_is_set_neither_drops_nor_prolongs_a_placement(tmp_path, monkeypatch, set_by):
    """The publisher's clock is set while a placement has 5 s left.

    A Redis that has lost the placement gets it again for the time that is left.
    """
    key = names.REDIS_KEY_PLACEMENT.format(cluster="north")
    wall = time.time
    with servers.redis_process(tmp_path) as process:
        redis = Redis.from_url(process.url, decode_responses=True)
        async with publisher(process.url) as (state, _):
            state.place(Heartbeat(cluster="north", ttl_seconds=10), time.monotonic() + 5)
            await eventually_async(lambda: redis.exists(key), "the placement")
            monkeypatch.setattr(time, "time", lambda: wall() + set_by)
            await redis.flushall()
            await eventually_async(lambda: redis.exists(key), "the placement again", 3)
            assert 0 < await redis.pttl(key) <= 5000
        await redis.aclose()


async def _holds(redis: Redis, ruleset) -> bool:
    return await redis.get(KEY) == to_json(ruleset)
