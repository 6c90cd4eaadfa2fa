"""Servers that infra/helm/spillway-global may bundle, run with the rendered configuration."""

import contextlib
import os
import secrets
import ssl
import subprocess
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path

import charts
import nats
import nats_cluster
import pytest
import redis
from leaf_node import NAME as LEAF
from leaf_node import leaf_node
from nats_cluster import Cluster, Pod
from spillway_contracts import names
from spillway_lab.testing import servers
from spillway_lab.testing.tls_files import tls_files
from spillway_lab.testing.waiting import eventually_async
from spillway_publisher.bucket import jetstream

pytestmark = pytest.mark.component
CHART = servers.ROOT / "infra/helm/spillway-global"
VALUES = {
    "image": {"registry": "registry.example/spillway"},
    "kafka": {"brokers": "kafka.example:9093", "clusters": ["west"]},
    "bundled": {"nats": {"enabled": True, "replicas": 3, "leafNodes": True}, "redis": {"enabled": True}},
}


@pytest.fixture(scope="module")
def rendered() -> list[dict]:
    """Every object of the chart."""
    charts.build()
    return charts.render(CHART, VALUES)


def of_three(folder: Path, rendered: list[dict], kind: str = "peer") -> Cluster:
    """Returns three servers with certificates that Terraform would issue to `kind`.

    `kind` is `peer` or `server`.
    """
    configuration = charts.of(rendered, "ConfigMap")["spillway-nats"]["data"]["nats.conf"]
    return Cluster(folder, configuration, nats_cluster.issued_uses(kind))


@pytest.fixture
def cluster(tmp_path: Path, rendered: list[dict]) -> Iterator[Cluster]:
    with of_three(tmp_path, rendered).running() as made:
        yield made


async def test_three_servers_form_routes_with_the_certificates_that_terraform_issues(cluster: Cluster):
    """Routes use mutual TLS, in which each server also shows its certificate as a client.

    Clients do not learn the addresses of pods, because relays of other clusters could not reach
    them and no certificate names them.
    """
    await eventually_async(cluster.whole, "routes")
    async with cluster.user("publisher", at=cluster.pods[0]) as client:
        assert client.discovered_servers == []


async def test_a_certificate_of_a_server_alone_forms_no_route(tmp_path: Path, rendered: list[dict]):
    """The other servers refuse a certificate without the usage of a client.

    The certificates of Kafka or Redis therefore give no access to the cluster.
    """
    with of_three(tmp_path, rendered, "server").running() as cluster:
        logs = [pod.server.log for pod in cluster.pods]
        refusal = "incompatible key usage"
        await eventually_async(lambda: all(refusal in log.read_text() for log in logs), "refusals")
        assert [pod.routes() for pod in cluster.pods] == [set(), set(), set()]


@pytest.fixture(scope="module")
def reloader(rendered: list[dict]) -> list[str]:
    """Arguments of the reloader beside each server.

    The program that is built here has the version that the chart names.
    """
    tools = servers.ROOT / "tools/deploy"
    subprocess.run([tools / "build", nats_cluster.RELOADER.name], check=True)
    pod = charts.of(rendered, "StatefulSet")["spillway-nats"]["spec"]["template"]["spec"]
    [container] = [c for c in pod["initContainers"] if c["name"] == "reloader"]
    [pin] = [
        line
        for line in (tools / "pins").read_text().splitlines()
        if line.startswith(nats_cluster.RELOADER.name)
    ]
    assert container["image"].rpartition(":")[2] == pin.split()[2].removeprefix("v")
    return container["args"]


