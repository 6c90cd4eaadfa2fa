"""infra/helm/spillway-cluster as helm renders it: valid objects, confined pods, network rules."""

import re
from pathlib import Path

import charts
import cluster_chart
import pytest
import yaml
from cluster_chart import CHART, CHARTS, EVERYTHING, ISTIO, REQUIRED, find, helm, pods, render

pytestmark = [pytest.mark.component, pytest.mark.usefixtures("chart_tools")]


@pytest.fixture(scope="module")
def everything() -> list[dict]:
    return render(EVERYTHING)


@pytest.mark.parametrize("values", [REQUIRED, EVERYTHING], ids=["required", "everything"])
def test_helm_finds_nothing_to_complain_of(values: dict):
    """`helm lint --strict` passes with the least values and with all features."""
    done = helm("lint", "--strict", str(CHART), values=values)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("values", [REQUIRED, EVERYTHING, ISTIO], ids=["required", "everything", "istio"])
def test_the_api_server_would_take_it(values: dict):
    """Every object has exactly the keys and types that the servers know.

    These are the pinned API server, Prometheus' operator, cert-manager and Istio.
    """
    objects = render(values)
    charts.conform(objects)
    assert charts.insecure(objects) == []
    assert charts.adrift(objects) == []


def test_the_example_would_be_taken():
    """The application that uses the library is valid too, and its pod is as confined as ours."""
    values = {"cluster": "west", "image": "cart:1", "envoyImage": "spillway-envoy:1"}
    objects = render(values, CHARTS / "examples/cart", "shop")
    charts.conform(objects)
    assert charts.insecure(objects) == []


def test_alerts_are_those_of_the_folder(everything: list[dict]):
    """The PrometheusRule is a literal copy of infra/alerts/cluster.yaml.

    Metrics carry the cluster's name.
    """
    rule = find(everything, "PrometheusRule", "spillway-cluster")
    assert rule["spec"] == yaml.safe_load((cluster_chart.ROOT / "infra/alerts/cluster.yaml").read_text())
    for monitor in (o for o in everything if o["kind"] == "ServiceMonitor"):
        (endpoint,) = monitor["spec"]["endpoints"]
        assert endpoint["relabelings"] == [
            {"action": "replace", "targetLabel": "cluster", "replacement": "west"},
            # the Service's label; metrics have a label of that name
            {"action": "labeldrop", "regex": "service"},
        ]


def test_the_package_is_whole(everything: list[dict], tmp_path: Path):
    """The packaged chart renders the same outside the repository, without its symbolic links."""
    done = helm("package", str(CHART), "--destination", str(tmp_path))
    assert done.returncode == 0, done.stderr
    (packaged,) = tmp_path.glob("*.tgz")
    assert render(EVERYTHING, packaged) == everything


def test_pods_are_confined(everything: list[dict]):
    """No pod runs as root, writes to its image, gains privileges, or mounts an unused token."""
    found = pods(everything)
    assert set(found) == {"spillway-relay", "spillway-collector", "spillway-agent"}
    for name, pod in found.items():
        assert pod["securityContext"]["runAsNonRoot"], name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in pod["containers"]:
            confined = container["securityContext"]
            assert confined["readOnlyRootFilesystem"] and not confined["allowPrivilegeEscalation"], name
            assert confined["capabilities"] == {"drop": ["ALL"]}, name
            assert container["resources"]["requests"] and container["resources"]["limits"]["memory"], name
            assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container), name
            assert not container["image"].endswith(":latest"), name
    assert not found["spillway-collector"]["automountServiceAccountToken"]
    assert not pods(render(REQUIRED))["spillway-relay"]["automountServiceAccountToken"]


def test_nothing_makes_or_holds_a_secret(everything: list[dict]):
    """The chart refers to Secrets and makes none.

    No variable that is named like a password or key contains one.
    """
    assert not [o for o in everything if o["kind"] == "Secret"]
    for pod in pods(everything).values():
        for variable in pod["containers"][0]["env"]:
            if re.search("PASSWORD|NATS_URL|SASL_USER", variable["name"]):
                assert "valueFrom" in variable or variable["value"].startswith("/etc/"), variable


