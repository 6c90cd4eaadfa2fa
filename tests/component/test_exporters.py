"""The exporters beside the bundled NATS and Redis, on real servers.

With the chart's arguments they serve the metrics that infra/alerts/servers.yaml reads.
"""

import os
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import charts
import metric_names
import nats_cluster
import pytest
import redis
from spillway_lab.testing import servers
from spillway_lab.testing.programs import program
from spillway_lab.testing.waiting import eventually

pytestmark = pytest.mark.component
CHART = servers.ROOT / "infra/helm/spillway-global"
TABLES = (servers.ROOT / "infra/alerts/servers.md").read_text()
VALUES = {
    "image": {"registry": "registry.example/spillway"},
    "kafka": {"brokers": "kafka.example:9093", "clusters": ["west"]},
    "monitoring": {"serviceMonitors": True},
    "bundled": {"nats": {"enabled": True, "replicas": 3}, "redis": {"enabled": True}},
}
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
Sample = tuple[str, dict[str, str], float]


@pytest.fixture(scope="module")
def rendered() -> list[dict]:
    """Every object of the chart. The exporters are built here."""
    charts.build()
    subprocess.run([servers.ROOT / "tools/bring", "prometheus-nats-exporter", "redis_exporter"], check=True)
    return charts.render(CHART, VALUES)


def container(rendered: list[dict], workload: str, name: str) -> dict:
    pod = charts.of(rendered, "StatefulSet")[workload]["spec"]["template"]
    [found] = [c for c in charts.containers(pod) if c["name"] == name]
    return found


def samples(port: int) -> list[Sample]:
    """Returns the samples that Prometheus would read."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return [
        (name, dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value))
        for name, labels, value in _SAMPLE.findall(text)
    ]


def values(port: int, metric: str) -> list[float]:
    return [value for name, _, value in samples(port) if name == metric]


def exporter(folder: Path, name: str, made: dict, moved: dict[str, str], port: int) -> servers.Server:
    """Returns the exporter with its container's own arguments.

    Addresses and paths are replaced by those of this machine.
    """
    arguments = [*made["args"]]
    for there, here in moved.items():
        arguments = [argument.replace(there, here) for argument in arguments]
    pin = [line.split() for line in (servers.ROOT / "tools/deploy/pins").read_text().splitlines()]
    [version] = [words[2] for words in pin if words[0] == name]
    assert made["image"].rpartition(":")[2].removeprefix("v") == version.removeprefix("v")
    return servers.Server(
        url="", command=[program(name), *arguments], log=folder / f"{name}-{port}.log", environment=dict(os.environ),
        ready=lambda: answers(port),
    )  # fmt: skip


def answers(port: int) -> bool:
    try:
        return bool(samples(port))
    except (urllib.error.URLError, OSError):
        return False


def table(heading: str) -> dict[str, set[str]]:
    """Returns metrics and labels of one table of servers.md."""
    [section] = [part for part in TABLES.split("\n## ") if part.startswith(heading)]
    rows = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    return {name: metric_names.served()[name] for name in rows}


def missing(port: int, heading: str) -> list[str]:
    """Returns the rows of the table that are missing or have other labels."""
    served: dict[str, set[str]] = {}
    for name, labels, _ in samples(port):
        served.setdefault(name, set()).update(labels)
    return [name for name, labels in table(heading).items() if served.get(name) != labels]


@contextmanager
def monitored_nats(folder: Path, rendered: list[dict]) -> Iterator[tuple[nats_cluster.Cluster, list[int]]]:
    """Runs three servers with an exporter each. Yields the cluster and the exporters' ports."""
    configuration = charts.of(rendered, "ConfigMap")["spillway-nats"]["data"]["nats.conf"]
    cluster = nats_cluster.Cluster(folder, configuration, nats_cluster.issued_uses("peer"))
    made, ports = (
        container(rendered, "spillway-nats", "exporter"),
        [servers.free_port() for _ in cluster.pods],
    )
    with cluster.running(), ExitStack() as stack:
        eventually(cluster.whole, "routes")
        for pod, port in zip(cluster.pods, ports, strict=True):
            moved = {"-port=7777": f"-port={port}", "127.0.0.1:8222": f"127.0.0.1:{pod.monitor}"}
            stack.enter_context(
                servers.running(exporter(folder, "prometheus-nats-exporter", made, moved, port))
            )
        yield cluster, ports


def leaderless(port: int) -> bool:
    return any(
        name == "jetstream_server_total_streams"
        and labels["is_meta_leader"] == "false"
        and not labels["meta_leader"]
        for name, labels, _ in samples(port)
    )


