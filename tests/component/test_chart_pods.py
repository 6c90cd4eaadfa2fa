"""Pod settings in the values of both charts: for all pods, and for one workload."""

import copy
from typing import Any

import charts
import pytest
from cluster_chart import EVERYTHING
from spillway_lab.testing.servers import ROOT

pytestmark = pytest.mark.component
GLOBAL = {
    "image": {"registry": "registry.example/spillway"},
    "kafka": {"brokers": "kafka:9093", "clusters": ["west"]},
}
CHARTS: dict[str, dict[str, Any]] = {"spillway-global": GLOBAL, "spillway-cluster": EVERYTHING}
each_chart = pytest.mark.parametrize("chart", CHARTS)
# Where each workload's own values are.
WORKLOADS = {
    "spillway-global": {
        f"spillway-{job}": f"streams.{job}" for job in ("admit", "exclusive", "curves", "graph", "classify")
    }
    | {f"spillway-{name}": name for name in ("optimizer", "papa", "publisher")},
    "spillway-cluster": {f"spillway-{name}": name for name in ("relay", "collector", "agent")},
}
OF_ALL: dict[str, Any] = {
    "nodeSelector": {"pool": "a"},
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "high",
    "podLabels": {"team": "a", "tier": "1"},
    "podAnnotations": {"note": "a", "more": "1"},
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy"}],
    "extraVolumes": [{"name": "a", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "a", "mountPath": "/a"}],
    "commonLabels": {"cost": "routing"},
    "revisionHistoryLimit": 5,
}
OF_ONE: dict[str, Any] = {
    "nodeSelector": {"disk": "b"},
    "tolerations": [],
    "affinity": {"podAntiAffinity": {}},
    "priorityClassName": "higher",
    "podLabels": {"tier": "2"},
    "podAnnotations": {"note": "b"},
    "extraEnv": [{"name": "GOGC", "value": "50"}],
    "extraVolumes": [{"name": "b", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "b", "mountPath": "/b"}],
    "terminationGracePeriodSeconds": 99,
    "startupProbe": {"failureThreshold": 999},
    "livenessProbe": {"timeoutSeconds": 9},
    "readinessProbe": {"initialDelaySeconds": 7},
}


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    charts.build()


def chart_of(chart: str) -> Any:
    return ROOT / "infra/helm" / chart


def with_settings(chart: str, settings: dict[str, dict], of_all: dict[str, Any] | None = None) -> dict:
    """Returns the least values, with settings for all pods and for single workloads by name."""
    values = copy.deepcopy(CHARTS[chart] | (of_all or {}))
    for workload, changes in settings.items():
        place = values
        for part in WORKLOADS[chart][workload].split("."):
            place = place.setdefault(part, {})
        place.update(changes)
    return values


def mine(template: dict) -> dict[str, Any]:
    """Returns the parts of a pod that users can set."""
    spec, [container] = template["spec"], template["spec"]["containers"]
    return {
        key: spec.get(key) for key in ("nodeSelector", "tolerations", "affinity", "priorityClassName")
    } | {
        "labels": template["metadata"]["labels"],
        "annotations": template["metadata"]["annotations"],
        "env": {v["name"]: v.get("value") for v in container["env"]},
        "volumes": {v["name"] for v in spec["volumes"]},
        "mounts": {m["mountPath"] for m in container["volumeMounts"]},
    }


def of(objects: list[dict], name: str) -> dict:
    return next(w for w, _ in charts.pods(objects) if w["metadata"]["name"] == name)


