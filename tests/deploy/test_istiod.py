"""The chart's objects for Istio, as real istiods process them.

A real API server validates them against Istio's own definitions. A real Envoy, which asks istiod as
a sidecar does, shows the result. Routes that then come from the relay are tested by
rule-publisher/relay/featuretests/envoy/istio_test.go.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import yaml
from kube_region import Region, program
from spillway_lab.testing.servers import ROOT, Server, answers, free_port, running
from spillway_lab.testing.tls_files import tls_files
from spillway_lab.testing.waiting import eventually

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(600)]

CHART = ROOT / "infra/helm/spillway-cluster"
VALUES = ROOT / "rule-publisher/relay/featuretests/envoy/testdata/istio/values.yaml"
ENVOY = ROOT / ".spillway/venv/bin/envoy"
# Istio's own filters are not in the standard build of Envoy, which replaces Istio's build here.
WITHOUT_OWN_FILTERS = {"PILOT_ENABLE_METADATA_EXCHANGE": "false", "PILOT_ENABLE_ALPN_FILTER": "false"}
SERVICES = {"gate": 8081, "shop": 8080, "ledger": 9090}
PLUGINS = ("spillway-gate-outbound", "spillway-gate-inbound")
BEHIND = [f"envoy.filters.http.{name}" for name in ("grpc_stats", "fault", "cors", "router")]
HOST = "shop.shop.svc.cluster.local"
# Objects that users have before Spillway: a timeout, and a direct response.
VIRTUAL_SERVICE = {
    "apiVersion": "networking.istio.io/v1",
    "kind": "VirtualService",
    "metadata": {"name": "shop", "namespace": "shop"},
    "spec": {
        "hosts": ["shop"],
        "http": [
            {"match": [{"uri": {"prefix": "/gone"}}], "directResponse": {"status": 410}},
            {"timeout": "3s", "route": [{"destination": {"host": "shop"}}]},
        ],
    },
}
_MANAGER = "HttpConnectionManager"


class Release(NamedTuple):
    """An istiod to test: its program, its sidecars' version, and variables for its environment."""

    name: str
    program: str
    version: str
    environment: Mapping[str, str]


RELEASES = (
    Release("1.31", "pilot-discovery", "1.31.0", {}),
    # Istio's master while 1.30 was being developed.
    Release("1.30", "pilot-discovery-1.30", "1.30.0", {}),
    # The same, with the setting of Istio's profile compatibility-version-1.29.
    Release(
        "1.30-as-1.29",
        "pilot-discovery-1.30",
        "1.30.0",
        {"PILOT_SIDECAR_PICK_BEST_SERVICE_NAMESPACE": "false"},
    ),
)


class Istiod(NamedTuple):
    """A running istiod: its cleartext port for sidecars, and their version."""

    port: int
    version: str


def service(name: str, port: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"selector": {"app": name}, "ports": [{"name": "http", "port": port}]},
    }


def pod(name: str) -> dict[str, Any]:
    container = {"name": "app", "image": "registry.example/app"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{name}-0", "namespace": "shop", "labels": {"app": name}},
        "spec": {"containers": [container]},
    }


def rendered() -> list[dict]:
    command = [
        program("helm"),
        "template",
        "spillway",
        str(CHART),
        "--namespace",
        "spillway",
        "-f",
        str(VALUES),
    ]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [one for one in yaml.safe_load_all(text) if one and "istio.io" in one["apiVersion"]]


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: release.name)
def release(request: pytest.FixtureRequest) -> Release:
    return request.param


@pytest.fixture(scope="module")
def mesh(make_region: Callable[[str], Region], release: Release) -> Region:
    """A cluster with Istio's definitions, an application, and the chart's objects for Istio.

    The API server accepts all of them.
    """
    region = make_region("istio-" + release.name.replace(".", "-"))
    for namespace in ("istio-system", "shop"):
        region.kubectl("create", "namespace", namespace)
    region.define_istio(release.program)
    region.kubectl("wait", "--for=create", "serviceaccount/default", "-n", "shop", "--timeout=60s")
    objects = [service(*one) for one in SERVICES.items()] + [pod(name) for name in SERVICES]
    objects += [VIRTUAL_SERVICE, *rendered()]
    manifest = region.folder / "mesh.yaml"
    manifest.write_text(yaml.safe_dump_all(objects))
    region.kubectl("apply", "--server-side", "-f", str(manifest))
    return region


