"""The chart's objects for Istio, as real istiods process them.

A real API server validates them against Istio's own definitions. A real Envoy, which asks istiod as
a sidecar does, shows the result. Routes that then come from the relay are tested by
rule-publisher/relay/featuretests/envoy/istio_test.go.
"""

import json
from collections.abc import Callable, Iterator

import pytest
import yaml
from istio_mesh import RELEASES, SERVICES, VIRTUAL_SERVICE, Release, pod, rendered, service
from istio_sidecar import Istiod, Sidecar, managers, sidecar_of
from kube_region import Region, program
from spillway_lab.testing.servers import Server, answers, free_port, running
from spillway_lab.testing.waiting import eventually

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(600)]
# Istio's own filters are not in the standard build of Envoy, which replaces Istio's build here.
WITHOUT_OWN_FILTERS = {"PILOT_ENABLE_METADATA_EXCHANGE": "false", "PILOT_ENABLE_ALPN_FILTER": "false"}
PLUGINS = ("spillway-gate-outbound", "spillway-gate-inbound")
BEHIND = [f"envoy.filters.http.{name}" for name in ("grpc_stats", "fault", "cors", "router")]
HOST = "shop.shop.svc.cluster.local"


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
    objects = [service(*entry) for entry in SERVICES.items()] + [pod(name) for name in SERVICES]
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


@pytest.fixture(scope="module")
def sidecar(mesh: Region, istiod: Istiod, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """The sidecar of gate. The values name gate, so its calls use the relay's routes."""
    with sidecar_of("gate", mesh, istiod, tmp_path_factory.mktemp("gate")) as started:
        yield started


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
            (
                manager["rds"]["route_config_name"],
                "spillway-xds" in json.dumps(manager["rds"]["config_source"]),
            )
            for manager in managers(listener)
            if "rds" in manager
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
    filters = [
        document["spec"]["configPatches"] for document in rendered() if document["kind"] == "EnvoyFilter"
    ]
    patches = [patch for patches in filters for patch in patches]
    wanted = {patch["patch"]["value"]["name"] for patch in patches if patch["applyTo"] == "CLUSTER"}
    assert {"spillway-xds", "spillway-collector"} < wanted and len(wanted) == 7
    assert wanted <= set(sidecar.clusters())


def test_the_filter_is_beside_the_relays_routes_and_not_before_them(sidecar: Sidecar):
    """The listener asks for two filter names, and istiod answers the one of its own listeners.

    The route that leads to our listener disables exactly that name.
    """
    [manager] = managers(sidecar.listeners()["spillway-outbound"])
    ours = [entry["name"] for entry in manager["http_filters"] if "config_discovery" in entry]
    [istios] = {
        entry["name"]
        for manager in managers(sidecar.listeners()["0.0.0.0_8080"])
        for entry in manager["http_filters"]
        if "shop.spillway-gate-outbound" in entry["name"]
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
        names = [entry["name"] for entry in manager["http_filters"]]
        ours = [name for name in names if "spillway" in name]
        for name in ours:
            assert names[names.index(name) + 1 :] == BEHIND
        of_ours |= {plugin for plugin in PLUGINS for name in ours if f"shop.{plugin}" in name}
    assert of_ours == {f"spillway-gate-{side}"}
