"""A node of a Redis Cluster, like a managed Redis in cluster mode, is refused by name.

Nothing is written to it.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from spillway_contracts import redis_client
from spillway_contracts.wires import RedisWire
from spillway_lab.testing import servers

pytestmark = pytest.mark.component
REFUSAL = "the server of SPILLWAY_REDIS_URL is a node of a Redis Cluster"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster of one node with every slot. Single keys work there as on any server."""
    process = servers.redis_process(tmp_path_factory.mktemp("node"))
    with process as server:
        server.stop()
        config = Path(server.command[1])
        config.write_text(config.read_text() + "cluster-enabled yes\n")
        server.start()
        with redis.Redis.from_url(server.url) as client:
            client.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
        yield server.url


async def ask(url: str) -> bool:
    client = redis_client.connect(url, **RedisWire(redis_url=url).redis_options())
    try:
        return await client.ping()
    finally:
        await client.aclose()


def test_a_node_of_a_cluster_is_refused_by_name(node: str):
    """The refusal works for users who may not run INFO, like roles of infra/redis/users.acl."""
    with redis.Redis.from_url(node) as client:
        client.execute_command("ACL", "SETUSER", "role", "on", ">secret", "-@all", "+ping")
    role = node.replace("://:", "://role:").replace(node.partition("://:")[2].partition("@")[0], "secret")
    for url in (node, role):
        with pytest.raises(redis.RedisError, match=REFUSAL):
            asyncio.run(ask(url))


def test_a_server_alone_is_taken(tmp_path: Path):
    with servers.redis_server(tmp_path) as url:
        assert asyncio.run(ask(url))


def test_a_command_says_why_and_writes_nothing(node: str):
    """The optimizer's command `policy` sets one key, which a node would accept."""
    done = subprocess.run(
        [sys.executable, "-m", "spillway_optimizer", "policy", "local"],
        env=os.environ | {"SPILLWAY_REDIS_URL": node}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1 and REFUSAL in done.stderr, done.stderr
    with redis.Redis.from_url(node) as client:
        assert client.dbsize() == 0
