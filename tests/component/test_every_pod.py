"""Every pod of both charts with all features on.

Pods come from workloads, jobs, tests, and operators that act on custom resources.
"""

import copy
from collections.abc import Iterator
from typing import Any

import charts
import cluster_chart
import pytest
import yaml
from spillway_lab.testing.servers import ROOT

pytestmark = pytest.mark.component
SETTINGS: dict[str, Any] = {
    "commonLabels": {"cost": "routing"},
    "podLabels": {"team": "a"},
    "serviceAccountAnnotations": {"iam.example/role": "r"},
}
GLOBAL: dict[str, Any] = {
    "image": {"registry": "registry.example/spillway"},
    "kafka": {"clusters": ["west"]},
    "clickhouse": {"variant": "replicated"},
    "monitoring": {"serviceMonitors": True, "prometheusRules": True, "dashboards": True},
    "streams": {"autoscaling": {"enabled": True, "prometheus": "http://prometheus.monitoring:9090"}},
    "bundled": {server: {"enabled": True} for server in ("kafka", "clickhouse", "nats", "redis")},
}
_ISTIO = yaml.safe_load(
    (ROOT / "rule-publisher/relay/featuretests/envoy/testdata/istio/values.yaml").read_text()
)["istio"]
ALL = {"spillway-global": GLOBAL, "spillway-cluster": cluster_chart.EVERYTHING | {"istio": _ISTIO}}
OPERATED = {"ClickHouseInstallation", "ClickHouseKeeperInstallation", "Kafka", "KafkaNodePool"}
RECOMMENDED = {
    f"app.kubernetes.io/{key}"
    for key in ("name", "instance", "component", "version", "managed-by", "part-of")
}


@pytest.fixture(scope="module", params=ALL)
def objects(request: pytest.FixtureRequest) -> list[dict]:
    charts.build()
    return charts.render(ROOT / "infra/helm" / request.param, ALL[request.param] | SETTINGS)


def test_all_kinds_of_pods_are_looked_at(objects: list[dict]):
    """The test sees pods of every workload and of every resource that an operator acts on."""
    seen = {who for who, _ in charts.every_pod(objects)}
    makers = {charts.name(o) for o in objects if o["kind"] in charts.WORKLOADS | OPERATED | {"Pod"}}
    assert seen == makers and len(seen) >= 3


def test_every_pod_has_the_labels_of_the_chart_and_of_its_user(objects: list[dict]):
    """The labels are app.kubernetes.io/..., `commonLabels` and `podLabels`.

    Strimzi sets app.kubernetes.io/... on its pods itself.
    """
    for who, template in charts.every_pod(objects):
        labels = template["metadata"]["labels"]
        assert labels.items() >= (SETTINGS["commonLabels"] | SETTINGS["podLabels"]).items(), who
        assert charts.by_strimzi(template) or set(labels) >= RECOMMENDED, who


def test_every_container_is_confined(objects: list[dict]):
    """Containers have no root user, no writable image, no privileges and no capabilities.

    They use the runtime's seccomp profile. This includes init containers and sidecars.
    """
    found = [
        problem for who, pod in charts.every_pod(objects) for problem in charts.unconfined(who, pod["spec"])
    ]
    assert found == []
    for who, template in charts.every_pod(objects):
        assert template["spec"]["containers"], who


def granted(objects: list[dict]) -> set[str]:
    """Returns the accounts that have rights at the API server."""
    bindings = [o for o in objects if o["kind"] in ("RoleBinding", "ClusterRoleBinding")]
    return {subject["name"] for binding in bindings for subject in binding["subjects"]}


def test_every_pod_runs_as_an_account_of_its_own(objects: list[dict]):
    """The chart makes the account, with the user's annotations.

    A pod has a token only if its account has rights.
    """
    accounts = charts.of(objects, "ServiceAccount")
    used = set()
    for who, template in charts.every_pod(objects):
        if charts.by_strimzi(template):
            continue
        spec = template["spec"]
        used.add(spec["serviceAccountName"])
        account = accounts[spec["serviceAccountName"]]
        assert account["metadata"]["annotations"].items() >= SETTINGS["serviceAccountAnnotations"].items(), (
            who
        )
        assert account["automountServiceAccountToken"] is False, who
        assert spec["automountServiceAccountToken"] is (spec["serviceAccountName"] in granted(objects)), who
    assert used == set(accounts)
    for annotations in annotations_of_strimzi(objects):
        assert annotations == SETTINGS["serviceAccountAnnotations"]


def annotations_of_strimzi(objects: list[dict]) -> Iterator[dict]:
    """Yields annotations of the accounts that Strimzi makes.

    They are for brokers, the user operator and the exporter.
    """
    for kafka in charts.of(objects, "Kafka").values():
        for part in (kafka["spec"]["kafka"], kafka["spec"]["entityOperator"], kafka["spec"]["kafkaExporter"]):
            yield part["template"]["serviceAccount"]["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("chart", "workload", "path"),
    [
        ("spillway-global", "spillway-papa", "papa"),
        ("spillway-global", "spillway-curves", "streams.curves"),
        ("spillway-global", "spillway-topics", "jobs"),
        ("spillway-global", "spillway-nats", "bundled.nats"),
        ("spillway-global", "spillway-redis", "bundled.redis"),
        ("spillway-global", "spillway-clickhouse", "bundled.clickhouse"),
        ("spillway-cluster", "spillway-collector", "collector"),
    ],
)
def test_an_account_has_annotations_of_its_own_workload(chart: str, workload: str, path: str):
    """These annotations override those of all accounts and are on no other account."""
    values = copy.deepcopy(ALL[chart] | SETTINGS)
    place = values
    for part in path.split("."):
        place = place.setdefault(part, {})
    place["serviceAccountAnnotations"] = {"iam.example/role": "own", "more": "1"}
    accounts = charts.of(charts.render(ROOT / "infra/helm" / chart, values), "ServiceAccount")
    annotated = {n for n, a in accounts.items() if a["metadata"]["annotations"].get("more") == "1"}
    expected = {"spillway-topics", "spillway-migrate", "spillway-test"} if path == "jobs" else {workload}
    assert annotated == expected
    assert accounts[workload]["metadata"]["annotations"]["iam.example/role"] == "own"
