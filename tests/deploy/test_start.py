"""Runs docs/start/istio-shadow.md and sidecars-shadow.md as a reader would.

Every command runs in order, in one bash, on real API servers with Istio's and cert-manager's kinds.
Commands that need spans run on the real stack in tests/e2e/test_shadow.py. `python -m pytest -s
tests/deploy/test_start.py` prints the time of each step, which the pages contain.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from kube_region import Region, region_maker
from reader import Reader, write_kubeconfig
from readiness import missing_references, wait_ready
from spillway_lab.testing.documents import FIRST_DAY, blocks
from spillway_lab.testing.secure_kafka import secure_kafka
from spillway_lab.testing.servers import clickhouse_server, redis_server

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(1200)]

NAMES, SERVICES = ("west", "east", "south"), ("gateway", "frontend", "backend")
GLOBAL = "spillway-global"
INJECTION = (
    "--feature-gates=MutatingAdmissionPolicy=true",
    "--runtime-config=admissionregistration.k8s.io/v1beta1=true",
)


def application(service: str) -> list[dict]:
    """Returns a Deployment and a Service like those of users."""
    metadata, labels = {"name": service, "namespace": "shop"}, {"app": service}
    container = {"name": "app", "image": f"registry.example/{service}", "ports": [{"containerPort": 8080}]}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    return [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
         "spec": {"selector": {"matchLabels": labels}, "template": template}},
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata,
         "spec": {"selector": labels, "ports": [{"name": "http", "port": 8080}]}},
    ]  # fmt: skip


def definition(kind: str, plural: str, scope: str) -> dict:
    """Returns an open definition of one of cert-manager's kinds.

    tests/component/test_cluster_chart.py validates the chart's objects against cert-manager's own.
    """
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.cert-manager.io"},
        "spec": {
            "group": "cert-manager.io",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "scope": scope,
            "versions": [version],
        },
    }


@pytest.fixture(scope="module")
def regions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Region]]:
    with region_maker(tmp_path_factory.mktemp("kubernetes")) as make:
        made = {name: make(name, *INJECTION) for name in NAMES}
        for region in made.values():
            for namespace in ("shop", "cert-manager"):
                region.kubectl("create", "namespace", namespace)
            region.apply([
                definition("Certificate", "certificates", "Namespaced"),
                definition("ClusterIssuer", "clusterissuers", "Cluster"),
            ])  # fmt: skip
            region.define_istio()
            root = {"root-cert.pem": (region.folder / "clients.crt").read_text()}
            about = {"name": "istio-ca-root-cert", "namespace": "shop"}
            trust = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": root}
            region.apply([trust, *(document for service in SERVICES for document in application(service))])
        yield made


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """An administrator's access to Kafka, ClickHouse and Redis."""
    folder = tmp_path_factory.mktemp("servers")
    with (
        secure_kafka(folder, []) as kafka,
        clickhouse_server(folder) as clickhouse,
        redis_server(folder) as redis,
    ):
        yield {
            "SPILLWAY_KAFKA": kafka.clear,
            "SPILLWAY_CLICKHOUSE_URL": clickhouse,
            "SPILLWAY_REDIS_URL": redis,
        }


def installed(regions: dict[str, Region]) -> None:
    """Checks that all of Spillway runs in shadow mode and that no application's pod has changed."""
    assert {"deployment/spillway-optimizer", "statefulset/spillway-nats"} <= wait_ready(
        regions["west"], GLOBAL
    )
    assert missing_references(regions["west"], GLOBAL) == []
    guardrails = regions["west"].kubectl(
        "get", "configmap", "spillway-guardrails", "-n", GLOBAL, "-o", "jsonpath={.data.guardrails\\.yaml}"
    )
    assert yaml.safe_load(guardrails)["shadow"] is True
    for region in regions.values():
        assert {"statefulset/spillway-relay", "statefulset/spillway-collector"} <= wait_ready(region)
        assert missing_references(region) == []
        assert region.items("wasmplugin", "shop") == [] and proxies(region) == set()


def proxies(region: Region) -> set[str]:
    """Returns the services whose pods all have Spillway's Envoy."""
    found: dict[str, set[bool]] = {}
    for pod in region.items("pod", "shop"):
        if "deletionTimestamp" not in pod["metadata"]:
            names = {container["name"] for container in pod["spec"].get("initContainers", [])}
            found.setdefault(pod["metadata"]["labels"]["app"], set()).add("spillway-proxy" in names)
    return {service for service, has in found.items() if has == {True}}