@pytest.fixture(scope="module")
def istiod(mesh: Region, release: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Istiod]:
    folder, port, http, monitoring = tmp_path_factory.mktemp("istiod"), free_port(), free_port(), free_port()
    settings = {"rootNamespace": "istio-system", "extensionProviders": [], "defaultProviders": {}}
    (folder / "mesh.yaml").write_text(yaml.safe_dump(settings))
    command = [program(release.program), "discovery", "--kubeconfig", str(mesh.kubeconfig)]
    command += [
        "--meshConfig",
        str(folder / "mesh.yaml"),
        "--namespace",
        "istio-system",
        "--registries",
        "Kubernetes",
    ]
    command += ["--grpcAddr", f"127.0.0.1:{port}", "--httpAddr", f"127.0.0.1:{http}", "--secureGRPCAddr", ""]
    command += ["--httpsAddr", "", "--monitoringAddr", f"127.0.0.1:{monitoring}", "--ctrlz_port", "0"]
    environment = {
        "POD_NAME": "istiod-0", "POD_NAMESPACE": "istio-system", "ENABLE_CA_SERVER": "false",
        "VALIDATION_WEBHOOK_CONFIG_NAME": "", "INJECTION_WEBHOOK_CONFIG_NAME": "",
        **WITHOUT_OWN_FILTERS, **release.environment,
    }  # fmt: skip

    def ready() -> bool:
        return answers(http, b"GET /ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b"HTTP/1.1 200")

    with running(Server(f"127.0.0.1:{port}", command, folder / "istiod.log", ready, environment)):
        yield Istiod(port, release.version)


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
        states = {one["name"]: one for one in self.resources("dynamic_listeners")}
        assert not [one for one in states.values() if "error_state" in one], states
        return {
            name: (one.get("active_state") or one["warming_state"])["listener"]
            for name, one in states.items()
        }

    def clusters(self) -> dict[str, dict]:
        found = [*self.resources("dynamic_active_clusters"), *self.resources("dynamic_warming_clusters")]
        return {one["cluster"]["name"]: one["cluster"] for one in found}

    def routes(self) -> dict[str, dict]:
        """Virtual hosts of each route configuration, by its name."""
        found = self.resources("dynamic_route_configs")
        return {
            one["route_config"]["name"]: {host["name"]: host for host in one["route_config"]["virtual_hosts"]}
            for one in found
        }


def agent_secrets(port: int, folder: Path) -> Server:
    tls = tls_files(folder / "tls")
    command = [sys.executable, str(Path(__file__).with_name("agent_secrets.py")), str(port)]
    command += [str(one) for one in (tls.ca, tls.certificate, tls.key)]

    def listens() -> bool:
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", port)) == 0

    return Server(f"127.0.0.1:{port}", command, folder / "agent.log", listens)


@pytest.fixture(scope="module")
def sidecar(mesh: Region, istiod: Istiod, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """The sidecar of gate. The values name gate, so its calls use the relay's routes."""
    with sidecar_of("gate", mesh, istiod, tmp_path_factory.mktemp("gate")) as one:
        yield one


@contextmanager
def sidecar_of(name: str, mesh: Region, istiod: Istiod, folder: Path) -> Iterator[Sidecar]:
    def address() -> str:
        return mesh.kubectl("get", "pod", f"{name}-0", "-n", "shop", "-o", "jsonpath={.status.podIP}")

    eventually(address, f"{name}'s pod has an address")
    admin, agent = free_port(), free_port()
    (folder / "envoy.json").write_text(json.dumps(bootstrap(name, address(), istiod, agent, admin)))
    command = [os.environ.get("SPILLWAY_ENVOY", str(ENVOY)), "-c", str(folder / "envoy.json")]
    command += ["--disable-hot-restart", "--concurrency", "1", "-l", "warning"]
    one = Sidecar(admin)

    def ready() -> bool:
        return answers(admin, b"GET /server_info HTTP/1.0\r\n\r\n", b"HTTP/1")

    with (
        running(agent_secrets(agent, folder)),
        running(Server(f"127.0.0.1:{admin}", command, folder / "envoy.log", ready)),
    ):
        eventually(lambda: "0.0.0.0_8080" in one.listeners(), "istiod has told the listeners")
        yield one


def managers(listener: dict) -> list[dict]:
    chains = [*listener.get("filter_chains", []), *filter(None, [listener.get("default_filter_chain")])]
    filters = [one["typed_config"] for chain in chains for one in chain["filters"] if "typed_config" in one]
    return [one for one in filters if one["@type"].endswith(_MANAGER)]


def test_envoy_refuses_nothing_of_it(sidecar: Sidecar):
    """Envoy accepts every listener and cluster that istiod builds with our patches."""
    stats = sidecar.get("/stats?filter=update_(rejected|success)$").text
    counts = dict(line.rsplit(": ", 1) for line in stats.splitlines())
    for kind in ("listener_manager.lds", "cluster_manager.cds"):
        assert (counts[f"{kind}.update_rejected"], counts[f"{kind}.update_success"] != "0") == ("0", True)


def test_only_the_listener_of_ours_asks_the_relay(sidecar: Sidecar):
    """The listeners of ports keep Istio's routes, which are patched. Ours has the relay's."""
    sources = {
        name: {
            (one["rds"]["route_config_name"], "spillway-xds" in json.dumps(one["rds"]["config_source"]))
            for one in managers(listener)
            if "rds" in one
        }
        for name, listener in sidecar.listeners().items()
    }
    assert sources.pop("spillway-outbound") == {("spillway-outbound", True)}
    assert sources.pop("spillway-ready") == {("spillway-ready", True)}
    assert sources["0.0.0.0_8080"] == {("8080", False)}
    assert not any(asks for found in sources.values() for _, asks in found)


def test_a_destination_is_called_by_every_name_and_keeps_its_virtual_service(sidecar: Sidecar):
    """istiod's own host has all names, and its routes lead to the relay's with their old timeout.

    Its direct responses, other services and unknown hosts are unchanged.
    """
    eventually(lambda: "8080" in sidecar.routes(), "routes of 8080")
    hosts = sidecar.routes()["8080"]
    host = hosts[f"{HOST}:8080"]
    names = ("shop", "shop.shop", "shop.shop.svc", HOST)
    assert set(names) <= set(host["domains"])  # Envoy ignores the port in the comparison
    gone, rest = host["routes"]
    assert gone["direct_response"]["status"] == 410
    assert (rest["route"]["cluster"], rest["route"]["timeout"]) == ("spillway|shop", "3s")
    assert rest["request_headers_to_add"][-1]["header"] == {"key": "x-spillway-service", "value": "shop"}
    assert all(
        "spillway" not in json.dumps(other) for name, other in hosts.items() if not name.startswith("shop.")
    )
    assert hosts["allow_any"]["routes"][0]["route"]["cluster"] == "PassthroughCluster"


def test_a_workload_that_is_not_named_is_left_alone(
    mesh: Region, istiod: Istiod, tmp_path_factory: pytest.TempPathFactory
):
    """The first step covers one workload.

    Other sidecars only get the cluster of the collector.
    """
    with sidecar_of("ledger", mesh, istiod, tmp_path_factory.mktemp("ledger")) as ledger:
        eventually(lambda: "8080" in ledger.routes(), "routes of 8080")
        assert "spillway" not in json.dumps(ledger.routes())
        assert {name for name in ledger.clusters() if "spillway" in name} == {"spillway-collector"}
        assert not any(name.startswith("spillway") for name in ledger.listeners())


def test_destinations_and_servers_are_there(sidecar: Sidecar):
    """Relay, collector and every destination of the relay's routes are clusters of the sidecar."""
    filters = [one["spec"]["configPatches"] for one in rendered() if one["kind"] == "EnvoyFilter"]
    patches = [patch for patches in filters for patch in patches]
    wanted = {one["patch"]["value"]["name"] for one in patches if one["applyTo"] == "CLUSTER"}
    assert {"spillway-xds", "spillway-collector"} < wanted and len(wanted) == 7
    assert wanted <= set(sidecar.clusters())


def test_the_filter_is_beside_the_relays_routes_and_not_before_them(sidecar: Sidecar):
    """The listener asks for two filter names, and istiod answers the one of its own listeners.

    The route that leads to our listener disables exactly that name.
    """
    [manager] = managers(sidecar.listeners()["spillway-outbound"])
    ours = [one["name"] for one in manager["http_filters"] if "config_discovery" in one]
    [istios] = {
        one["name"]
        for manager in managers(sidecar.listeners()["0.0.0.0_8080"])
        for one in manager["http_filters"]
        if "shop.spillway-gate-outbound" in one["name"]
    }
    assert istios in ours
    eventually(lambda: "8080" in sidecar.routes(), "routes of 8080")
    [_, rest] = sidecar.routes()["8080"][f"{HOST}:8080"]["routes"]
    assert rest["typed_per_filter_config"][istios]["disabled"] is True


@pytest.mark.parametrize(
    ("listener", "side"),
    [("0.0.0.0_8080", "outbound"), ("0.0.0.0_9090", "outbound"), ("virtualInbound", "inbound")],
)
def test_the_filter_comes_after_every_other_extension_in_its_direction(
    sidecar: Sidecar, listener: str, side: str
):
    """Each side of the pod has only its own plugin.

    After it come only those of Istio's own filters that are always there.
    """
    of_ours = set()
    for manager in managers(sidecar.listeners()[listener]):
        names = [one["name"] for one in manager["http_filters"]]
        ours = [name for name in names if "spillway" in name]
        for name in ours:
            assert names[names.index(name) + 1 :] == BEHIND
        of_ours |= {plugin for plugin in PLUGINS for name in ours if f"shop.{plugin}" in name}
    assert of_ours == {f"spillway-gate-{side}"}
