"""Runs the publisher as a process with real NATS, Redis and ClickHouse servers."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import clickhouse_driver
import nats
import pytest
import redis
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from google.protobuf.message import DecodeError
from spillway.v1.heartbeat_pb2 import Heartbeat
from spillway.v1.ruleset_pb2 import Ruleset
from spillway_lab.testing import servers
from spillway_lab.testing.waiting import eventually_async
from spillway_publisher.bucket import signing
from spillway_publisher.bucket.keys import Keys

sys.path.insert(0, str(Path(__file__).parent))

BUCKET = "spillway_rulesets"


class World:
    """The servers, one publisher or more, and helpers for the tests."""

    def __init__(self, folder: Path, nats_process, redis_process, clickhouse_url: str) -> None:
        self.folder, self.nats, self.redis = folder, nats_process, redis_process
        self.clickhouse = clickhouse_driver.Client.from_url(clickhouse_url)
        self.publishers: list[servers.Server] = []
        self.environment = {
            "SPILLWAY_NATS_URL": nats_process.url,
            "SPILLWAY_REDIS_URL": redis_process.url,
            "SPILLWAY_CLICKHOUSE_URL": clickhouse_url,
            "SPILLWAY_TOPOLOGY": str(folder / "topology.yaml"),
            "SPILLWAY_SIGNING_KEY": str(folder / "signing.key"),
            "SPILLWAY_RULESET_KEYS": str(folder / "keys.pem"),
            "SPILLWAY_PUBLISHER_REFRESH_S": "0.5",
            "SPILLWAY_PUBLISHER_ACK_WAIT_S": "1",
        }
        self._client = None
        self.key = self.new_key()
        self.trust(self.key)

    def new_key(self) -> Ed25519PrivateKey:
        """Creates the key with which publishers sign from now on."""
        key = Ed25519PrivateKey.generate()
        self.sign_by(key)
        return key

    def sign_by(self, key: Ed25519PrivateKey) -> None:
        """Replaces the key with which publishers sign."""
        write_whole(self.folder / "signing.key", private_pem(key))

    def trust(self, *keys: Ed25519PrivateKey) -> None:
        """Sets the keys whose signatures publishers and operators trust."""
        write_whole(self.folder / "keys.pem", b"".join(public_pem(key) for key in keys))

    def keys(self) -> Keys:
        return Keys(self.folder / "signing.key", self.folder / "keys.pem")

    async def put(self, cluster: str, payload: bytes, headers: dict[str, str] | None = None) -> None:
        """Writes a key directly, not through the publisher.

        Without other headers, the value is signed with the publisher's key.
        """
        headers = signing.sign(self.key, cluster, payload) if headers is None else headers
        await (await self.jetstream()).publish(f"$KV.{BUCKET}.{cluster}", payload, headers=headers or None)

    async def forge_checkpoint(self, ruleset: Ruleset) -> None:
        """Appends a checkpoint signed by an unknown key."""
        payload = ruleset.SerializeToString()
        headers = signing.sign(Ed25519PrivateKey.generate(), "spillway.checkpoints", payload)
        await (await self.jetstream()).publish("spillway.checkpoints", payload, headers=headers)

    async def relays_serve(self, version: int, clusters=("north", "south", "island")) -> None:
        """Makes a relay of each cluster report this version and an Envoy of the service shop.

        Returns when publishers have received the reports.
        """
        js = await self.jetstream()

        async def placed() -> bool:
            for cluster in clusters:
                beat = Heartbeat(cluster=cluster, relay="relay-0", ttl_seconds=30, ruleset_version=version)
                beat.at.GetCurrentTime()
                beat.services.add(service="shop", connected_envoys=1, envoys=[7])
                await js.publish(f"spillway.heartbeats.{cluster}", beat.SerializeToString())
            return all(self.hot(f"spillway:placement:{cluster}") for cluster in clusters)

        await eventually_async(placed, "every cluster's placement")

    async def headers(self, cluster: str) -> dict[str, str]:
        """Returns the headers of a cluster's value in the bucket."""
        return (
            await (await self.jetstream()).get_msg(f"KV_{BUCKET}", subject=f"$KV.{BUCKET}.{cluster}")
        ).headers

    def publisher(self, ready: bool = True, **environment: str) -> servers.Server:
        """Starts one more publisher.

        `ready=False` does not wait until it can publish.
        """
        port = servers.free_port()
        process = servers.Server(
            url=f"http://127.0.0.1:{port}/readyz",
            command=[sys.executable, "-m", "spillway_publisher", "run"],
            environment={**self.environment, "SPILLWAY_HEALTH_LISTEN": f"127.0.0.1:{port}", **environment},
            log=self.folder / f"publisher-{len(self.publishers)}.log",
            ready=lambda: (
                health(process)["status"] == 200 or (not ready and health(process)["status"] == 503)
            ),
        )
        self.publishers.append(process)
        process.start()
        return process

    def command(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
        """Runs a command of `python -m spillway_publisher` and returns its result."""
        return subprocess.run(
            [sys.executable, "-m", "spillway_publisher", *arguments],
            env=os.environ | self.environment | environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    async def jetstream(self):
        if self._client is None:
            self._client = await nats.connect(
                self.nats.url, max_reconnect_attempts=-1, reconnect_time_wait=0.1, error_cb=_silent
            )
        return self._client.jetstream(timeout=3)

    async def propose(self, proposal: Ruleset | bytes, origin: str = "optimizer", **headers: str) -> None:
        """Sends a proposal on the subject of this origin."""
        data = proposal if isinstance(proposal, bytes) else proposal.SerializeToString()
        await (await self.jetstream()).publish(
            f"spillway.proposals.{origin}", data, timeout=30, headers=headers or None
        )

    async def value(self, cluster: str) -> Ruleset:
        """Returns a cluster's ruleset in the bucket; empty if missing or not decodable."""
        try:
            return Ruleset.FromString(
                (await (await (await self.jetstream()).key_value(BUCKET)).get(cluster)).value
            )
        except (nats.errors.Error, TimeoutError, DecodeError):
            return Ruleset()

    async def published(self, proposal: Ruleset, clusters=("north", "south", "island")) -> int:
        """Waits until every cluster has this proposal, and returns its version."""
        found = {}

        async def everywhere() -> bool:
            for cluster in clusters:
                found[cluster] = await self.value(cluster)
            return all(ruleset.id == proposal.id for ruleset in found.values())

        await eventually_async(everywhere, f"{proposal.id} in every key", seen=lambda: found)
        (version,) = {ruleset.version for ruleset in found.values()}
        return version

    def hot(self, key: str) -> dict | None:
        """Returns the JSON value of a Redis key, or None if the key does not exist."""
        text = redis.Redis.from_url(self.redis.url).get(key)
        return None if text is None else json.loads(text)

    async def rows(self, statement: str, count: int, **parameters) -> list[tuple]:
        """Waits until the SELECT returns at least `count` rows."""
        found: list[tuple] = []

        def there() -> bool:
            found[:] = self.clickhouse.execute(statement, parameters)
            return len(found) >= count

        await eventually_async(there, f"{count} rows of {statement}", seen=lambda: found)
        return found

    def health(self, process: servers.Server) -> dict:
        return health(process)

    async def close(self) -> None:
        for process in self.publishers:
            process.stop()
        if self._client is not None:
            await self._client.close()
        self.clickhouse.disconnect()


def private_pem(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def public_pem(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def write_whole(path: Path, content: bytes) -> None:
    """Replaces the file at once, so that a reader sees either the old or the new content."""
    unfinished = path.with_name(path.name + ".new")
    unfinished.write_bytes(content)
    unfinished.replace(path)


async def _silent(error: Exception) -> None:
    """Ignores errors: a test's own client loses its server too when the test stops it."""


def health(process: servers.Server) -> dict:
    """Returns the body of /readyz with its status. The status is 0 if nobody answers."""
    try:
        with urllib.request.urlopen(process.url, timeout=30) as answer:
            return {"status": answer.status, **json.load(answer)}
    except urllib.error.HTTPError as error:
        with error:
            return {"status": error.code, **json.load(error)}
    except OSError:
        return {"status": 0}


@pytest.fixture(scope="session")
def clickhouse(tmp_path_factory):
    """One ClickHouse for all tests. Their rows are distinguished by the proposals' ids."""
    with servers.clickhouse_process(tmp_path_factory.mktemp("clickhouse")) as process:
        yield process


@pytest.fixture
async def world(tmp_path, clickhouse, topology_yaml):
    (tmp_path / "topology.yaml").write_text(topology_yaml)
    with servers.nats_process(tmp_path) as nats_process, servers.redis_process(tmp_path) as redis_process:
        world = World(tmp_path, nats_process, redis_process, clickhouse.url)
        try:
            yield world
        finally:
            await world.close()
