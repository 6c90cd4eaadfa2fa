"""infra/helm/spillway-global as helm renders it: valid, confined and complete."""

import subprocess
import sys

import charts
import pytest
import yaml
from global_chart import CHART, MONITORED, each_set, references
from spillway_lab.testing.servers import ROOT

pytestmark = [pytest.mark.component, pytest.mark.usefixtures("chart_tools")]

SECRETS = {
    f"spillway-{w}" for w in ("admit", "exclusive", "curves", "graph", "classify", "optimizer", "papa")
}
SECRETS |= {"spillway-publisher", "spillway-migrate", "spillway-topics", "spillway-signing-key"}
SECRETS |= {"spillway-nats-users", "spillway-nats-tls", "spillway-redis-users", "spillway-redis-tls"}
# created outside the chart
CONFIG_MAPS = {"spillway-trust", "spillway-topology", "spillway-ruleset-keys"}


@each_set
def test_helm_and_the_api_server_accept_it(values: dict):
    """helm lint --strict finds nothing.

    Every object is one that Kubernetes, Prometheus' operator or KEDA accepts.
    """
    done = charts.helm("lint", "--strict", CHART, values=values)
    assert done.returncode == 0, done.stdout + done.stderr
    charts.conform(charts.render(CHART, values))


@each_set
def test_every_pod_is_confined_and_selected(values: dict):
    """Pods have security contexts, resources and probes.

    Selectors match, target ports are listened on, and no Secret is created.
    """
    objects = charts.render(CHART, values)
    assert charts.insecure(objects) == []
    assert charts.adrift(objects) == []


@each_set
def test_what_pods_are_given_is_made_here_or_documented(values: dict):
    """A Secret or ConfigMap that a pod uses is the chart's own or has an agreed name.

    An agreed name is one on which the chart and the object's creator rely.
    """
    objects = charts.render(CHART, values)
    config_maps = set(charts.of(objects, "ConfigMap"))
    for workload, template in charts.pods(objects):
        for kind, name in references(template):
            assert name in (SECRETS if kind == "Secret" else CONFIG_MAPS | config_maps), charts.name(workload)


def test_monitors_alerts_and_scaling():
    """The ServiceMonitor's labels are on a Service of every Deployment.

    Scaling has its target and stops at the number of partitions. Revisions are on the pods that
    they should roll.
    """
    objects = charts.render(CHART, MONITORED)
    wanted = charts.of(objects, "ServiceMonitor")["spillway-global"]["spec"]["selector"]["matchLabels"]
    monitored = {
        n
        for n, s in charts.of(objects, "Service").items()
        if wanted.items() <= s["metadata"]["labels"].items()
    }
    deployments = charts.of(objects, "Deployment")
    assert monitored == set(deployments)
    for name, scaled in charts.of(objects, "ScaledObject").items():
        assert scaled["spec"]["scaleTargetRef"]["name"] == name
        assert "replicas" not in deployments[name]["spec"]
        assert scaled["spec"]["maxReplicaCount"] == 4
    assert len(charts.of(objects, "ScaledObject")) == 5
    for name, deployment in deployments.items():
        annotations = deployment["spec"]["template"]["metadata"]["annotations"]
        reads = name in ("spillway-optimizer", "spillway-papa", "spillway-publisher")
        assert annotations.get("spillway.dev/topology-revision") == ("t1" if reads else None)
        assert annotations["spillway.dev/credentials-revision"] == "c1"


def test_every_alert_and_dashboard_is_in_the_chart():
    """Each alert and dashboard of infra/ is in an object. Runbook addresses have their prefix."""
    objects = charts.render(CHART, MONITORED)
    groups = [g for rule in charts.of(objects, "PrometheusRule").values() for g in rule["spec"]["groups"]]
    expected = []
    for name in ("global", "servers"):
        original = (ROOT / f"infra/alerts/{name}.yaml").read_text()
        at = original.replace("docs/operations.md", "https://example.org/docs/operations.md")
        assert at != original
        expected += yaml.safe_load(at)["groups"]
    assert groups == expected
    dashboards = {
        key for c in charts.of(objects, "ConfigMap").values() for key in c["data"] if key.endswith(".json")
    }
    assert dashboards == {p.name for p in (ROOT / "infra/grafana").glob("*.json")}


def test_the_readme_has_every_value():
    """The README's table is generated from values.yaml and the schema."""
    done = subprocess.run(
        [sys.executable, ROOT / "tools/charts/table.py", "--check", CHART], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