def test_the_relay_may_read_endpointslices_and_nothing_else(everything: list[dict]):
    """The relay's rights are those with which its own tests run it, once per namespace."""
    (allowed,) = [
        document["rules"]
        for document in yaml.safe_load_all(
            (cluster_chart.ROOT / "rule-publisher/relay/kubernetes/rbac.yaml").read_text()
        )
        if document["kind"] == "Role"
    ]
    roles = [o for o in everything if o["kind"] == "Role"]
    assert {role["metadata"]["namespace"] for role in roles} == {"shop", "pay"}
    assert all(role["rules"] == allowed for role in roles)
    (agent,) = [o for o in everything if o["kind"] == "ClusterRole"]
    assert agent["rules"] == [
        {"apiGroups": [""], "resources": ["nodes/stats", "nodes/pods"], "verbs": ["get"]}
    ]


def test_what_is_not_said_is_denied(everything: list[dict]):
    """Every pod is subject to the default policy, and only these ports are open beyond it."""
    policies = {o["metadata"]["name"]: o["spec"] for o in everything if o["kind"] == "NetworkPolicy"}
    default = policies["spillway-cluster-default-deny"]
    assert default["policyTypes"] == ["Ingress", "Egress"] and "ingress" not in default
    chosen = default["podSelector"]["matchLabels"].items()
    for workload in everything:
        if workload["metadata"]["name"] in pods(everything) and workload["kind"].endswith("Set"):
            assert chosen <= workload["spec"]["template"]["metadata"]["labels"].items()

    def ports(name: str, way: str) -> list[int]:
        return sorted(port["port"] for rule in policies[name][way] for port in rule["ports"])

    assert ports("spillway-relay", "ingress") == [18000, 18001]
    assert ports("spillway-relay", "egress") == [443, 4222, 6443]
    assert ports("spillway-collector", "ingress") == [4317, 4318, 8888]
    assert ports("spillway-collector", "egress") == [9093, 9094]
    assert ports("spillway-agent", "egress") == [4317, 10250]


def test_selectors_find_their_pods(everything: list[dict]):
    """Every Service, budget, policy and autoscaler refers to pods or workloads of the chart."""
    sets = [o for o in everything if o["kind"] in {"StatefulSet", "DaemonSet"}]
    labels = [o["spec"]["template"]["metadata"]["labels"] for o in sets]
    for o in everything:
        spec = o.get("spec", {})
        selector = {"Service": spec.get("selector"), "PodDisruptionBudget": spec.get("selector", {})}.get(
            o["kind"]
        )
        if selector is not None:
            wanted = selector.get("matchLabels", selector)
            assert [found for found in labels if wanted.items() <= found.items()], o["metadata"]["name"]
        if o["kind"] == "HorizontalPodAutoscaler":
            assert find(everything, "StatefulSet", spec["scaleTargetRef"]["name"])
            assert "replicas" not in find(everything, "StatefulSet", "spillway-collector")["spec"]
        if o["kind"] == "ServiceMonitor":
            wanted = spec["selector"]["matchLabels"].items()
            (service,) = [
                s for s in everything if s["kind"] == "Service" and wanted <= s["metadata"]["labels"].items()
            ]
            names = {port["name"] for port in service["spec"]["ports"]}
            assert spec["endpoints"][0]["port"] in names


def test_new_credentials_roll_the_pods(everything: list[dict]):
    """Every pod has an annotation with the hash of the environment's secrets."""
    for name in ("spillway-relay", "spillway-collector"):
        template = find(everything, "StatefulSet", name)["spec"]["template"]
        assert template["metadata"]["annotations"]["spillway.dev/credentials-revision"] == "abc"


def test_a_certificate_names_its_cluster_and_service(everything: list[dict]):
    """cert-manager issues the identity that the relay requires of the pod's Envoy.

    It writes it into the Secret that the pod mounts.
    """
    certificate = find(everything, "Certificate", "spillway-envoy-cart")["spec"]
    (relay,) = pods(everything)["spillway-relay"]["containers"]
    pattern = next(v["value"] for v in relay["env"] if v["name"] == "SPILLWAY_XDS_IDENTITY")
    assert certificate["uris"] == [pattern.format(cluster="west", service="cart")]
    example = render(
        {"cluster": "west", "image": "c:1", "envoyImage": "e:1"}, CHARTS / "examples/cart", "shop"
    )
    volumes = {v["name"]: v for v in pods(example)["cart"]["volumes"]}
    assert volumes["spillway-tls"]["secret"]["secretName"] == certificate["secretName"]
    assert find(everything, "ConfigMap", volumes["spillway-envoy"]["configMap"]["name"])
