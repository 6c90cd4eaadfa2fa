"""Programs start with the environment and files that spillway-global gives their pods."""

import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path

import charts
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from global_chart import ALL_JOBS, CHART, LEAST
from spillway_lab.testing.servers import ROOT, free_port
from spillway_streams.topics import declared as topics

pytestmark = [pytest.mark.component, pytest.mark.usefixtures("chart_tools")]

BOXES = {"spillway-streams": "spillway_streams", "spillway-optimizer": "spillway_optimizer"}
BOXES |= {
    "spillway-publisher": "spillway_publisher",
    "spillway-clickhouse-migrate": "spillway_clickhouse.migrate",
}


def declared_topics(values: dict) -> dict[str, dict]:
    """Returns the file that the Job `spillway-topics` gets."""
    config_maps = charts.of(charts.render(CHART, values), "ConfigMap")
    return yaml.safe_load(config_maps["spillway-topics"]["data"]["topics.yaml"])


def test_the_topics_job_is_given_what_is_declared_and_what_an_operator_says_of_a_topic(tmp_path: Path):
    """The settings are those of infra/kafka/topics.yaml, with numbers as numbers.

    `kafka.topicConfig` overrides them for each topic and adds to them. The command reads the file
    as rendered.
    """
    declared = yaml.safe_load((ROOT / "infra/kafka/topics.yaml").read_text())
    assert declared_topics(LEAST | {"kafka": LEAST["kafka"] | {"partitions": 2}}) == declared
    topic_config = {"otlp_spans.{cluster}": {"retention.ms": 3600000, "segment.ms": ""}}
    topic_config |= {"spillway_calls": {"retention.bytes": 10**12, "min.insync.replicas": 2}}
    found = declared_topics(
        LEAST | {"kafka": LEAST["kafka"] | {"topicConfig": topic_config, "partitions": 8}}
    )
    assert {topic: of["config"] for topic, of in found.items()} == {
        topic: of["config"] | topic_config.get(topic, {}) for topic, of in declared.items()
    }
    file = tmp_path / "topics.yaml"
    file.write_text(yaml.safe_dump(found))
    read = topics.read(file, ["west"], 4, 3)
    assert read["otlp_spans.west"].config["retention.ms"] == "3600000"
    assert "segment.ms" not in read["otlp_spans.west"].settings()
    assert read["spillway_calls"].settings()["retention.bytes"] == "1000000000000"
    assert read["spillway_calls"].partitions == 8 and read["spillway_dead_letters"].partitions == 1


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that a pod finds mounted.

    These are an authority, a signing key, a password, topology and guardrails.
    """
    folder = tmp_path_factory.mktemp("pod")
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")]), datetime.now(UTC)
    made = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1)
    )
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    signer = ed25519.Ed25519PrivateKey.generate()
    signing = signer.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = signer.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    files = {
        "trust/ca.crt": made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
        "signing/signing.key": signing,
        "ruleset-keys/keys.pem": public,
        "kafka/kafka-password": b"p",
        **{f"kafka/{job}/kafka-password": b"p" for job in JOBS},
        "topology/topology.yaml": (ROOT / "contracts/golden/topology.yaml").read_bytes(),
    }
    for file, content in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(content)
    return folder


SERVERS = {
    "SPILLWAY_CLICKHOUSE_URL": "clickhouses://u:p@localhost:19440/spillway",
    "SPILLWAY_REDIS_URL": "rediss://u:p@localhost:16380/0",
    "SPILLWAY_NATS_URL": "tls://u:p@localhost:14222",
    "SPILLWAY_KAFKA_SASL_USER": "u",
}
JOBS = ("admit", "exclusive", "curves", "graph", "classify")
_OF_JOB = re.compile(f"^SPILLWAY_({'|'.join(JOBS).upper()})_")


def process(objects: list[dict], template: dict, machine: Path, health: int) -> subprocess.Popen:
    """Starts a pod's program with exactly the pod's arguments and variables.

    Its mounts are below `machine`. Jobs in one process have further ports.
    """
    container = template["spec"]["containers"][0]
    for config_map in charts.of(objects, "ConfigMap").values():
        for file, text in config_map["data"].items():
            folder = machine / config_map["metadata"]["name"].removeprefix("spillway-")
            folder.mkdir(exist_ok=True)
            (folder / file).write_text(text)
    moved = {
        "/run/spillway": str(machine),
        "/var/lib/spillway": str(machine / "state"),
        "/app/clickhouse": str(ROOT / "contracts/clickhouse"),
    }

    def here(text: str) -> str:
        return next((new + text[len(old) :] for old, new in moved.items() if text.startswith(old)), text)

    given = {
        v["name"]: here(v["value"]) if "value" in v else SERVERS[_OF_JOB.sub("SPILLWAY_", v["name"])]
        for v in container["env"]
    }
    given |= {name: f"127.0.0.1:{free_port()}" for name in given if name.endswith("_HEALTH_LISTEN")}
    if "SPILLWAY_HEALTH_LISTEN" in given:
        given["SPILLWAY_HEALTH_LISTEN"] = f"127.0.0.1:{health}"
    around = {k: v for k, v in os.environ.items() if not k.startswith("SPILLWAY_")}
    module = BOXES[re.split("[/:]", container["image"])[-2]]
    command = [sys.executable, "-m", module, *map(here, container["args"])]
    log = (machine / "log").open("w")
    return subprocess.Popen(command, env=around | given, stdout=log, stderr=subprocess.STDOUT)


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=5) as response:
            return response.status == 200
    except (urllib.error.URLError, OSError):
        return False


@pytest.mark.parametrize("name", [*JOBS, "streams", "optimizer", "papa", "publisher"])
def test_the_process_starts_with_what_its_pod_is_given(name: str, machine: Path):
    """With the Deployment's own variables and files no program reports a configuration error.

    Its liveness probe is answered although every server is away.
    """
    objects = charts.render(CHART, ALL_JOBS if name == "streams" else LEAST)
    template = charts.of(objects, "Deployment")[f"spillway-{name}"]["spec"]["template"]
    port = free_port()
    running = process(objects, template, machine, port)
    try:
        end = time.monotonic() + 120
        while running.poll() is None and time.monotonic() < end and not answers(port):
            time.sleep(0.2)
        assert running.poll() is None, (machine / "log").read_text()
        assert answers(port)
    finally:
        running.kill()
        running.wait()


@pytest.mark.parametrize(
    ("name", "says"), [("migrate", "waiting for ClickHouse"), ("topics", "error: localhost:19093")]
)
def test_the_job_starts_with_what_its_pod_is_given(name: str, says: str, machine: Path):
    """A Job gets as far as connecting to its server, which does not exist."""
    objects = charts.render(CHART, LEAST)
    running = process(objects, charts.of(objects, "Job")[f"spillway-{name}"]["spec"]["template"], machine, 0)
    try:
        end = time.monotonic() + 120
        while time.monotonic() < end and says not in (machine / "log").read_text() and running.poll() is None:
            time.sleep(0.2)
        assert says in (machine / "log").read_text()
    finally:
        running.kill()
        running.wait()
