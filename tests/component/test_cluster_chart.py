"""infra/helm/spillway-cluster as helm renders it: properties of pods, network rules, refusals."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import charts
import cluster_chart
import pytest
import yaml
from cluster_chart import CART, CHARTS, EVERYTHING, REQUIRED, helm, one, pods, render

pytestmark = pytest.mark.component
CHART = CHARTS / "spillway-cluster"
ISTIO = yaml.safe_load(
    (cluster_chart.ROOT / "rule-publisher/relay/featuretests/envoy/testdata/istio/values.yaml").read_text()
)


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    charts.build()


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
    rule = one(everything, "PrometheusRule", "spillway-cluster")
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


def without(path: str) -> dict:
    values: dict[str, Any] = copy.deepcopy(REQUIRED)
    *parents, last = path.split(".")
    place = values
    for name in parents:
        place = place[name]
    del place[last]
    return values


@pytest.mark.parametrize("path", ["cluster.name", "image.registry", "collector.kafka.brokers"])
def test_what_has_no_default_is_asked_for(path: str):
    """Nothing is rendered without the cluster's name, the registry or the brokers.

    The message names the missing value.
    """
    done = helm("template", "release", str(CHART), values=without(path))
    assert done.returncode != 0
    assert "/" + path.replace(".", "/") in done.stderr


@pytest.mark.parametrize(
    "wrong",
    [
        {"cluster": {"name": "true"}},
        {"relay": {"replica": 3}},
        {"collector": {"kafka": {"sasl": "GSSAPI"}}},
        {"collector": {"kafka": {"sasl": "OAUTHBEARER"}}},
        {"collector": {"kafka": {"sasl": "OAUTHBEARER", "oauth": {"tokenUrl": "http://login.example"}}}},
        {"collector": {"kafka": {"oauth": {"tokenUrl": "https://login.example"}}}},
        {"istio": {"filter": {"sha256": "abc"}}},
        {"istio": {"filter": {"url": "file:///filter.wasm"}}},
        {"istio": {"routes": {"workloads": [{"service": "gate"}]}}},
        {"sidecar": {"applications": [{"service": "cart", "namespace": "shop"}]}},
        {"sampling": {"ratio": 1.1}},
        {"sampling": {"ratio": -0.1}},
        {"sampling": {"ratio": 0.0000001}},
        {"sampling": {"ratio": "0.5"}},
        {"sampling": {"namespaces": {"shop": 2}}},
        {"unknown": 1},
    ],
    ids=str,
)
def test_wrong_values_are_refused(wrong: dict):
    """Misspelt keys are refused, and so are names that YAML reads as another type.

    So is every value that a program would refuse later.
    """
    for key in REQUIRED:
        wrong = {key: REQUIRED[key] | wrong.get(key, {})} | {k: v for k, v in wrong.items() if k != key}
    if "kafka" in wrong["collector"]:
        wrong["collector"]["kafka"] = REQUIRED["collector"]["kafka"] | wrong["collector"]["kafka"]
    done = helm("template", "release", str(CHART), values=wrong)
    assert done.returncode != 0
    assert "schema" in done.stderr


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


def test_a_managed_server_is_trusted_by_what_is_said_for_it():
    """By default the authority is ca.crt.

    Values can name another key of the ConfigMap, or the images' root certificates, which need no
    ConfigMap.
    """
    for trust, wanted in (
        ({}, ("/etc/spillway-secrets/trust/ca.crt", "/etc/spillway/trust/ca.crt")),
        ({"kafka": "system", "nats": "nats.crt"}, ("system", "/etc/spillway/trust/nats.crt")),
    ):
        objects = render(REQUIRED | {"trust": trust})
        for name, variable, authority in zip(
            ("spillway-collector", "spillway-relay"),
            ("SPILLWAY_KAFKA_TLS_CA", "SPILLWAY_NATS_CA"),
            wanted,
            strict=True,
        ):
            spec = one(objects, "StatefulSet", name)["spec"]["template"]["spec"]
            assert {"name": variable, "value": authority} in spec["containers"][0]["env"]
            [volume] = [v for v in spec["volumes"] if v["name"] == "trust"]
            assert volume["configMap"]["optional"] is (authority == "system")


def test_the_collector_is_told_of_the_token_endpoint_and_may_reach_it():
    """With OAUTHBEARER the endpoint is checked with the system's roots by default.

    Values set its authorities, ports and addresses.
    """
    oauth = {"sasl": "OAUTHBEARER", "oauth": {"tokenUrl": "https://login.example/token", "scope": "kafka"}}
    values = REQUIRED | {"collector": {"kafka": REQUIRED["collector"]["kafka"] | oauth}}
    kafka = {"ports": [{"port": 9093}, {"port": 9094}]}
    said = {"kafkaTokenPorts": [8443], "kafkaTokenCIDRs": ["203.0.113.0/24"]}
    to = [{"ipBlock": {"cidr": "203.0.113.0/24"}}]
    for trust, authority, policy, egress in (
        ({"kafka": "system"}, "system", {}, {"ports": [{"port": 443}]}),
        ({"kafka": "system", "kafkaToken": "login.crt"}, "/etc/spillway-secrets/trust/login.crt", said,
         {"ports": [{"port": 8443}], "to": to}),
    ):  # fmt: skip
        objects = render(values | {"trust": trust, "networkPolicy": policy})
        spec = one(objects, "StatefulSet", "spillway-collector")["spec"]["template"]["spec"]
        told = {v["name"]: v.get("value") for v in spec["containers"][0]["env"]}
        assert told["SPILLWAY_KAFKA_SASL_TOKEN_URL"] == "https://login.example/token"
        assert told["SPILLWAY_KAFKA_SASL_TOKEN_CA"] == authority
        assert told["SPILLWAY_KAFKA_SASL_SCOPE"] == "kafka"
        [volume] = [v for v in spec["volumes"] if v["name"] == "trust"]
        assert volume["configMap"]["optional"] is (authority == "system")
        assert one(objects, "NetworkPolicy", "spillway-collector")["spec"]["egress"] == [kafka, egress]


def test_the_collectors_ports_to_kafka_may_be_said():
    """The values name the ports of brokers that advertise others than those of their addresses."""
    [policy] = [
        o["spec"]
        for o in render(REQUIRED | {"networkPolicy": {"kafkaPorts": [9194, 9092]}})
        if (o["kind"], o["metadata"]["name"]) == ("NetworkPolicy", "spillway-collector")
    ]
    assert policy["egress"] == [{"ports": [{"port": 9194}, {"port": 9092}]}]


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
            assert one(everything, "StatefulSet", spec["scaleTargetRef"]["name"])
            assert "replicas" not in one(everything, "StatefulSet", "spillway-collector")["spec"]
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
        template = one(everything, "StatefulSet", name)["spec"]["template"]
        assert template["metadata"]["annotations"]["spillway.dev/credentials-revision"] == "abc"


def test_a_certificate_names_its_cluster_and_service(everything: list[dict]):
    """cert-manager issues the identity that the relay requires of the pod's Envoy.

    It writes it into the Secret that the pod mounts.
    """
    certificate = one(everything, "Certificate", "spillway-envoy-cart")["spec"]
    (relay,) = pods(everything)["spillway-relay"]["containers"]
    pattern = next(v["value"] for v in relay["env"] if v["name"] == "SPILLWAY_XDS_IDENTITY")
    assert certificate["uris"] == [pattern.format(cluster="west", service="cart")]
    example = render(
        {"cluster": "west", "image": "c:1", "envoyImage": "e:1"}, CHARTS / "examples/cart", "shop"
    )
    volumes = {v["name"]: v for v in pods(example)["cart"]["volumes"]}
    assert volumes["spillway-tls"]["secret"]["secretName"] == certificate["secretName"]
    assert one(everything, "ConfigMap", volumes["spillway-envoy"]["configMap"]["name"])


def sample_ratios(objects: list[dict]) -> dict[str, list[float]]:
    """Returns the sampling ratios that filters get, by service: inbound, then outbound.

    They come from the bootstraps and the WasmPlugins.
    """
    told = [o["spec"]["pluginConfig"] for o in objects if o["kind"] == "WasmPlugin"]
    for config_map in (o for o in objects if o["kind"] == "ConfigMap" and "envoy.yaml" in o["data"]):
        listeners = yaml.safe_load(config_map["data"]["envoy.yaml"])["static_resources"]["listeners"]
        filters = [f for one in listeners for f in http_filters(one) if f["name"] == "spillway-filter"]
        told += [json.loads(f["typed_config"]["config"]["configuration"]["value"]) for f in filters]
    found: dict[str, list[float]] = {}
    for configuration in told:
        found.setdefault(configuration["service"], []).append(configuration["sample_ratio"])
    return found


def http_filters(listener: dict) -> list[dict]:
    return listener["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"]


def sampled(**sampling: object) -> dict:
    """Returns values with one application in each of three namespaces.

    Two have sidecars, and one has the filter in Istio's proxies.
    """
    applications = [CART, CART | {"service": "pay", "namespace": "pay"}]
    values = copy.deepcopy(ISTIO) | {"sidecar": {"applications": applications}, "sampling": sampling}
    values["istio"]["namespaces"] = ["mesh"]
    values["istio"]["routes"]["workloads"] = []
    values["istio"]["filter"]["services"] = [{"service": "gate", "namespace": "mesh", "edge": True}]
    return values


def test_one_value_says_how_many_traces_every_filter_keeps():
    """The value applies to both directions of sidecars and WasmPlugins.

    A namespace's own value overrides it, also 0. Without values every trace is kept.
    """
    assert sample_ratios(render(sampled())) == dict.fromkeys(("cart", "pay", "gate"), [1, 1])
    every = sample_ratios(render(sampled(ratio=0.25)))
    assert every == dict.fromkeys(("cart", "pay", "gate"), [0.25, 0.25])
    one = sample_ratios(render(sampled(ratio=0.000001, namespaces={"shop": 0.5, "mesh": 0})))
    assert one == {"cart": [0.5, 0.5], "pay": [0.000001] * 2, "gate": [0, 0]}


def test_a_namespace_without_a_filter_is_refused_by_name():
    """A misspelt namespace would leave its costs unchanged without any notice."""
    done = helm("template", "release", str(CHART), values=sampled(namespaces={"shpo": 0.5}))
    assert done.returncode != 0
    assert "sampling.namespaces: shpo: no entry of" in done.stderr
    assert "must be one of: mesh, pay, shop" in done.stderr


def leaves(values: dict, prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict) and value and not {"requests", "matchLabels"} & set(value):
            found |= leaves(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


def test_the_readme_tells_every_value_and_its_default():
    """The table has exactly the values of values.yaml, with their defaults."""
    rows = re.findall(r"^\| `([\w.]+)` \| `(.*?)` \|", (CHART / "README.md").read_text(), re.MULTILINE)
    known = leaves(yaml.safe_load((CHART / "values.yaml").read_text()))
    assert dict(rows) == {name: json.dumps(value) for name, value in known.items()}
