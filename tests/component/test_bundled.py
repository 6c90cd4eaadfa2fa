"""The servers that infra/helm/spillway-global may bring along, with the very configuration that it renders."""

import os
import secrets
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from hashlib import sha256
from pathlib import Path

import charts
import nats
import pytest
import redis
from nats.aio.client import Client
from spillway_contracts import names
from spillway_lab import bus, files, templates
from spillway_lab.testing import servers
from spillway_lab.testing.tls_files import TlsFiles, tls_files
from spillway_lab.testing.waiting import eventually_async
from spillway_publisher import jetstream

pytestmark = pytest.mark.component
CHART = servers.ROOT / "infra/helm/spillway-global"
VALUES = {
    "image": {"registry": "registry.example/spillway"},
    "kafka": {"brokers": "kafka.example:9093", "clusters": ["west"]},
    "bundled": {"nats": {"enabled": True, "replicas": 3}, "redis": {"enabled": True}},
}


@pytest.fixture(scope="module")
def rendered() -> dict[str, dict]:
    """ConfigMaps of the chart, by name."""
    charts.build()
    return charts.of(charts.render(CHART, VALUES), "ConfigMap")


class Cluster:
    """Three NATS servers that speak TLS, to clients and among each other."""

    def __init__(self, folder: Path, configuration: str) -> None:
        self.tls: TlsFiles = tls_files(folder / "tls")
        files.write(folder, bus.configuration(["west"], templates.read(servers.ROOT / "infra")))
        self._passwords = {user: secrets.token_hex(16) for user in bus.users(["west"])}
        clients, routes = ([servers.free_port() for _ in range(3)] for _ in range(2))
        self.addresses = [f"tls://127.0.0.1:{port}" for port in clients]
        self.servers = [
            self._server(folder, configuration, i, clients[i], routes, servers.free_port()) for i in range(3)
        ]

    def _server(
        self, folder: Path, text: str, index: int, client: int, routes: list[int], monitor: int
    ) -> servers.Server:
        """Addresses and paths are this machine's; the rest is as it was rendered."""
        moved = {
            "0.0.0.0:4222": f"127.0.0.1:{client}",
            "0.0.0.0:6222": f"127.0.0.1:{routes[index]}",
            "0.0.0.0:8222": f"127.0.0.1:{monitor}",
            "/etc/nats/tls": str(self.tls.ca.parent),
            "store_dir: /data": f"store_dir: {folder}/data{index}",
        }
        moved |= {
            f"spillway-nats-{i}.spillway-nats.spillway.svc:6222": f"127.0.0.1:{routes[i]}" for i in range(3)
        }
        for from_pod, here in moved.items():
            assert from_pod in text
            text = text.replace(from_pod, here)
        configuration = folder / "nats" / f"server{index}.conf"
        configuration.write_text(text)
        environment = {bus.password_variable(user): password for user, password in self._passwords.items()}
        return servers.Server(
            url=self.addresses[index],
            command=[str(servers.BIN / "nats-server"), "-c", str(configuration)],
            environment=environment | {"POD_NAME": f"spillway-nats-{index}"},
            log=folder / f"server{index}.log",
            ready=lambda: servers.answers(client, b"", b"INFO "),
        )

    @asynccontextmanager
    async def user(self, name: str, inbox: str) -> AsyncIterator[Client]:
        context = ssl.create_default_context(cafile=str(self.tls.ca))
        client = await nats.connect(
            self.addresses, tls=context, user=name, password=self._passwords[name], inbox_prefix=inbox,
            max_reconnect_attempts=-1, reconnect_time_wait=0.2,
        )  # fmt: skip
        try:
            yield client
        finally:
            await client.close()


@pytest.fixture
def cluster(tmp_path: Path, rendered: dict[str, dict]) -> Iterator[Cluster]:
    made = Cluster(tmp_path, rendered["spillway-nats"]["data"]["nats.conf"])
    with ExitStack() as stack:
        for server in made.servers:
            stack.enter_context(servers.running(server))
        yield made


async def _tried(work) -> bool:
    """Whether NATS did it; it may be choosing leaders."""
    try:
        await work()
    except (*jetstream.TROUBLE, nats.errors.Error):
        return False
    return True