def filters(regions: dict[str, Region]) -> None:
    """Checks that both sides of each service have the filter in every cluster.

    Only the gateway is an edge.
    """
    for region in regions.values():
        configs = [plugin["spec"]["pluginConfig"] for plugin in region.items("wasmplugin", "shop")]
        assert len(configs) == 2 * len(SERVICES)
        inbound = {
            config["service"]: config["edge"] for config in configs if config["direction"] == "inbound"
        }
        assert inbound == {service: service == "gateway" for service in SERVICES}
        routes = [item["metadata"]["name"] for item in region.items("envoyfilter", "shop")]
        assert routes and not [name for name in routes if "routes" in name]


def injected(regions: dict[str, Region]) -> None:
    """Checks that pods have Envoy and the files that it reads.

    Callers and calls are directed to it.
    """
    for region in regions.values():
        assert proxies(region) == set(SERVICES)
        assert {f"spillway-envoy-{s}" for s in SERVICES} <= names(region, "configmap", "shop")
        assert {f"spillway-envoy-{s}" for s in SERVICES} == names(region, "certificate", "shop")
        assert "spillway-issuer" in names(region, "secret", "cert-manager")
        ports = [service["spec"]["ports"][0]["targetPort"] for service in region.items("service", "shop")]
        assert ports == [15006] * len(SERVICES)


def names(region: Region, kind: str, namespace: str) -> set[str]:
    return {item["metadata"]["name"] for item in region.items(kind, namespace)}


def removed(regions: dict[str, Region]) -> None:
    """Checks that applications are as before and that nothing of Spillway is left."""
    for region in regions.values():
        assert "namespace/spillway" not in region.kubectl("get", "namespaces", "-o", "name")
        kinds = "clusterroles,clusterrolebindings,mutatingadmissionpolicies,wasmplugins,envoyfilters,secrets,configmaps"
        left = region.kubectl("get", kinds, "-A", "-l", "app.kubernetes.io/part-of=spillway", "-o", "name")
        assert left == "" and proxies(region) == set()
        assert region.kubectl("get", "clusterissuers", "-o", "name") == ""
        ports = [service["spec"]["ports"][0]["targetPort"] for service in region.items("service", "shop")]
        assert ports == [8080] * len(SERVICES)
        for deployment in region.items("deployment", "shop"):
            pod = deployment["spec"]["template"]
            assert set(pod["metadata"]["labels"]) == {"app"} and "env" not in pod["spec"]["containers"][0]


REFUSED = ("2 ./apply plan", "1 python -m spillway_clickhouse.users ")
AFTER = {"4. Check": installed, "7. The way back": removed}
TELEMETRY = {"istio-shadow": filters, "sidecars-shadow": injected}


@pytest.mark.parametrize("page", FIRST_DAY, ids=lambda page: page.stem)
def test_every_command_of_the_page(
    page: Path, regions: dict[str, Region], servers: dict[str, str], tmp_path: Path
) -> None:
    """No command fails, with two exceptions.

    `plan` reports that something would change. The users of ClickHouse cannot be created because
    the engine has none (infra/clickhouse/tests/component/test_users.py).
    """
    after = AFTER | {"5. Telemetry": TELEMETRY[page.stem]}
    write_kubeconfig(tmp_path, list(regions.values()))
    commands = [block for block in blocks(page) if block.language == "sh"]
    with Reader(tmp_path, servers) as reader:
        for number, block in enumerate(commands):
            if not block.needs_spans:
                printed, failed = reader.types(block)
                assert [line for line in failed if not line.startswith(REFUSED)] == [], printed
                assert ("SHOW USERS ON" in printed) == ("spillway_clickhouse.users" in block.text), printed
            steps = {later.step for later in commands[number + 1 :]}
            if block.step in after and block.step not in steps:
                after.pop(block.step)(regions)
        assert reader.variable("SPILLWAY_CLICKHOUSE_URL").startswith("clickhouses://")
        print(reader.table())
    assert after == {}
    assert all(
        config in (tmp_path / "spillway/regions.yaml").read_text()
        for config in ("shadow: true", "cluster_values")
    )
