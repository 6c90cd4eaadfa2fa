"""The pods of `helm test`, as both charts render them, on real servers.

They succeed, and fail when something is missing.
"""

import asyncio
import http.server
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import charts
import cluster_chart
import permitted_nats
import permitted_redis
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from cluster_chart import find
from spillway_lab.testing import servers
from spillway_lab.testing.secure_kafka import SecureKafka, secure_kafka
from spillway_lab.testing.tls_files import tls_files

COLLECTORS = servers.ROOT / "collectors"
sys.path.insert(0, str(COLLECTORS / "tests" / "component"))

from collector_process import collector  # noqa: E402

pytestmark = [pytest.mark.component, pytest.mark.timeout(600)]
GLOBAL = {
    "image": {"registry": "registry.example/spillway"},
    "kafka": {"brokers": "kafka:9093", "clusters": ["west"]},
}
STREAMS = ("admit", "exclusive", "classify", "curves", "graph")
OUTSIDE = {name: value for name, value in os.environ.items() if not name.startswith("SPILLWAY_")}


@pytest.fixture(scope="module")
def pods() -> dict[str, dict]:
    """The container of each test of the global chart, by workload."""
    charts.build()
    objects = charts.render(servers.ROOT / "infra/helm/spillway-global", GLOBAL)
    return {
        name.removeprefix("spillway-test-"): pod["spec"]["containers"][0]
        for name, pod in charts.of(objects, "Pod").items()
    }