async def test_rulesets_outlive_one_of_three_nats_servers(cluster: Cluster):
    """What the publisher makes with SPILLWAY_NATS_REPLICAS=3 is on three servers; when the one that leads the bucket is
    killed, the ruleset of before is read and the next one is written."""
    async with cluster.user("publisher", names.NATS_INBOX_PUBLISHER) as client:
        js = client.jetstream(timeout=5)
        await eventually_async(lambda: _tried(lambda: jetstream.ensure(js, 1 << 20, 3)), "streams and bucket")
        for stream in (
            f"KV_{names.NATS_BUCKET_RULESETS}",
            names.NATS_STREAM_PROPOSALS,
            names.NATS_STREAM_REPORTS,
        ):
            assert (await js.stream_info(stream)).config.num_replicas == 3
        bucket = await js.key_value(names.NATS_BUCKET_RULESETS)
        await bucket.put("west", b"before")
        leader = (await js.stream_info(f"KV_{names.NATS_BUCKET_RULESETS}")).cluster.leader
        cluster.servers[int(leader.removeprefix("spillway-nats-"))].kill()

        async def is_read() -> None:
            assert (await bucket.get("west")).value == b"before"

        await eventually_async(lambda: _tried(is_read), "the ruleset of before")
        await eventually_async(lambda: _tried(lambda: bucket.put("west", b"after")), "the next ruleset")
        assert (await bucket.get("west")).value == b"after"


async def test_replicas_are_changed_while_the_bucket_is_there(cluster: Cluster):
    """A bucket on one server is on three after the publisher starts with SPILLWAY_NATS_REPLICAS=3; values stay."""
    async with cluster.user("publisher", names.NATS_INBOX_PUBLISHER) as client:
        js = client.jetstream(timeout=5)
        await eventually_async(lambda: _tried(lambda: jetstream.ensure(js, 1 << 20)), "streams and bucket")
        bucket = await js.key_value(names.NATS_BUCKET_RULESETS)
        await bucket.put("west", b"kept")
        await eventually_async(lambda: _tried(lambda: jetstream.ensure(js, 1 << 20, 3)), "three of each")
        assert (await js.stream_info(f"KV_{names.NATS_BUCKET_RULESETS}")).config.num_replicas == 3
        assert (await bucket.get("west")).value == b"kept"


async def test_nats_takes_nobody_in_clear_or_of_another_authority(cluster: Cluster, tmp_path: Path):
    """A client that does not check TLS, or trusts another authority, gets no connection."""
    other = ssl.create_default_context(cafile=str(tls_files(tmp_path / "other").ca))
    user = {"user": "publisher", "password": cluster._passwords["publisher"], "allow_reconnect": False}
    with pytest.raises(ssl.SSLError):
        await nats.connect(cluster.addresses[0], tls=other, **user)
    with pytest.raises((ssl.SSLError, nats.errors.Error, OSError)):
        await nats.connect(cluster.addresses[0].replace("tls://", "nats://"), **user)


def test_redis_starts_with_its_users_alone(tmp_path: Path, rendered: dict[str, dict]):
    """With users.acl as Terraform renders it: a role comes in with its password, the user `default` does not. (TLS is left
    out: the Redis that tests run is built without.)"""
    password, port = secrets.token_hex(16), servers.free_port()
    users = (servers.ROOT / "infra/redis/users.acl").read_text()
    lines = [line for line in users.splitlines() if line.startswith("user ")]
    for role in ("streams", "optimizer", "papa", "publisher"):
        lines = [line.replace(f"<{role}>", sha256(password.encode()).hexdigest()) for line in lines]
    (tmp_path / "users.acl").write_text("\n".join(["user default off", *lines]) + "\n")
    text = rendered["spillway-redis"]["data"]["redis.conf"]
    kept = [line for line in text.splitlines() if not line.startswith("tls-")]
    moved = "\n".join(kept).replace("/etc/redis", str(tmp_path)).replace("dir /tmp", f"dir {tmp_path}")
    (tmp_path / "redis.conf").write_text(moved.replace("port 0", f"bind 127.0.0.1\nport {port}") + "\n")
    server = servers.Server(
        url="", command=[str(servers.BIN / "redis-server"), str(tmp_path / "redis.conf")], log=tmp_path / "redis.log",
        ready=lambda: servers.answers(port, b"PING\r\n", b"-NOAUTH"), environment=dict(os.environ),
    )  # fmt: skip
    with servers.running(server):
        assert redis.Redis(port=port, username="streams", password=password).ping()
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=port).ping()
