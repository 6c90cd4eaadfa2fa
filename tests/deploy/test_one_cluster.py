"""The global part inside an application cluster of an Istio mesh.

There is one API server, one map and two namespaces.
"""

import base64
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
import yaml
from cryptography import x509
from example import EXAMPLE, Example, changes
from kube_region import Region
from readiness import missing_references, wait_ready

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(1200)]

GLOBAL, CLUSTER, MESH = "spillway-global", "spillway-west", "shop"
FILTER = f"oci://registry.example/filter@sha256:{'0123456789abcdef' * 4}"


@pytest.fixture(scope="module")
def example(make_region: Callable[[str], Region], tmp_path_factory: pytest.TempPathFactory) -> Example:
    """The map, with bundled NATS and Redis, and Istio's ConfigMap of the mesh's root.

    istiod would create the ConfigMap in the same form.
    """
    map_ = yaml.safe_load((EXAMPLE / "regions.yaml").read_text())
    settings, west = map_["global"], map_["regions"]["west"]
    del settings["servers"]["nats"], settings["servers"]["redis"], settings["server_certificates"]
    settings["values"] = {"bundled": {"nats": {"enabled": True}, "redis": {"enabled": True}}}
    map_["regions"] = {"west": west}
    map_["services"] = {service: {"west": {}} for service in map_["services"]}
    west["istio"] = {
        "route_ports": [8080],
        "callers": ["gateway"],
        "filter": {"url": FILTER, "edges": ["gateway"]},
    }
    example = Example(tmp_path_factory.mktemp("example"), map_)
    region = make_region("only")
    for name in ("global", "west"):
        example.place(name, region)
    region.define_istio()
    root = {"root-cert.pem": (region.folder / "clients.crt").read_text()}
    about = {"name": "istio-ca-root-cert", "namespace": MESH}
    region.apply([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": root}])
    return example


def test_one_namespace_for_both_is_refused(example: Example) -> None:
    """A shared namespace is refused before anything is created. The error shows a valid entry."""
    assert example.run("plan").returncode == 1
    log = " ".join((example.folder / "work/log/global.log").read_text().replace("│", "").split())
    assert "global and regions.west in namespace spillway of context only" in log
    assert "for example `global: {namespace: {name: spillway-global}}`" in log


def test_both_parts_run_in_namespaces_of_their_own(example: Example) -> None:
    """Every workload of both is ready, and every Secret and file that they name exists.

    A second plan is empty.
    """
    example.map["global"]["namespace"] = {"name": GLOBAL, "labels": {"team": "platform"}}
    example.map["regions"]["west"]["namespace"] = {"name": CLUSTER}
    example.apply()
    region = example.regions["west"]
    assert {"deployment/spillway-optimizer", "statefulset/spillway-nats"} <= wait_ready(region, GLOBAL)
    assert {"statefulset/spillway-relay"} <= wait_ready(region, CLUSTER)
    for namespace in (GLOBAL, CLUSTER):
        assert missing_references(region, namespace) == []
    assert example.object("west", "namespace", GLOBAL)["metadata"]["labels"]["team"] == "platform"
    assert "namespace/spillway\n" not in region.kubectl("get", "namespaces", "-o", "name")
    done = example.run("plan")
    assert (done.returncode, changes(done)) == (0, {"global": set(), "west": set()})


def decoded(example: Example, namespace: str, secret: str, key: str) -> bytes:
    return base64.b64decode(example.object("west", "secret", secret, namespace)["data"][key])


def dns_names(pem: bytes) -> list[str]:
    certificate = x509.load_pem_x509_certificate(pem)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return names.value.get_values_for_type(x509.DNSName)


@pytest.mark.parametrize(
    ("namespace", "secret", "key", "server"),
    [
        (CLUSTER, "spillway-relay", "SPILLWAY_NATS_URL", "nats"),
        (GLOBAL, "spillway-publisher", "SPILLWAY_NATS_URL", "nats"),
        (GLOBAL, "spillway-publisher", "SPILLWAY_REDIS_URL", "redis"),
    ],
)
def test_addresses_of_bundled_servers_are_services(
    example: Example, namespace: str, secret: str, key: str, server: str
) -> None:
    """The address in a Secret is a Service of the global namespace with that port.

    The server's certificate has that name.
    """
    address = urlsplit(decoded(example, namespace, secret, key).decode())
    name, of, kind = (address.hostname or "").split(".")
    assert (of, kind) == (GLOBAL, "svc")
    service = example.object("west", "service", name, of)
    assert address.port in [port["port"] for port in service["spec"]["ports"]]
    shown = decoded(example, GLOBAL, f"spillway-{server}-tls", "tls.crt")
    assert address.hostname in dns_names(shown)


def test_sidecars_find_the_relay_in_its_namespace(example: Example) -> None:
    """The relay's certificate has the name that the EnvoyFilter calls.

    The authority in the EnvoyFilter is the relay's own.
    """
    spec = example.object("west", "envoyfilter", "spillway-routes-gateway", MESH)["spec"]
    added = {
        patch["patch"]["value"]["name"]: patch["patch"]["value"]
        for patch in spec["configPatches"]
        if patch["applyTo"] == "CLUSTER"
    }
    [endpoints] = added["spillway-xds"]["load_assignment"]["endpoints"]
    called = endpoints["lb_endpoints"][0]["endpoint"]["address"]["socket_address"]["address"]
    assert called == f"spillway-relay.{CLUSTER}.svc.cluster.local"
    assert called in dns_names(decoded(example, CLUSTER, "spillway-relay-tls", "tls.crt"))
    context = added["spillway-xds"]["transport_socket"]["typed_config"]["common_tls_context"]
    trusted = context["validation_context"]["trusted_ca"]["inline_string"]
    assert trusted.encode() == decoded(example, CLUSTER, "spillway-relay-tls", "ca.crt")
    assert {f"{service}|west" for service in example.map["services"]} < set(added)


def test_relay_and_collector_trust_the_meshs_root(example: Example) -> None:
    """Both trust the root that Istio keeps in the cluster, and the cluster's own authority."""
    files = example.object("west", "configmap", "spillway-mesh-authorities", CLUSTER)["data"]
    found = x509.load_pem_x509_certificates(files["ca.crt"].encode())
    assert [certificate.subject.rfc4514_string() for certificate in found] == [
        "CN=clients",
        "CN=Spillway cluster/west 1",
    ]


def test_the_filter_is_beside_every_service_of_the_map(example: Example) -> None:
    """The filter is on both sides. Only the gateway is an edge."""
    plugins = example.regions["west"].items("wasmplugin", MESH)
    inbound = {
        plugin["spec"]["pluginConfig"]["service"]: plugin["spec"]["pluginConfig"]["edge"]
        for plugin in plugins
        if plugin["spec"]["pluginConfig"]["direction"] == "inbound"
    }
    assert inbound == {"gateway": True, "frontend": False, "backend": False}
    assert len(plugins) == 2 * len(inbound)


def test_a_value_of_the_map_goes_before_what_follows_from_it(example: Example) -> None:
    """The region's `values` replace a list that Terraform computes."""
    services = [{"service": "backend", "namespace": MESH, "edge": False}]
    example.map["regions"]["west"]["values"] = {"istio": {"filter": {"services": services}}}
    example.apply()
    plugins = example.regions["west"].items("wasmplugin", MESH)
    assert {plugin["spec"]["pluginConfig"]["service"] for plugin in plugins} == {"backend"}


def test_destroy_leaves_neither_namespace(example: Example) -> None:
    """Nothing of Spillway is left in the mesh's namespace either."""
    assert example.run("destroy").returncode == 0
    region = example.regions["west"]
    assert "spillway" not in region.kubectl("get", "namespaces", "-o", "name")
    assert region.items("envoyfilter", MESH) == region.items("wasmplugin", MESH) == []