def asks(container: dict, environment: dict[str, str]) -> subprocess.CompletedProcess:
    """Runs the pod's command and arguments.

    It gets the variables of those servers that the test runs.
    """
    variables = {variable["name"] for variable in container["env"]}
    return subprocess.run(
        [sys.executable, *container["command"][1:], *container["args"]],
        env=OUTSIDE | {name: value for name, value in environment.items() if name in variables or "_TLS_" in name},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    """A broker with the rights of infra/kafka/acls.yaml, and its topics."""
    files = {"acls": "infra/kafka/acls.yaml", "topics": "infra/kafka/topics.yaml"}
    with secure_kafka(tmp_path_factory.mktemp("kafka"), [*STREAMS, "topics"]) as made:
        for command, access in (
            ("acls", {"SPILLWAY_KAFKA": made.clear}),
            ("topics", made.environment("topics")),
        ):
            arguments = [command, "--file", str(servers.ROOT / files[command]), "--clusters", "west"]
            subprocess.run(
                [sys.executable, "-m", "spillway_streams", *arguments],
                env=OUTSIDE | access,
                check=True,
                timeout=120,
            )
        yield made


@pytest.mark.parametrize("job", STREAMS)
def test_a_job_of_streams_sees_its_topics(pods: dict[str, dict], kafka: SecureKafka, job: str):
    """A job uses its own user, over TLS with SASL. `admit` also sees the clusters' topics."""
    done = asks(pods[job], kafka.environment(job))
    assert done.returncode == 0, done.stderr
    assert f"kafka: {9 if job == 'admit' else 7} topics" in done.stdout


def test_a_wrong_password_and_a_missing_topic_are_named(
    pods: dict[str, dict], kafka: SecureKafka, tmp_path: Path
):
    """The exit code is 1, and the output does not contain the password."""
    wrong = tmp_path / "password"
    wrong.write_text("not-the-password")
    environment = kafka.environment("exclusive")
    done = asks(pods["exclusive"], environment | {"SPILLWAY_KAFKA_SASL_PASSWORD_FILE": str(wrong)})
    assert done.returncode == 1 and "kafka: " in done.stderr and "not-the-password" not in done.stderr
    asyncio.run(delete(kafka.clear, "otlp_spans.west"))
    done = asks(pods["admit"], kafka.environment("admit"))
    assert done.returncode == 1
    assert "kafka: MissingError: otlp_spans.west: UnknownTopicOrPartitionError" in done.stderr


async def delete(address: str, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    try:
        await admin.delete_topics([topic])
    finally:
        await admin.close()


@pytest.mark.parametrize("workload", ["optimizer", "papa", "publisher", "curves"])
def test_a_workload_is_answered_by_clickhouse_redis_and_nats(
    pods: dict[str, dict], hotel_url: str, tmp_path: Path, workload: str
):
    """The workload uses its role's users and the tables that the migration creates.

    An unreachable server and a missing table are named, and the other servers are still checked.
    """
    user = "streams" if workload == "curves" else workload
    with permitted_redis.running(tmp_path) as redis_urls, permitted_nats.running(tmp_path, ["west"]) as bus:
        environment = {"SPILLWAY_CLICKHOUSE_URL": hotel_url, "SPILLWAY_REDIS_URL": redis_urls[user]}
        if workload != "curves":
            environment["SPILLWAY_NATS_URL"] = bus.url(workload)
        done = asks(pods[workload], environment)
        assert done.returncode == 0, done.stderr
        assert re.search(r"clickhouse: \d+ tables", done.stdout) and "redis: pong" in done.stdout
        assert ("nats: connected" in done.stdout) == (workload != "curves")
        lacks = pods[workload] | {"args": ["--tables=calls,no_such_table"]}
        away = {"SPILLWAY_REDIS_URL": f"redis://u:secret@127.0.0.1:{servers.free_port()}/0"}
        done = asks(lacks, environment | away)
    assert done.returncode == 1 and "secret" not in done.stderr
    assert "no_such_table" in done.stderr and "redis: ConnectionError" in done.stderr


def test_a_wrong_environment_is_named_without_its_value():
    """As for the programs, the exit code is 64.

    The output names the variable and does not contain the password.
    """
    command = [sys.executable, "-m", "spillway_contracts.answers"]
    environment = {"SPILLWAY_REDIS_URL": "redis://u:secret@redis.example:6379/0"}
    done = subprocess.run(
        command, env=OUTSIDE | environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 64
    assert "SPILLWAY_REDIS_URL" in done.stderr and "in clear" in done.stderr and "secret" not in done.stderr


def of_cluster(name: str) -> dict:
    objects = cluster_chart.render(cluster_chart.REQUIRED | {"agent": {"enabled": True}})
    return find(objects, "Pod", f"spillway-cluster-test-{name}")["spec"]["containers"][0]


def script(
    container: dict, environment: dict[str, str], moved: dict[str, str]
) -> subprocess.CompletedProcess:
    """Runs the pod's script with shorter waiting times."""
    text = container["args"][0]
    for there, here in (moved | {"seq 30": "seq 8"}).items():
        text = text.replace(there, here)
    return subprocess.run(
        [*container["command"], text],
        env=OUTSIDE | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


class Relay(http.server.BaseHTTPRequestHandler):
    """A relay that is not ready at first."""

    statuses: list[int] = []

    def do_GET(self) -> None:
        self.send_response(self.statuses.pop(0) if self.path == "/readyz" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(("statuses", "code"), [([503, 503, 200], 0), ([503] * 20, 1)])
def test_the_relay_is_asked_until_it_is_ready(statuses: list[int], code: int):
    container = of_cluster("relay")
    handler = type("Handler", (Relay,), {"statuses": statuses})
    with http.server.HTTPServer(("127.0.0.1", 0), handler) as relay:
        threading.Thread(target=relay.serve_forever, daemon=True).start()
        done = script(
            container, {"HOST": "127.0.0.1", "PORT": str(relay.server_port)}, {"sleep 2": "sleep 0.1"}
        )
        relay.shutdown()
    assert done.returncode == code, done.stderr
    assert ("relay: ready" in done.stdout) == (code == 0)


@pytest.mark.parametrize("trusted", [True, False])
def test_a_collector_takes_a_span_from_who_has_a_certificate(tmp_path: Path, trusted: bool):
    """A real collector with mutual TLS takes the span.

    With a certificate of another authority the test fails and says where.
    """
    container, tls = of_cluster("collector"), tls_files(tmp_path / "tls")
    sender = tls if trusted else tls_files(tmp_path / "other")
    here = OUTSIDE | {"PATH": f"{servers.ROOT}/.spillway/bin{os.pathsep}{os.environ['PATH']}"}
    gateway = collector(
        tmp_path / "gateway", f"127.0.0.1:{servers.free_port()}", here,
        SPILLWAY_OTLP_TLS_CERT=str(tls.certificate), SPILLWAY_OTLP_TLS_KEY=str(tls.key),
        SPILLWAY_OTLP_TLS_CLIENT_CA=str(tls.ca),
    )  # fmt: skip
    environment = here | {v["name"]: v["value"] for v in container["env"]}
    environment |= {
        name: f"127.0.0.1:{servers.free_port()}" for name in environment if name.endswith("_LISTEN")
    }
    environment |= {
        "SPILLWAY_GATEWAY": f"https://{gateway.address}",
        "SPILLWAY_GATEWAY_CA": str(tls.ca),
        "SPILLWAY_GATEWAY_CERT": str(sender.certificate),
        "SPILLWAY_GATEWAY_KEY": str(sender.key),
        "SPILLWAY_STATE_DIR": str(tmp_path / "state"),
    }
    with servers.running(gateway.server):
        done = script(container, environment, {"/etc/spillway/": f"{COLLECTORS}/"})
    assert ("collector: took the span" in done.stdout) == trusted, done.stderr
    assert done.returncode == (0 if trusted else 1)