def test_a_nats_cluster_shows_its_storage_its_routes_and_who_leads(tmp_path: Path, rendered: list[dict]):
    """The metrics are those of the table.

    When two of three servers are killed, the third has fewer routes and no leader.
    """
    with monitored_nats(tmp_path, rendered) as (cluster, ports):
        eventually(
            lambda: missing(ports[0], "NATS") == [], "all metrics", seen=lambda: missing(ports[0], "NATS")
        )
        eventually(lambda: not any(map(leaderless, ports)), "a leader")
        [routes] = values(ports[0], "gnatsd_varz_routes")
        [may] = values(ports[0], "gnatsd_varz_jetstream_config_max_storage")
        assert routes >= 2 and may > 0
        for pod in cluster.pods[1:]:
            pod.server.kill()
        eventually(lambda: values(ports[0], "gnatsd_varz_routes")[0] < routes, "fewer routes")
        eventually(lambda: leaderless(ports[0]), "no leader")


@contextmanager
def monitored_redis(folder: Path, rendered: list[dict]) -> Iterator[int]:
    """Runs Redis with the users that the init container writes. Yields its exporter's port.

    TLS is left out, because the Redis that tests run is built without it.
    """
    moved = {"/run/redis": str(folder / "run"), "/etc/redis": str(folder / "etc")}

    def here(text: str) -> str:
        for there, path in moved.items():
            text = text.replace(there, path)
        return text

    for path in moved.values():
        Path(path).mkdir()
    secret = folder / "etc/users.acl"
    secret.write_text("user default off")  # without a newline at the end, as some Secrets are made
    secret.chmod(0o440)  # as the volume is mounted; only root could write to a copy of it
    users = container(rendered, "spillway-redis", "users")
    subprocess.run([*users["command"], *map(here, users["args"])], check=True)
    text = charts.of(rendered, "ConfigMap")["spillway-redis"]["data"]["redis.conf"]
    kept = [here(line) for line in text.splitlines() if not line.startswith("tls-")]
    (folder / "etc/redis.conf").write_text("\n".join(kept).replace("dir /tmp", f"dir {folder}") + "\n")
    server = servers.Server(
        url="", command=[str(servers.BIN / "redis-server"), str(folder / "etc/redis.conf")], log=folder / "redis.log",
        ready=(folder / "run/redis.sock").exists, environment=dict(os.environ),
    )  # fmt: skip
    port = servers.free_port()
    listens = {":9121": f"127.0.0.1:{port}"}
    beside = exporter(
        folder, "redis_exporter", container(rendered, "spillway-redis", "exporter"), moved | listens, port
    )
    with servers.running(server), servers.running(beside):
        yield port


def test_redis_shows_its_memory_to_a_user_that_may_read_no_key(tmp_path: Path, rendered: list[dict]):
    """The exporter connects to the socket with a password that only this pod has.

    Its user may run only INFO.
    """
    with monitored_redis(tmp_path, rendered) as port:
        eventually(lambda: values(port, "redis_up") == [1.0], "redis_up")
        assert missing(port, "Redis") == ["redis_master_link_up"]  # only replicas have it
        assert values(port, "redis_memory_max_bytes") == [256 * 1024 * 1024]
        [password] = re.findall(r'": "(\w{64})"', (tmp_path / "run/exporter.json").read_text())
        at = {"unix_socket_path": str(tmp_path / "run/redis.sock")}
        with redis.Redis(**at, username="exporter", password=password) as client:
            assert client.info()["redis_version"]
            for command in (("GET", "spillway:policy"), ("CONFIG", "GET", "*"), ("ACL", "LIST")):
                with pytest.raises(redis.exceptions.NoPermissionError):
                    client.execute_command(*command)
        with redis.Redis(**at) as client, pytest.raises(redis.AuthenticationError):
            client.ping()


def test_a_replica_shows_that_it_has_no_link(tmp_path: Path, rendered: list[dict]):
    """A replica whose primary is away has the metric that SpillwayRedisReplicaDown reads.

    The labels are those of the table.
    """
    port, primary, metrics = servers.free_port(), servers.free_port(), servers.free_port()
    replica = servers.Server(
        url="", command=[str(servers.BIN / "redis-server"), "--port", str(port), "--dir", str(tmp_path),
                         "--replicaof", "127.0.0.1", str(primary)],
        log=tmp_path / "redis.log", ready=lambda: servers.answers(port, b"PING\r\n", b"+PONG"),
        environment=dict(os.environ),
    )  # fmt: skip
    made = container(rendered, "spillway-redis", "exporter")
    made = made | {"args": [a for a in made["args"] if "user" not in a and "password" not in a]}
    moved = {":9121": f"127.0.0.1:{metrics}", "unix:///run/redis/redis.sock": f"redis://127.0.0.1:{port}"}
    beside = exporter(tmp_path, "redis_exporter", made, moved, metrics)
    with servers.running(replica), servers.running(beside):
        eventually(lambda: values(metrics, "redis_master_link_up") == [0.0], "a link that is down")
        assert missing(metrics, "Redis") == []
