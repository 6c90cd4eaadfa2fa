"""The sidecar of infra/helm for two applications, run by a real Envoy, relay and collector.

They use real certificates, and the environment and arguments that the charts give them. The test
only replaces Kubernetes: names become addresses and volumes become folders.
"""

import contextlib
import http.server
import json
import math
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import cluster_chart
import httpx
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID
from spillway_lab.keys import certificates
from spillway_lab.keys.keystore import Keystore
from spillway_lab.testing.servers import ROOT, Server, free_port, running
from spillway_lab.testing.waiting import eventually

pytestmark = pytest.mark.component
HOST = "127.0.0.1"
ENVOY = os.environ.get("SPILLWAY_ENVOY", str(ROOT / ".spillway/venv/bin/envoy"))
WASM = os.environ.get("SPILLWAY_FILTER_WASM", str(ROOT / ".spillway/wasm/spillway_filter.wasm"))
PROGRAMS = ROOT / ".spillway/bin"


@dataclass
class Ports:
    """Ports of this machine. In Kubernetes each pod has its own address."""

    xds: int = field(default_factory=free_port)
    relay_health: int = field(default_factory=free_port)
    grpc: int = field(default_factory=free_port)
    http: int = field(default_factory=free_port)
    collector_health: int = field(default_factory=free_port)
    metrics: int = field(default_factory=free_port)
    cart: int = field(default_factory=free_port)  # port of the application