async def test_users_and_certificates_change_without_a_restart(
    tmp_path: Path, rendered: list[dict], reloader: list[str]
):
    """When the Secrets change, every server reads them again.

    The relay of an added region can connect, and existing connections and routes stay. New clients
    see the new certificate.
    """
    cluster = of_three(tmp_path, rendered)
    password = secrets.token_hex(16)
    with cluster.running(reloader):
        await eventually_async(cluster.whole, "routes")
        started = [pod.monitored("varz")["start"] for pod in cluster.pods]
        async with cluster.user("publisher") as publisher:
            for pod in cluster.pods:
                with pytest.raises(nats.errors.Error, match="(?i)authorization"):
                    await _joins(cluster, "relay-east", password, pod)
            cluster.passwords["relay-east"], cluster.certificate = password, cluster.renewed()
            cluster.lay()
            for pod in cluster.pods:
                joins = partial(_joins, cluster, "relay-east", password, pod)
                await eventually_async(partial(_tried, joins), f"relay-east at {pod.name}")
                renewed = partial(_shows, pod, cluster.certificate[0])
                await eventually_async(renewed, f"the new certificate of {pod.name}")
            await publisher.flush()
            assert publisher.stats["reconnects"] == 0
        assert [pod.monitored("varz")["start"] for pod in cluster.pods] == started
        assert cluster.whole()


async def _joins(cluster: Cluster, user: str, password: str, pod: Pod) -> None:
    async with cluster.user(user, password, pod):
        pass


def _shows(pod: Pod, certificate: bytes) -> bool:
    return pod.shown() == certificate


async def _tried(work) -> bool:
    """Whether NATS completed the work. It may be electing leaders."""
    try:
        await work()
    except (*jetstream.TROUBLE, nats.errors.Error):
        return False
    return True


async def _holds(bucket, key: str, value: bytes) -> bool:
    """Whether NATS answers with this value.

    Any replica may answer, and a follower can be behind for a moment.
    """
    try:
        return (await bucket.get(key)).value == value
    except (*jetstream.TROUBLE, nats.errors.Error):
        return False


async def test_rulesets_outlive_one_of_three_nats_servers(cluster: Cluster):
    """With SPILLWAY_PUBLISHER_NATS_REPLICAS=3, streams and bucket are on three servers.

    When the server that leads the bucket is killed, the previous ruleset is still readable and the
    next one can be written.
    """
    async with cluster.user("publisher") as client:
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
        cluster.pods[int(leader.removeprefix("spillway-nats-"))].server.kill()

        holds = partial(_holds, bucket, "west")
        await eventually_async(partial(holds, b"before"), "the ruleset of before")
        await eventually_async(lambda: _tried(lambda: bucket.put("west", b"after")), "the next ruleset")
        await eventually_async(partial(holds, b"after"), "the next ruleset, read")


async def test_a_leaf_node_outlives_the_server_that_it_is_connected_to(cluster: Cluster, tmp_path: Path):
    """A relay's user at a leaf node in front of the three servers still gets its rulesets.

    Another server takes the leaf over when its own is killed. The leaf passes nothing on that the
    user may not read.
    """
    key = f"$KV.{names.NATS_BUCKET_RULESETS}"
    get = f"$JS.API.DIRECT.GET.KV_{names.NATS_BUCKET_RULESETS}.{key}"
    leaf = leaf_node(tmp_path / "leaf", cluster)
    inbox = names.NATS_INBOX_RELAY.format(cluster="west")
    async with cluster.user("publisher") as publisher:
        js = publisher.jetstream(timeout=5)
        await eventually_async(lambda: _tried(lambda: jetstream.ensure(js, 1 << 20, 3)), "streams and bucket")
        bucket = await js.key_value(names.NATS_BUCKET_RULESETS)
        with servers.running(leaf):
            relay = await nats.connect(leaf.url, tls=cluster.context(), inbox_prefix=inbox)
            received: list[bytes] = []
            await relay.subscribe(f"{key}.west", cb=_into(received))
            await eventually_async(lambda: _at(cluster, LEAF) is not None, "the leaf is connected")
            for word in (b"before", b"after"):
                # The value is written again until it arrives. The servers learn only some time
                # after the leaf connects that it has a subscriber.
                hears = partial(_written_and_received, bucket, "west", word, received)
                await eventually_async(hears, f"word of {word!r}")
                answers = partial(_answers, relay, f"{get}.west", word)
                await eventually_async(answers, f"{word!r}, read at the leaf")
                if word == b"before":
                    _at(cluster, LEAF).server.kill()
                    await eventually_async(lambda: _at(cluster, LEAF) is not None, "another takes the leaf")
            await bucket.put("east", b"of another")
            with pytest.raises((nats.errors.TimeoutError, nats.errors.NoRespondersError)):
                await relay.request(f"{get}.east", b"", timeout=2)
            await relay.close()


