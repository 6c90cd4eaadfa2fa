"""An application's Envoy as the charts describe it, with what it asks of a machine."""

import contextlib
import http.server
import json
import math
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import cluster_chart
import httpx
import yaml
from spillway_lab.testing.servers import ROOT, Server, free_port
from spillway_lab.testing.waiting import eventually

HOST = "127.0.0.1"
ENVOY = os.environ.get("SPILLWAY_ENVOY", str(ROOT / ".spillway/venv/bin/envoy"))
WASM = os.environ.get("SPILLWAY_FILTER_WASM", str(ROOT / ".spillway/wasm/spillway_filter.wasm"))


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
        pod_ports = {"admin": self.admin, "inbound": self.inbound, "outbound": self.outbound}
        objects = cluster_chart.render(values(pod_ports, self.app_port) | self.more)
        files = cluster_chart.find(objects, "ConfigMap", f"spillway-envoy-{self.service}")["data"]
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