class Application(http.server.BaseHTTPRequestHandler):
    """Answers with the request's path and trace."""

    def do_GET(self) -> None:
        body = json.dumps({"path": self.path, "traceparent": self.headers["traceparent"]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


def values(ports: dict[str, int], app_port: int) -> dict:
    applications = [
        {"service": s, "namespace": "shop", "appPort": app_port, "edge": s == "gate"}
        for s in ("gate", "cart")
    ]
    return cluster_chart.REQUIRED | {"sidecar": {"applications": applications, "ports": ports}}


@dataclass
class Pod:
    """One application's Envoy as the charts describe it."""

    service: str
    folder: Path
    app_port: int
    # values of the chart in addition to those of every test
    more: dict = field(default_factory=dict)
    admin: int = field(default_factory=free_port)
    inbound: int = field(default_factory=free_port)
    outbound: int = field(default_factory=free_port)

    def prepare(self, tls: Path, ports: Ports) -> list[str]:
        """Writes the ConfigMap's files and returns Envoy's command."""
        own = {"admin": self.admin, "inbound": self.inbound, "outbound": self.outbound}
        objects = cluster_chart.render(values(own, self.app_port) | self.more)
        files = cluster_chart.one(objects, "ConfigMap", f"spillway-envoy-{self.service}")["data"]
        self.folder.mkdir()
        for name, content in files.items():
            (self.folder / name).write_text(self._here(content, tls))
        bootstrap = yaml.safe_load((self.folder / "envoy.yaml").read_text())
        for cluster in bootstrap["static_resources"]["clusters"]:
            there = {"spillway-xds": ports.xds, "spillway-collector": ports.grpc}.get(cluster["name"])
            if there:
                address = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]
                address["socket_address"] = {"address": HOST, "port_value": there}
        (self.folder / "envoy.yaml").write_text(yaml.safe_dump(bootstrap))
        return [ENVOY, *self._arguments(tls)]

    def _arguments(self, tls: Path) -> list[str]:
        example = cluster_chart.render(
            {"cluster": "west", "image": "cart:1", "envoyImage": "spillway-envoy:1"},
            cluster_chart.CHARTS / "examples/cart",
            "shop",
        )
        (sidecar,) = cluster_chart.pods(example)["cart"]["initContainers"]
        variables = {"SPILLWAY_SERVICE": self.service, "SPILLWAY_POD": f"{self.service}-0"}
        return [self._here(a, tls) for a in cluster_chart.arguments(sidecar, variables)]

    def _here(self, text: str, tls: Path) -> str:
        for there, here in (
            ("/etc/spillway-envoy", str(self.folder)),
            ("/etc/spillway-tls", str(tls)),
            ("/etc/spillway/spillway_filter.wasm", WASM),
        ):
            text = text.replace(there, here)
        return text

    def server(self, command: list[str]) -> Server:
        ready = f"http://{HOST}:{self.admin}/ready"
        return Server(url=ready, command=command, log=self.folder / "log", ready=lambda: answers(ready))


def answers(url: str) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(url, trust_env=False, timeout=2).status_code == 200
    return False


@dataclass
class Counts:
    """Counters of one Envoy's filters, for both directions together."""

    arrivals: int
    spans: int

    @classmethod
    def of(cls, admin: int) -> "Counts":
        lines = get(f"http://{HOST}:{admin}/stats?filter=wasmcustom").splitlines()
        stats = {
            name.rpartition(".")[2]: int(value) for name, _, value in (line.partition(": ") for line in lines)
        }
        arrivals = sum(stats.get(f"spillway_{side}_arrivals", 0) for side in ("inbound", "outbound"))
        return cls(arrivals, stats.get("spillway_spans_finished", 0))

    @classmethod
    def settled(cls, admin: int) -> "Counts":
        """Returns the counters once they are constant.

        Spans are counted at the tick, of 0.1 s, after they ended.
        """

        def still() -> "Counts | None":
            before = cls.of(admin)
            time.sleep(1)
            return before if cls.of(admin) == before else None

        return eventually(still, "counters that stand still")

    def check(self, traces: int, ratio: float) -> None:
        """Raises AssertionError unless about `ratio` of the traces were kept.

        Each trace has one span, and the tolerance is 5 standard deviations.
        """
        deviation = math.sqrt(traces * ratio * (1 - ratio))
        assert abs(self.spans - traces * ratio) < 5 * deviation, self


def get(url: str) -> str:
    """Returns the page. The timeout is long enough for a busy machine."""
    return httpx.get(url, trust_env=False, timeout=60).text


@pytest.fixture
def store(tmp_path: Path) -> Keystore:
    made = Keystore(tmp_path / "tls")
    made.issue([
        certificates.relay("west", (HOST,)),
        certificates.collector("west", (HOST,)),
        *(certificates.pod(service, "west", service) for service in ("gate", "cart")),
    ])  # fmt: skip
    return made


@pytest.fixture
def application() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer((HOST, 0), Application)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def relay(folder: Path, store: Keystore, ports: Ports, endpoints: list[dict]) -> Server:
    """Returns the relay with the StatefulSet's environment.

    NATS is away, so the relay serves local-first routes.
    """
    (folder / "mounted").mkdir()
    key = Ed25519PrivateKey.generate().public_key()
    (folder / "mounted/keys.pem").write_bytes(
        key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    (folder / "mounted/topology.yaml").write_text("clusters: [{name: west, region: r1}]\n")
    (folder / "mounted/endpoints.yaml").write_text(yaml.safe_dump({"cluster": "west", "services": endpoints}))
    (container,) = cluster_chart.pods(cluster_chart.render(cluster_chart.REQUIRED))["spillway-relay"][
        "containers"
    ]
    moved = {
        "/etc/spillway/tls": str(store.folder / "relay-west"),
        "/etc/spillway/trust": str(store.folder / "relay-west"),
        **{f"/etc/spillway/{n}": str(folder / "mounted") for n in ("ruleset-keys", "topology", "endpoints")},
        "/var/lib/spillway": str(folder / "relay-state"),
        "0.0.0.0:18000": f"{HOST}:{ports.xds}",
        "0.0.0.0:18001": f"{HOST}:{ports.relay_health}",
    }
    secrets = {
        "spillway-relay/SPILLWAY_NATS_URL": f"tls://relay-west:pass@{HOST}:{free_port()}",
        "metadata.name": "spillway-relay-0",
    }
    (folder / "relay-state").mkdir()
    return Server(
        url="", command=[str(PROGRAMS / "spillway-relay")], log=folder / "relay.log",
        ready=lambda: answers(f"http://{HOST}:{ports.relay_health}/readyz"),
        environment=cluster_chart.environment(container, secrets, moved),
    )  # fmt: skip


def collector(folder: Path, store: Keystore, ports: Ports, shown: str = "collector-west") -> Server:
    """Returns the collector with the StatefulSet's environment.

    Kafka is away, so accepted spans wait on its disk.
    """
    (folder / "kafka-password").write_text("pass")
    rendered = cluster_chart.render(
        cluster_chart.REQUIRED | {"collector": {"kafka": {"brokers": f"{HOST}:{free_port()}"}}}
    )
    (container,) = cluster_chart.pods(rendered)["spillway-collector"]["containers"]
    own = str(store.folder / shown)
    moved = {
        "/etc/spillway-secrets/kafka": str(folder),
        **{f"/etc/spillway-secrets/{name}": own for name in ("tls", "trust")},
        "/var/lib/spillway": str(folder / "collector-state"),
        "0.0.0.0:4317": f"{HOST}:{ports.grpc}",
        "0.0.0.0:4318": f"{HOST}:{ports.http}",
        "0.0.0.0:13133": f"{HOST}:{ports.collector_health}",
        "0.0.0.0:8888": f"{HOST}:{ports.metrics}",
    }
    secrets = {"spillway-collector/SPILLWAY_KAFKA_SASL_USER": "collector-west"}
    (folder / "collector-state").mkdir()
    path = {"PATH": f"{PROGRAMS}:{os.environ['PATH']}"}
    return Server(
        url="", command=[str(ROOT / "collectors/run")], log=folder / "collector.log",
        ready=lambda: answers(f"http://{HOST}:{ports.collector_health}/healthz"),
        environment=cluster_chart.environment(container, secrets, moved) | path,
    )  # fmt: skip


def certify_agent(store: Keystore) -> None:
    """Issues one certificate for both sides of the agent.

    Envoys expect the collector's identity of it, and it is a client of the gateway.
    """
    authority, folder = store.folder / "authority/west", store.folder / "agent"
    issuer = x509.load_pem_x509_certificate((authority / "ca.crt").read_bytes())
    signer = serialization.load_pem_private_key((authority / "ca.key").read_bytes(), password=None)
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    uri = x509.UniformResourceIdentifier(certificates.collector("west", (HOST,)).uri)
    builder = x509.CertificateBuilder(
        issuer.subject, x509.Name([]), key.public_key(), x509.random_serial_number(),
        now - timedelta(minutes=5), now + timedelta(hours=1),
    )  # fmt: skip
    usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    made = (
        builder.add_extension(x509.SubjectAlternativeName([uri]), critical=True)
        .add_extension(usages, critical=False)
        .sign(signer, hashes.SHA256())
    )
    issued = certificates.Issued(made, key)
    folder.mkdir()
    (folder / "tls.crt").write_bytes(issued.certificate_pem)
    (folder / "tls.key").write_bytes(issued.key_pem)
    (folder / "ca.crt").write_bytes((authority / "ca.crt").read_bytes())


def agent(folder: Path, store: Keystore, ports: Ports, gateway: Ports) -> Server:
    """Returns the agent with the DaemonSet's environment and arguments, without a kubelet."""
    rendered = cluster_chart.render(
        cluster_chart.REQUIRED | {"agent": {"enabled": True, "kubeletCPU": False}}
    )
    (container,) = cluster_chart.pods(rendered)["spillway-agent"]["containers"]
    moved = {
        "/etc/spillway-secrets/tls": str(store.folder / "agent"),
        "/var/lib/spillway": str(folder / "agent-state"),
        "https://spillway-collector.spillway.svc.cluster.local:4317": f"https://{HOST}:{gateway.grpc}",
        "0.0.0.0:4317": f"{HOST}:{ports.grpc}",
        "0.0.0.0:4318": f"{HOST}:{ports.http}",
        "0.0.0.0:13133": f"{HOST}:{ports.collector_health}",
        "0.0.0.0:8888": f"{HOST}:{ports.metrics}",
    }
    (folder / "agent-state").mkdir()
    arguments = [a.replace("/etc/spillway", str(ROOT / "collectors")) for a in container["args"]]
    return Server(
        url="", command=[str(ROOT / "collectors/run"), *arguments], log=folder / "agent.log",
        ready=lambda: answers(f"http://{HOST}:{ports.collector_health}/healthz"),
        environment=cluster_chart.environment(container, {"spec.nodeName": "node-1"}, moved)
        | {"PATH": f"{PROGRAMS}:{os.environ['PATH']}"},
    )  # fmt: skip


def accepted(ports: Ports) -> float:
    """Number of spans that the collector has accepted to its disk."""
    text = get(f"http://{HOST}:{ports.metrics}/metrics")
    return sum(
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if re.match(r"otelcol_receiver_accepted_spans(_total)?[{ ]", line)
    )


def test_envoy_takes_the_rendered_bootstrap_without_a_warning(tmp_path: Path, store: Keystore):
    """What helm renders for an application is valid, including the filter's configuration.

    It uses nothing deprecated.
    """
    command = Pod("cart", tmp_path / "cart", 8080).prepare(store.folder / "cart", Ports())
    done = subprocess.run(
        [*command, "--mode", "validate"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr, done.stderr


def test_a_request_goes_through_two_sidecars_and_its_spans_arrive(
    tmp_path: Path, store: Keystore, application: int
):
    """An application that uses its Envoy as HTTP proxy reaches another one by the relay's routes.

    Both Envoys' spans reach the collector, which accepts them only over mutual TLS.
    """
    ports = Ports()
    gate, cart = Pod("gate", tmp_path / "gate", application), Pod("cart", tmp_path / "cart", application)
    commands = {pod.service: pod.prepare(store.folder / pod.service, ports) for pod in (gate, cart)}
    endpoints = [{"service": "cart", "cluster": "west", "addresses": [f"{HOST}:{cart.inbound}"]}]
    with contextlib.ExitStack() as stack:
        stack.enter_context(running(relay(tmp_path, store, ports, endpoints)))
        stack.enter_context(running(collector(tmp_path, store, ports)))
        for pod in (gate, cart):
            stack.enter_context(running(pod.server(commands[pod.service])))
        caller = stack.enter_context(httpx.Client(proxy=f"http://{HOST}:{gate.outbound}", trust_env=False))
        ask = lambda: caller.get("http://cart/items/7", timeout=60)  # noqa: E731
        answer = eventually(lambda: (a := ask()).status_code == 200 and a, "routes of the relay")
        assert answer.json()["path"] == "/items/7"
        assert answer.json()["traceparent"], "the filter began a trace"
        eventually(lambda: accepted(ports) >= 2, "a client's and a server's span")
        handshakes = get(f"http://{HOST}:{gate.admin}/stats?filter=cluster.spillway-collector.ssl.handshake")
        assert int(handshakes.rpartition(" ")[2]) > 0


def test_half_of_the_traces_are_sampled(tmp_path: Path, store: Keystore, application: int):
    """For a namespace with its own ratio, half of the requests leave a span.

    Each request begins a trace, and all count as arrivals.
    """
    sampling = {"sampling": {"ratio": 1, "namespaces": {"shop": 0.5}}}
    gate, requests = Pod("gate", tmp_path / "gate", application, sampling), 400
    with running(gate.server(gate.prepare(store.folder / "gate", Ports()))):
        for _ in range(requests):
            assert httpx.get(f"http://{HOST}:{gate.inbound}/", trust_env=False, timeout=60).status_code == 200
        counts = Counts.settled(gate.admin)
    assert counts.arrivals == requests
    counts.check(requests, 0.5)


def test_envoy_refuses_a_collector_of_another_name(tmp_path: Path, store: Keystore, application: int):
    """A server with the same authority but another identity, here the relay's, gets no spans."""
    ports = Ports()
    gate = Pod("gate", tmp_path / "gate", application)
    command = gate.prepare(store.folder / "gate", ports)
    stats = f"http://{HOST}:{gate.admin}/stats?filter=cluster.spillway-collector.ssl.fail_verify_san"
    with running(collector(tmp_path, store, ports, "relay-west")), running(gate.server(command)):
        get(f"http://{HOST}:{gate.inbound}/")  # creates a span
        eventually(lambda: int(get(stats).rpartition(" ")[2] or 0) > 0, "a refusal")
        assert accepted(ports) == 0


def test_spans_come_by_way_of_an_agent(tmp_path: Path, store: Keystore, application: int):
    """An agent with the DaemonSet's environment takes an Envoy's spans to the gateway.

    Both connections use mutual TLS.
    """
    certify_agent(store)
    ports, gateway = Ports(), Ports()
    gate = Pod("gate", tmp_path / "gate", application)
    command = gate.prepare(store.folder / "gate", ports)
    with contextlib.ExitStack() as stack:
        stack.enter_context(running(collector(tmp_path, store, gateway)))
        stack.enter_context(running(agent(tmp_path, store, ports, gateway)))
        stack.enter_context(running(gate.server(command)))
        get(f"http://{HOST}:{gate.inbound}/")  # creates a span
        eventually(lambda: accepted(gateway) >= 1, "a span at the gateway", seen=lambda: accepted(ports))
