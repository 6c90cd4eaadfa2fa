"""A real Envoy with an outbound and an inbound listener, as two pods would have them:

test -> outbound (service front, cluster west) -> inbound (service cart, cluster east) -> application
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[4]
WASM = Path(os.environ.get("SPILLWAY_FILTER_WASM", ROOT / ".spillway/wasm/spillway_filter.wasm"))
ENVOY = Path(sys.executable).parent / "envoy"
TYPES = "type.googleapis.com/envoy.extensions"
CLASS = "cart GET /users/{id}"


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def address(port: int) -> dict:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def cluster(name: str, port: int, http2: bool = False) -> dict:
    endpoint = {"endpoint": {"address": address(port)}}
    out = {
        "name": name,
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }
    if http2:
        options = {"@type": f"{TYPES}.upstreams.http.v3.HttpProtocolOptions"}
        options["explicit_http_config"] = {"http2_protocol_options": {}}
        name = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
        out["typed_extension_protocol_options"] = {name: options}
    return out


def wasm_filter(configuration: dict) -> dict:
    name = f"spillway-{configuration.get('direction')}"
    vm = {"vm_id": "spillway", "runtime": "envoy.wasm.runtime.v8", "code": {"local": {"filename": str(WASM)}}}
    value = {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": json.dumps(configuration)}
    config = {
        "name": name,
        "root_id": name,
        "failure_policy": "FAIL_OPEN",
        "vm_config": vm,
        "configuration": value,
    }
    typed = {"@type": f"{TYPES}.filters.http.wasm.v3.Wasm", "config": config}
    return {"name": "spillway", "typed_config": typed}


def routes(target: str, metadata: dict) -> list[dict]:
    """One route per class, as the relay serves them, and the catch-all last."""
    template = {"path_template": "/users/{id}"}
    match = {
        "path_match_policy": {
            "name": "template",
            "typed_config": {
                "@type": f"{TYPES}.path.match.uri_template.v3.UriTemplateMatchConfig",
                **template,
            },
        },
        "headers": [{"name": ":method", "string_match": {"exact": "GET"}}],
    }
    action = {"weighted_clusters": {"clusters": [{"name": target, "weight": 10000}]}, "timeout": "0s"}
    classed = {"name": CLASS, "match": match, "route": action, "metadata": metadata}
    return [classed, {"name": "other", "match": {"prefix": "/"}, "route": action}]


def listener(port: int, target: str, filters: list[dict], metadata: dict) -> dict:
    hosts = [{"name": "all", "domains": ["*"], "routes": routes(target, metadata)}]
    router = {"name": "router", "typed_config": {"@type": f"{TYPES}.filters.http.router.v3.Router"}}
    manager = {
        "@type": f"{TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": target.replace("|", "_"),
        "route_config": {"virtual_hosts": hosts},
        "upgrade_configs": [{"upgrade_type": "websocket"}],
        "http_filters": [*filters, router],
    }
    chain = {"filters": [{"name": "http", "typed_config": manager}]}
    return {"name": target, "address": address(port), "filter_chains": [chain]}


class Proxy:
    """Starts Envoy; `overrides` are merged into both filters' configuration; None: no filter at all."""

    def __init__(self, folder: Path, app: int, collector: int, overrides: dict | None) -> None:
        self.admin, self.inbound, self.outbound = free_ports(3)
        identities = {"inbound": ("east", "cart"), "outbound": ("west", "front")}
        filters: dict[str, list[dict]] = {}
        for side, (own_cluster, own_service) in identities.items():
            own = {
                "direction": side,
                "cluster": own_cluster,
                "service": own_service,
                "flush_interval_ms": 200,
            }
            filters[side] = [] if overrides is None else [wasm_filter({**own, **overrides})]
        ruleset = {"filter_metadata": {"spillway": {"ruleset_version": 42, "input_window": "w1"}}}
        config = {
            "admin": {"address": address(self.admin)},
            "static_resources": {
                "listeners": [
                    listener(self.inbound, "spillway-app", filters["inbound"], {}),
                    # The routed cluster name says "north"; who answers is "east", as after a failover.
                    listener(self.outbound, "cart|north", filters["outbound"], ruleset),
                ],
                "clusters": [
                    cluster("spillway-app", app),
                    cluster("cart|north", self.inbound),
                    cluster("spillway-collector", collector, http2=True),
                ],
            },
        }
        path = folder / f"envoy-{self.admin}.yaml"
        path.write_text(yaml.safe_dump(config))
        self.log = folder / f"envoy-{self.admin}.log"
        command = [ENVOY, "--disable-hot-restart", "--concurrency", "2", "-l", "warning", "-c", path]
        self._process = subprocess.Popen(command, stderr=self.log.open("wb"), stdout=subprocess.DEVNULL)
        self._wait_ready()

    def stats(self) -> dict[str, int]:
        """The filter's own stats."""
        text = self._get("/stats?filter=wasmcustom")
        pairs = (line.rsplit(": ", 1) for line in text.splitlines() if ": " in line)
        return {name.removeprefix("wasmcustom.spillway_"): int(value) for name, value in pairs}

    def wait_stat(self, name: str, wanted, seconds: float = 8) -> int:
        deadline = time.monotonic() + seconds
        while not wanted(value := self.stats().get(name, 0)):
            assert time.monotonic() < deadline, f"{name} is {value}; {self.stats()}"
            time.sleep(0.05)
        return value

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}{path}", timeout=5) as response:
            return response.read().decode()

    def _wait_ready(self) -> None:
        for _ in range(300):
            if self._process.poll() is not None:
                break
            try:
                if self._get("/ready").strip() == "LIVE":
                    return
            except OSError:
                pass
            time.sleep(0.1)
        self.stop()
        raise RuntimeError(f"Envoy is not ready: {self.log.read_text()[-2000:]}")
