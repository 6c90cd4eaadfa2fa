"""A real relay and real Envoys of two pods in one cluster, as the lab renders them.

The service gate calls the service cart.
"""

import http.server
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pod_envoy import ENVOY
from spillway_lab.keys import certificates
from spillway_lab.keys.keystore import Keystore
from spillway_lab.render import bootstrap, files, templates
from spillway_lab.render.pods import HOST, LOCAL, Pod
from spillway_lab.render.surroundings import Surroundings
from spillway_lab.testing.servers import ROOT, Server, free_port

CLUSTER = "one"


class Application(http.server.BaseHTTPRequestHandler):
    """Application of both pods.

    /stream/N sends one byte at once and one after N seconds. /header/NAME adds a response header of
    that name. Every path is answered with 200.
    """

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        _, kind, *argument = self.path.split("/")
        body = b"ab"
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        if kind == "header":
            self.send_header(argument[0], "UF")
        self.end_headers()
        self.wfile.write(body[:1])
        self.wfile.flush()
        if kind == "stream":
            time.sleep(float(argument[0]))
        self.wfile.write(body[1:])

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


@dataclass
class Mesh:
    """The files on disk, and the servers that run from them.

    `topology` and `endpoints` are the relay's files.
    """

    folder: Path
    xds: int = field(default_factory=free_port)
    relay_health: int = field(default_factory=free_port)
    otlp: int = field(default_factory=free_port)  # a port on which no server listens

    def __post_init__(self) -> None:
        self.store = Keystore(self.folder / "tls")
        self.store.issue([certificates.relay(CLUSTER, (HOST,))])
        self._application = http.server.ThreadingHTTPServer((HOST, 0), Application)
        threading.Thread(target=self._application.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._application.shutdown()
        self._application.server_close()

    def pod(self, service: str, index: int = 0) -> Pod:
        app_port = self._application.server_port
        return Pod(CLUSTER, service, index, index, app_port, *(free_port() for _ in range(4)), edge=False)

    def envoy(self, pod: Pod, *listeners: dict) -> Server:
        """Returns the pod's Envoy with `listeners` added to its bootstrap.

        It is ready when its /ready says so.
        """
        around = Surroundings(
            xds=[], otlp=[], toxiproxy="", templates=templates.read(ROOT / "infra"),
            filter_wasm=ROOT / ".spillway/wasm/spillway_filter.wasm", out=self.folder, network=LOCAL,
        )  # fmt: skip
        files.write(self.folder, bootstrap.files(pod, f"{HOST}:{self.xds}", f"{HOST}:{self.otlp}", around))
        self.store.issue([certificates.pod(pod.name, CLUSTER, pod.service)])
        path = self.folder / "envoy" / f"{pod.name}.yaml"
        config = yaml.safe_load(path.read_text())
        config["static_resources"]["listeners"] += listeners
        path.write_text(yaml.safe_dump(config))
        return Server(
            url="", command=[ENVOY, "-c", str(path), "--disable-hot-restart", "--concurrency", "1", "-l", "warning"],
            log=self.folder / f"{pod.name}.log", ready=lambda: status(pod.admin_port, "/ready") == 200,
        )  # fmt: skip

    def relay(self, cart: list[Pod], **service: object) -> Server:
        """Returns a relay that serves the routes from gate to cart. NATS is away.

        The topology declares cart with the fields of `service`.
        """
        key = Ed25519PrivateKey.generate().public_key()
        pem = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        (self.folder / "keys.pem").write_bytes(pem)
        topology = {"clusters": [{"name": CLUSTER, "region": "r"}], "services": [{"name": "cart", **service}]}
        entry = {
            "service": "cart",
            "cluster": CLUSTER,
            "addresses": [f"{HOST}:{p.inbound_port}" for p in cart],
        }
        (self.folder / "topology.yaml").write_text(yaml.safe_dump(topology))
        (self.folder / "endpoints.yaml").write_text(yaml.safe_dump({"cluster": CLUSTER, "services": [entry]}))
        tls = self.store.folder / f"relay-{CLUSTER}"
        environment = {
            "SPILLWAY_CLUSTER": CLUSTER,
            "SPILLWAY_RELAY": f"{CLUSTER}-relay-0",
            "SPILLWAY_NATS_URL": f"nats://relay-{CLUSTER}:x@{HOST}:{free_port()}",
            "SPILLWAY_XDS_LISTEN": f"{HOST}:{self.xds}",
            "SPILLWAY_XDS_CERT": str(tls / "tls.crt"),
            "SPILLWAY_XDS_KEY": str(tls / "tls.key"),
            "SPILLWAY_XDS_CLIENT_CA": str(tls / "ca.crt"),
            "SPILLWAY_XDS_IDENTITY": certificates.SERVICE_PATTERN,
            "SPILLWAY_RULESET_KEYS": str(self.folder / "keys.pem"),
            "SPILLWAY_HEALTH_LISTEN": f"{HOST}:{self.relay_health}",
            "SPILLWAY_STATE_DIR": str(self.folder / "state"),
            "SPILLWAY_TOPOLOGY": str(self.folder / "topology.yaml"),
            "SPILLWAY_ENDPOINTS": str(self.folder / "endpoints.yaml"),
        }
        return Server(
            url="", command=[str(ROOT / ".spillway/bin/spillway-relay")], log=self.folder / "relay.log",
            ready=lambda: status(self.relay_health, "/readyz") == 200, environment=environment,
        )  # fmt: skip


def status(port: int, path: str, host: str = HOST) -> int:
    """Returns the status of a GET, or 0 without an answer."""
    try:
        return httpx.get(
            f"http://{HOST}:{port}{path}", headers={"host": host}, trust_env=False, timeout=10
        ).status_code
    except httpx.HTTPError:
        return 0
