"""Real Redis, NATS and ClickHouse servers for the tests of a module, and a new World for each test.

Nothing of an earlier test is left in the servers.
"""

import asyncio
import contextlib
import sys
from pathlib import Path

import nats
import pytest
from spillway_contracts import names
from spillway_lab.testing import servers

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from optimizer_world import World


@pytest.fixture(scope="module")
def backends(tmp_path_factory):
    folder = tmp_path_factory.mktemp("backends")
    with (
        servers.redis_process(folder) as redis_server,
        servers.nats_process(folder) as nats_server,
        servers.clickhouse_process(folder) as clickhouse_server,
    ):
        yield redis_server, nats_server, clickhouse_server


@pytest.fixture
def world(backends, tmp_path):
    """The surroundings of the optimizer, without data of earlier tests."""
    world = World(*backends, tmp_path)
    world.redis.flushall()
    for table in ("curves", "capacities", "call_ratios", "solves", "papa_steps"):
        world.clickhouse.execute(f"TRUNCATE TABLE {table}")
    asyncio.run(_forget_proposals(world.nats_url))
    world.fill_history()
    world.start()
    yield world
    world.stop()
    world.clickhouse.disconnect()


async def _forget_proposals(url: str) -> None:
    """Deletes the stream of proposals."""
    client = await nats.connect(url)
    with contextlib.suppress(nats.js.errors.NotFoundError):
        await client.jetstream().delete_stream(names.NATS_STREAM_PROPOSALS)
    await client.close()
