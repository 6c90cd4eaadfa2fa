"""Relay, collector and agent with the environment and arguments of their workloads."""

import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import cluster_chart
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID
from sidecar_pods import HOST, Ports, answers, get
from spillway_lab.keys import certificates
from spillway_lab.keys.keystore import Keystore
from spillway_lab.testing.servers import ROOT, Server, free_port

PROGRAMS = ROOT / ".spillway/bin"


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
    tls_folder = str(store.folder / shown)
    moved = {
        "/etc/spillway-secrets/kafka": str(folder),
        **{f"/etc/spillway-secrets/{name}": tls_folder for name in ("tls", "trust")},
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