async def _written_and_received(bucket, key: str, value: bytes, received: list[bytes]) -> bool:
    return await _tried(partial(bucket.put, key, value)) and value in received


async def _answers(client: nats.NATS, subject: str, value: bytes) -> bool:
    """Whether a direct get at this subject answers with the value. A follower may be behind."""
    try:
        return (await client.request(subject, b"", timeout=5)).data == value
    except (*jetstream.TROUBLE, nats.errors.Error):
        return False


def _into(received: list[bytes]):
    async def note(message) -> None:
        received.append(message.data)

    return note


def _at(cluster: Cluster, leaf: str) -> Pod | None:
    """Returns the server to which a leaf node is connected now."""
    for pod in cluster.pods:
        with contextlib.suppress(OSError):
            if leaf in {node["name"] for node in pod.monitored("leafz").get("leafs", [])}:
                return pod
    return None


async def test_replicas_are_changed_while_the_bucket_is_there(cluster: Cluster):
    """A bucket on one server is on three after a start with SPILLWAY_PUBLISHER_NATS_REPLICAS=3.

    Its values are kept.
    """
    async with cluster.user("publisher") as client:
        js = client.jetstream(timeout=5)
        await eventually_async(lambda: _tried(lambda: jetstream.ensure(js, 1 << 20)), "streams and bucket")
        bucket = await js.key_value(names.NATS_BUCKET_RULESETS)
        await bucket.put("west", b"kept")
        await eventually_async(lambda: _tried(lambda: jetstream.ensure(js, 1 << 20, 3)), "three of each")
        assert (await js.stream_info(f"KV_{names.NATS_BUCKET_RULESETS}")).config.num_replicas == 3
        assert (await bucket.get("west")).value == b"kept"


async def test_nats_takes_nobody_in_clear_or_of_another_authority(cluster: Cluster, tmp_path: Path):
    """A client that does not use TLS, or trusts another authority, gets no connection."""
    other = ssl.create_default_context(cafile=str(tls_files(tmp_path / "other").ca))
    user = {"user": "publisher", "password": cluster.passwords["publisher"], "allow_reconnect": False}
    address = cluster.pods[0].server.url
    with pytest.raises(ssl.SSLError):
        await nats.connect(address, tls=other, **user)
    with pytest.raises((ssl.SSLError, nats.errors.Error, OSError)):
        await nats.connect(address.replace("tls://", "nats://"), **user)


def test_redis_starts_with_its_users_alone(tmp_path: Path, rendered: list[dict]):
    """Redis runs with users.acl as Terraform renders it.

    A role can log in with its password and the user `default` cannot. TLS is left out, because the
    Redis that tests run is built without it.
    """
    password, port = secrets.token_hex(16), servers.free_port()
    users = (servers.ROOT / "infra/redis/users.acl").read_text()
    lines = [line for line in users.splitlines() if line.startswith("user ")]
    for role in ("streams", "optimizer", "papa", "publisher"):
        lines = [line.replace(f"<{role}>", sha256(password.encode()).hexdigest()) for line in lines]
    (tmp_path / "users.acl").write_text("\n".join(["user default off", *lines]) + "\n")
    text = charts.of(rendered, "ConfigMap")["spillway-redis"]["data"]["redis.conf"]
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
