"""A real Envoy that asks istiod as a sidecar of Istio does, and what it was sent."""

import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from kube_region import Region
from spillway_lab.testing.servers import ROOT, Server, answers, free_port, running
from spillway_lab.testing.tls_files import tls_files
from spillway_lab.testing.waiting import eventually

ENVOY = ROOT / ".spillway/venv/bin/envoy"
_MANAGER = "HttpConnectionManager"


class Istiod(NamedTuple):
    """A running istiod: its cleartext port for sidecars, and their version."""

    port: int
    version: str


def bootstrap(name: str, address: str, istiod: Istiod, agent: int, admin: int) -> dict[str, Any]:
    """Returns the parts that matter here of the bootstrap that Istio's agent writes.

    They are the sidecar's identity and the servers that it asks.
    """

    def static(name: str, port: int) -> dict[str, Any]:
        socket = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
        options = {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {"http2_protocol_options": {}},
        }
        return {
            "name": name, "type": "STATIC", "connect_timeout": "5s",
            "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options},
            "load_assignment": {
                "cluster_name": name, "endpoints": [{"lb_endpoints": [{"endpoint": {"address": socket}}]}]},
        }  # fmt: skip

    ads = {"ads": {}, "resource_api_version": "V3"}
    grpc = [{"envoy_grpc": {"cluster_name": "xds-grpc"}}]
    return {
        "node": {
            "id": f"sidecar~{address}~{name}-0.shop~shop.svc.cluster.local",
            "cluster": f"{name}.shop",
            "metadata": {
                "NAMESPACE": "shop",
                "LABELS": {"app": name},
                "CLUSTER_ID": "Kubernetes",
                "MESH_ID": "cluster.local",
                "INSTANCE_IPS": address,
                "ISTIO_VERSION": istiod.version,
                "WORKLOAD_NAME": name,
                "SERVICE_ACCOUNT": name,
            },  # fmt: skip
        },
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": admin}}},
        "bootstrap_extensions": [
            {
                "name": "envoy.bootstrap.internal_listener",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.bootstrap.internal_listener.v3.InternalListener"
                },
            }
        ],
        "dynamic_resources": {
            "ads_config": {"api_type": "GRPC", "transport_api_version": "V3", "grpc_services": grpc},
            "lds_config": ads,
            "cds_config": ads,
        },
        "static_resources": {"clusters": [static("xds-grpc", istiod.port), static("sds-grpc", agent)]},
    }


class Sidecar:
    def __init__(self, admin: int) -> None:
        self._url = f"http://127.0.0.1:{admin}"

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self._url + path, trust_env=False, timeout=10)

    def resources(self, kind: str) -> list[dict]:
        return self.get(f"/config_dump?resource={kind}").json().get("configs", [])

    def listeners(self) -> dict[str, dict]:
        """Listeners by name, including those that are still warming."""
        states = {state["name"]: state for state in self.resources("dynamic_listeners")}
        assert not [state for state in states.values() if "error_state" in state], states
        return {
            name: (state.get("active_state") or state["warming_state"])["listener"]
            for name, state in states.items()
        }

    def clusters(self) -> dict[str, dict]:
        found = [*self.resources("dynamic_active_clusters"), *self.resources("dynamic_warming_clusters")]
        return {entry["cluster"]["name"]: entry["cluster"] for entry in found}

    def routes(self) -> dict[str, dict]:
        """Virtual hosts of each route configuration, by its name."""
        found = self.resources("dynamic_route_configs")
        return {
            entry["route_config"]["name"]: {
                host["name"]: host for host in entry["route_config"]["virtual_hosts"]
            }
            for entry in found
        }


def agent_secrets(port: int, folder: Path) -> Server:
    tls = tls_files(folder / "tls")
    command = [sys.executable, str(Path(__file__).with_name("agent_secrets.py")), str(port)]
    command += [str(path) for path in (tls.ca, tls.certificate, tls.key)]

    def listens() -> bool:
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", port)) == 0

    return Server(f"127.0.0.1:{port}", command, folder / "agent.log", listens)


@contextmanager
def sidecar_of(name: str, mesh: Region, istiod: Istiod, folder: Path) -> Iterator[Sidecar]:
    def address() -> str:
        return mesh.kubectl("get", "pod", f"{name}-0", "-n", "shop", "-o", "jsonpath={.status.podIP}")

    eventually(address, f"{name}'s pod has an address")
    admin, agent = free_port(), free_port()
    (folder / "envoy.json").write_text(json.dumps(bootstrap(name, address(), istiod, agent, admin)))
    command = [os.environ.get("SPILLWAY_ENVOY", str(ENVOY)), "-c", str(folder / "envoy.json")]
    command += ["--disable-hot-restart", "--concurrency", "1", "-l", "warning"]
    sidecar = Sidecar(admin)

    def ready() -> bool:
        return answers(admin, b"GET /server_info HTTP/1.0\r\n\r\n", b"HTTP/1")

    with (
        running(agent_secrets(agent, folder)),
        running(Server(f"127.0.0.1:{admin}", command, folder / "envoy.log", ready)),
    ):
        eventually(lambda: "0.0.0.0_8080" in sidecar.listeners(), "istiod has told the listeners")
        yield sidecar


def managers(listener: dict) -> list[dict]:
    chains = [*listener.get("filter_chains", []), *filter(None, [listener.get("default_filter_chain")])]
    filters = [
        entry["typed_config"] for chain in chains for entry in chain["filters"] if "typed_config" in entry
    ]
    return [entry for entry in filters if entry["@type"].endswith(_MANAGER)]