@each_chart
def test_what_is_said_of_all_pods_is_on_each(chart: str):
    """Jobs get the settings too. Objects stay valid, and each has the common labels."""
    objects = charts.render(chart_of(chart), CHARTS[chart] | OF_ALL)
    charts.conform(objects)
    assert charts.insecure(objects) == charts.adrift(objects) == []
    for workload, template in charts.pods(objects):
        found = mine(template)
        for key in ("nodeSelector", "tolerations", "affinity", "priorityClassName"):
            assert found[key] == OF_ALL[key], charts.name(workload)
        assert found["labels"].items() >= (OF_ALL["podLabels"] | OF_ALL["commonLabels"]).items()
        assert found["annotations"].items() >= OF_ALL["podAnnotations"].items()
        assert found["env"]["HTTPS_PROXY"] == "http://proxy"
        assert "a" in found["volumes"] and "/a" in found["mounts"]
        if workload["kind"] not in charts.ONCE:
            assert workload["spec"]["revisionHistoryLimit"] == 5
    for thing in objects:
        assert thing["metadata"]["labels"]["cost"] == "routing", charts.name(thing)


@each_chart
def test_a_workloads_own_word_goes_before(chart: str):
    """A workload's setting replaces placement, and adds to labels, variables and volumes.

    It affects no other workload.
    """
    settings = {
        name: OF_ONE | {"terminationGracePeriodSeconds": 90 + i} for i, name in enumerate(WORKLOADS[chart])
    }
    objects = charts.render(chart_of(chart), with_settings(chart, settings, OF_ALL))
    charts.conform(objects)
    for name, wanted in settings.items():
        template = of(objects, name)["spec"]["template"]
        found, [container] = mine(template), template["spec"]["containers"]
        assert found["nodeSelector"] == {"disk": "b"} and not found["tolerations"], name
        assert found["affinity"] == OF_ONE["affinity"] and found["priorityClassName"] == "higher", name
        assert found["labels"].items() >= {"team": "a", "tier": "2"}.items(), name
        assert found["annotations"].items() >= {"note": "b", "more": "1"}.items(), name
        assert found["env"].items() >= {"HTTPS_PROXY": "http://proxy", "GOGC": "50"}.items(), name
        assert {"a", "b"} <= found["volumes"] and {"/a", "/b"} <= found["mounts"], name
        seconds = template["spec"]["terminationGracePeriodSeconds"]
        assert seconds == wanted["terminationGracePeriodSeconds"], name
        assert container["startupProbe"]["failureThreshold"] == 999, name
        assert container["livenessProbe"]["timeoutSeconds"] == 9 and "httpGet" in container["livenessProbe"]
        assert container["readinessProbe"]["initialDelaySeconds"] == 7, name


def test_pods_spread_as_users_say():
    """By default pods spread over zones and nodes.

    A user's constraints replace this and apply to the workload's own pods. An empty list means no
    constraint.
    """
    wanted = [{"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}]
    values = with_settings("spillway-cluster", {"spillway-relay": {"topologySpreadConstraints": []}})
    objects = charts.render(chart_of("spillway-cluster"), values)
    assert "topologySpreadConstraints" not in of(objects, "spillway-relay")["spec"]["template"]["spec"]
    default = of(objects, "spillway-collector")["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert [c["topologyKey"] for c in default] == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
    objects = charts.render(chart_of("spillway-global"), GLOBAL | {"topologySpreadConstraints": wanted})
    charts.conform(objects)
    deployment = of(objects, "spillway-papa")
    [constraint] = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert constraint == wanted[0] | {"labelSelector": deployment["spec"]["selector"]}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, 1), ({"maxUnavailable": 0}, 0), ({"maxUnavailable": "50%"}, "50%"), ({"enabled": False}, None)],
)
def test_budgets_are_as_users_say(settings: dict, expected: int | str | None):
    """A budget is set for one workload, and the others keep theirs.

    Disabled and 0 are also valid settings.
    """
    for chart, workload in (("spillway-global", "spillway-curves"), ("spillway-cluster", "spillway-relay")):
        values = with_settings(chart, {workload: {"podDisruptionBudget": settings}})
        budgets = charts.of(charts.render(chart_of(chart), values), "PodDisruptionBudget")
        found = {name: budget["spec"]["maxUnavailable"] for name, budget in budgets.items()}
        assert found.pop(workload, None) == expected
        assert found and set(found.values()) == {1}


