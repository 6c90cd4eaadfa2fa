"""Tests of the chart checks themselves, and of the commands in the charts' READMEs.

Schemas made from the API server's document must refuse what the server refuses.
"""

import copy
import re
import shlex

import charts
import pytest
import yaml
from spillway_lab.testing.servers import ROOT

pytestmark = pytest.mark.component
POD = {
    "metadata": {"labels": {"app": "a"}},
    "spec": {
        "containers": [
            {"name": "a", "image": "registry.example/a", "ports": [{"name": "http", "containerPort": 80}]}
        ]
    },
}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "a"},
    "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": POD},
}
RULE = {
    "apiVersion": "monitoring.coreos.com/v1",
    "kind": "PrometheusRule",
    "metadata": {"name": "a"},
    "spec": {"groups": [{"name": "g", "rules": [{"alert": "A", "expr": "up == 0"}]}]},
}


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    charts.build()


def test_what_is_sound_conforms():
    """A minimal Deployment and a custom resource pass."""
    charts.conform([DEPLOYMENT, RULE])


@pytest.mark.parametrize(
    ("of", "path", "value"),
    [
        (DEPLOYMENT, "spec.replica", 2),
        (DEPLOYMENT, "spec.replicas", "two"),
        (DEPLOYMENT, "spec.template.spec.securityContext", {"runAsNotRoot": True}),
        (DEPLOYMENT, "apiVersion", "apps/v7"),
        (RULE, "spec.group", []),
        (RULE, "spec.groups", [{"rules": []}]),
    ],
)
def test_what_the_api_server_would_refuse_is_refused(of: dict, path: str, value: object):
    """A misspelt key, wrong type, missing key or unknown version fails.

    This holds for custom resources too.
    """
    wrong = copy.deepcopy(of)
    *parents, last = path.split(".")
    place = wrong
    for part in parents:
        place = place[part]
    place[last] = value
    with pytest.raises(AssertionError):
        charts.conform([wrong])


def test_a_bare_pod_is_called_insecure():
    """Every property that a pod must have is reported when it is missing."""
    found = "\n".join(charts.insecure([DEPLOYMENT, {"kind": "Secret", "metadata": {"name": "s"}}]))
    words = (
        "runAsNonRoot seccompProfile token allowPrivilegeEscalation readOnlyRootFilesystem capabilities "
        "resources.limits.memory tag readinessProbe livenessProbe Secret"
    )
    for word in words.split():
        assert word in found


def test_selectors_that_select_nothing_are_found():
    """Examples are a budget for other labels, and a Service for a port that no pod has."""
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b"},
        "spec": {"selector": {"matchLabels": {"app": "b"}}},
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s"},
        "spec": {"selector": {"app": "a"}, "ports": [{"port": 80}, {"port": 81}]},
    }
    assert charts.adrift([DEPLOYMENT, budget, service]) == [
        "PodDisruptionBudget b: selects no pod",
        "Service s: nobody listens on 81",
    ]


@pytest.mark.parametrize("chart", ["spillway-global", "spillway-cluster"])
def test_the_install_command_of_a_readme_gives_all_that_is_required(
    chart: str, monkeypatch: pytest.MonkeyPatch
):
    """Run at the top of the repository, the command renders what the API server accepts."""
    readme = (ROOT / "infra/helm" / chart / "README.md").read_text().replace("\\\n", " ")
    [command] = re.findall(r"^    helm install (.+)$", readme, re.MULTILINE)
    monkeypatch.chdir(ROOT)
    done = charts.helm("template", *shlex.split(command))
    assert done.returncode == 0, done.stderr
    charts.conform([document for document in yaml.safe_load_all(done.stdout) if document])
