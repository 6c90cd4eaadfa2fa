"""Both charts in one API server, as Terraform installs them.

The global part is inside an application cluster.
"""

import re
from collections import Counter

import charts
import global_chart
import pytest
import yaml
from cluster_chart import CHARTS, EVERYTHING, ISTIO
from spillway_lab.testing.servers import ROOT

pytestmark = pytest.mark.component
MODULES = {"spillway-global": "global", "spillway-cluster": "cluster"}
# With every object that the charts can make.
GLOBAL = global_chart.MONITORED | {
    "bundled": global_chart.BUNDLED["bundled"] | global_chart.OPERATED["bundled"]
}
GLOBAL |= {"clickhouse": {"variant": "replicated"}}
VALUES = {"spillway-global": GLOBAL, "spillway-cluster": EVERYTHING | {"istio": ISTIO["istio"]}}
COMMAND = re.compile(
    r"^ {4,}helm (?:install|upgrade|rollback|uninstall|test) (\S+)(?: infra/helm/(\S+))?", re.MULTILINE
)
PAGES = [
    *(ROOT / page for page in ("docs/operations.md", "UPGRADING.md", "README.md")),
    *sorted((ROOT / "infra").rglob("README.md")),
]
# Created outside the charts and the same for both: authorities, keys and topology.
SHARED = {("ConfigMap", f"spillway-{name}") for name in ("trust", "ruleset-keys", "topology")}


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    charts.build()


def release(chart: str) -> str:
    """Returns the name of the chart's release in Terraform."""
    text = (ROOT / "terraform/modules" / MODULES[chart] / "release.tf").read_text()
    [name] = re.findall(r'^  name += "(.+)"$', text, re.MULTILINE)
    return name


def render(chart: str, namespace: str) -> list[dict]:
    done = charts.helm(
        "template", release(chart), CHARTS / chart, "--namespace", namespace, values=VALUES[chart]
    )
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


@pytest.mark.parametrize(
    "of_global", ["spillway-global", "spillway"], ids=["two namespaces", "one namespace"]
)
def test_no_two_objects_are_at_one_place(of_global: str):
    """The test covers objects in a namespace and cluster-wide ones.

    ClusterRoles and admission policies are cluster-wide.
    """
    objects = render("spillway-global", of_global) + render("spillway-cluster", "spillway")
    found = Counter(
        (
            o["apiVersion"].partition("/")[0],
            o["kind"],
            o["metadata"].get("namespace", ""),
            o["metadata"]["name"],
        )
        for o in objects
    )
    assert [place for place, count in found.items() if count > 1] == []
    assert {kind for _, kind, namespace, _ in found if not namespace} >= {"ClusterRole", "ClusterRoleBinding"}


def test_in_one_namespace_both_read_the_same_files_and_no_secret_of_the_other():
    """Both need three public files that neither creates.

    A Secret with the same name would hold the other's credentials.
    """
    needed = {}
    for chart in VALUES:
        objects = render(chart, "spillway")
        config_maps = {("ConfigMap", name) for name in charts.of(objects, "ConfigMap")}
        named = {reference for _, pod in charts.pods(objects) for reference in global_chart.references(pod)}
        needed[chart] = named - config_maps
        assert not config_maps & SHARED
    assert needed["spillway-global"] & needed["spillway-cluster"] == SHARED


def test_no_selector_of_a_release_finds_pods_of_the_other():
    """Budgets, policies, Services and monitors match only their own release.

    This also holds when both releases are in one namespace.
    """
    labels = {
        chart: [pod["metadata"]["labels"] for _, pod in charts.pods(render(chart, "spillway"))]
        for chart in VALUES
    }
    for chart in VALUES:
        [other] = labels.keys() - {chart}
        for thing in render(chart, "spillway"):
            selector, _ = charts.selector_and_ports(thing)
            strangers = [of for of in labels[other] if selector and charts.selects(selector, of)]
            assert strangers == [], charts.name(thing)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_calls_releases_as_terraform_does(page):
    """A command with another name would not find the release, or would install the chart twice."""
    for name, chart in COMMAND.findall(page.read_text()):
        assert name in map(release, MODULES), name
        assert not chart or name == release(chart)


def test_pages_have_commands_of_releases():
    """The pages contain commands, so the previous test checks something."""
    assert sum(len(COMMAND.findall(page.read_text())) for page in PAGES) >= 7