@each_chart
def test_images_are_taken_by_digest(chart: str):
    """Only images with a digest get it, in jobs and sidecars as in other pods."""
    images = {"spillway-global": "spillway-streams", "spillway-cluster": "spillway-collector"}
    digest = f"sha256:{'0a' * 32}"
    values = copy.deepcopy(CHARTS[chart])
    values["image"]["digests"] = {images[chart]: digest}
    found = {
        container["image"]
        for _, template in charts.pods(charts.render(chart_of(chart), values))
        for container in charts.containers(template)
    }
    assert {image.endswith(f"@{digest}") for image in found if images[chart] in image} == {True}
    assert {"@" in image for image in found if images[chart] not in image} == {False}


@each_chart
def test_names_are_asked_where_users_say(chart: str):
    """A DNS cache on each node has an address and no namespace.

    The user's own rules are added beside it.
    """
    values = copy.deepcopy(CHARTS[chart])
    rule = {"to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}], "ports": [{"port": 3128}]}
    values["networkPolicy"] = {
        "dns": {"cidrs": ["169.254.20.10/32"], "ports": [53, 5353]},
        "extraEgress": [rule],
    }
    objects = charts.render(chart_of(chart), values)
    charts.conform(objects)
    [dns, extra] = charts.of(objects, "NetworkPolicy")[f"{chart}-default-deny"]["spec"]["egress"]
    assert [("ipBlock" in to, "namespaceSelector" in to) for to in dns["to"]] == [
        (False, True),
        (True, False),
    ]
    assert {(p["port"], p["protocol"]) for p in dns["ports"]} == {
        (port, protocol) for port in (53, 5353) for protocol in ("UDP", "TCP")
    }
    assert extra == rule


def test_an_account_of_the_users():
    """The global pods and jobs run as the user's account, still without a token.

    In clusters the accounts get the user's annotations.
    """
    objects = charts.render(chart_of("spillway-global"), GLOBAL | {"serviceAccountName": "cloud"})
    for workload, template in charts.pods(objects):
        assert template["spec"]["serviceAccountName"] == "cloud", charts.name(workload)
        assert template["spec"]["automountServiceAccountToken"] is False
    settings = {"serviceAccountAnnotations": {"iam.example/role": "r"}}
    accounts = charts.of(charts.render(chart_of("spillway-cluster"), EVERYTHING | settings), "ServiceAccount")
    assert {name: a["metadata"].get("annotations") for name, a in accounts.items()} == dict.fromkeys(
        ("spillway-relay", "spillway-collector", "spillway-agent", "spillway-cluster-test"),
        settings["serviceAccountAnnotations"],
    )


WRONG: dict[str, Any] = {
    "extraEnv": [{"name": "SPILLWAY_KAFKA_TLS", "value": "off"}],
    "podLabels": {"app.kubernetes.io/name": "other"},
    "podAnnotations": {"spillway.dev/credentials-revision": "x"},
    "tolerations": {"key": "a"},
    "podDisruptionBudget": {"minAvailable": 1, "maxUnavailable": "half"},
    "topologySpreadConstraints": [{"topologyKey": "zone"}],
}


@each_chart
def test_wrong_words_are_refused_by_their_keys(chart: str):
    """Wrong settings are refused for all pods and for one workload.

    They would override the chart's own settings, or Kubernetes would refuse them. A workload also
    may not replace a probe's handler, nor have a misspelt key.
    """
    [name, *_] = WORKLOADS[chart]
    settings = WRONG | {"startupProbe": {"exec": {"command": ["true"]}}, "tolerance": []}
    for values, above in (
        (CHARTS[chart] | WRONG, ""),
        (with_settings(chart, {name: settings}), "/" + WORKLOADS[chart][name].replace(".", "/")),
    ):
        done = charts.helm("template", "spillway", chart_of(chart), values=values)
        assert done.returncode != 0
        for key in WRONG:
            assert f"'{above}/{key}" in done.stderr, key
        if above:
            assert f"'{above}/startupProbe" in done.stderr and "'tolerance'" in done.stderr
