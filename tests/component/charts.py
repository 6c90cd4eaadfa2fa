"""Renders charts with helm and checks the objects.

They must match the API server's schemas and satisfy the project's rules for pods:

    objects = charts.render(CHART, {"image": {...}})    # a mapping, or files; later ones win
    charts.conform(objects)                             # kubeconform -strict
    assert charts.insecure(objects) == []

`render` and `conform` raise AssertionError with every problem.
"""

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from spillway_lab.testing.programs import program
from spillway_lab.testing.servers import ROOT

SCHEMAS = ROOT / ".spillway/schemas"
WORKLOADS = {"Deployment", "StatefulSet", "DaemonSet", "Job"}
ONCE = {"Job", "Pod"}  # workloads that run to an end; a Pod is a test of `helm test`
_LIMITS = {"requests": ("cpu", "memory"), "limits": ("memory",)}


def build() -> None:
    """Installs helm, kubeconform and the schemas for test files that run without `make`.

    Takes only seconds when they are already there.
    """
    subprocess.run([ROOT / "tools/bring", "helm", "kubeconform", "schemas"], check=True)


def helm(
    command: str, *arguments: str | Path, values: Mapping[str, Any] | None = None
) -> subprocess.CompletedProcess:
    """Runs helm. `values` are passed on standard input."""
    values_flags = ["--values", "-"] if values is not None else []
    return subprocess.run(
        [program("helm"), command, *arguments, *values_flags],
        input=yaml.safe_dump(values or {}), capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def render(
    chart: Path, values: Mapping[str, Any] | None = None, files: tuple[Path, ...] = (), *flags: str
) -> list[dict]:
    """Returns every object of the chart, including hooks.

    Raises AssertionError with helm's output when helm fails.
    """
    values_flags = [f"--values={file}" for file in files]
    done = helm(
        "template", "spillway", chart, "--namespace", "spillway", *values_flags, *flags, values=values
    )
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def conform(objects: list[dict], skip: tuple[str, ...] = ()) -> None:
    """Raises AssertionError unless each object has exactly the keys and types of the API server.

    `skip` lists kinds whose definitions no local schema contains.
    """
    group = "{{if eq .Group .ResourceAPIVersion}}core{{else}}{{.Group}}{{end}}"
    template = f"{{{{.ResourceKind}}}}-{group}-{{{{.ResourceAPIVersion}}}}.json"
    command = [program("kubeconform"), "-strict", "-schema-location", f"{SCHEMAS}/{template}"]
    command += ["-skip", ",".join(skip)] if skip else []
    done = subprocess.run(
        [*command, "-"], input=yaml.safe_dump_all(objects), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


def name(thing: dict) -> str:
    return f"{thing['kind']} {thing['metadata']['name']}"


def of(objects: list[dict], kind: str) -> dict[str, dict]:
    """Returns the objects of one kind by name."""
    return {o["metadata"]["name"]: o for o in objects if o["kind"] == kind}


def pods(objects: list[dict]) -> Iterator[tuple[dict, dict]]:
    """Yields (workload, its pod template). A Pod is its own template."""
    for thing in objects:
        if thing["kind"] in WORKLOADS:
            yield thing, thing["spec"]["template"]
        elif thing["kind"] == "Pod":
            yield thing, thing


def containers(template: dict) -> list[dict]:
    return [*template["spec"].get("initContainers", []), *template["spec"]["containers"]]


def unconfined(who: str, spec: dict) -> Iterator[str]:
    """Yields what the security contexts of a pod and of all its containers lack."""
    context = spec.get("securityContext", {})
    if not context.get("runAsNonRoot"):
        yield f"{who}: runAsNonRoot is not set"
    if context.get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield f"{who}: seccompProfile is not RuntimeDefault"
    for container in containers({"spec": spec}):
        inside, context = f"{who}/{container['name']}", container.get("securityContext", {})
        if context.get("allowPrivilegeEscalation") is not False:
            yield f"{inside}: allowPrivilegeEscalation is not false"
        if context.get("readOnlyRootFilesystem") is not True:
            yield f"{inside}: readOnlyRootFilesystem is not true"
        if context.get("capabilities") != {"drop": ["ALL"]}:
            yield f"{inside}: capabilities are not dropped"


def _of_pod(workload: dict, spec: dict) -> Iterator[str]:
    yield from unconfined(name(workload), spec)
    if "serviceAccountName" not in spec and spec.get("automountServiceAccountToken") is not False:
        yield f"{name(workload)}: has a service account's token, and no account of its own"


def _of_container(workload: dict, container: dict) -> Iterator[str]:
    who = f"{name(workload)}/{container['name']}"
    resources = container.get("resources", {})
    for part, wanted in _LIMITS.items():
        for resource in wanted:
            if resource not in resources.get(part, {}):
                yield f"{who}: resources.{part}.{resource} is not set"
    tag = container["image"].rpartition("/")[2].partition(":")[2]
    if tag in ("", "latest"):
        yield f"{who}: image {container['image']} has no tag of its own"


def _probes(workload: dict, container: dict) -> Iterator[str]:
    for probe in ("readinessProbe", "livenessProbe"):
        if probe not in container:
            yield f"{name(workload)}/{container['name']}: has no {probe}"
        elif port := container[probe].get("httpGet", container[probe].get("tcpSocket", {})).get("port"):
            known = {p.get("name") for p in container.get("ports", [])} | {
                p["containerPort"] for p in container.get("ports", [])
            }
            if port not in known:
                yield f"{name(workload)}/{container['name']}: {probe} asks port {port}, which it has not"


def insecure(objects: list[dict]) -> list[str]:
    """Returns what pods lack: security contexts, resources, image tags and probes.

    Also reports Secrets that the chart would create.
    """
    found = [f"{name(o)}: charts make no Secret" for o in objects if o["kind"] == "Secret"]
    for workload, template in pods(objects):
        found += _of_pod(workload, template["spec"])
        for container in containers(template):
            found += _of_container(workload, container)
        if workload["kind"] not in ONCE:
            for container in template["spec"]["containers"]:
                found += _probes(workload, container)
    return found


def selects(selector: Mapping, labels: Mapping) -> bool:
    return all(labels.get(key) == value for key, value in selector.items())


def adrift(objects: list[dict]) -> list[str]:
    """Returns selectors without a match, target ports without a listener, and duplicate names."""
    templates = [(w, t, t["metadata"]["labels"]) for w, t in pods(objects)]
    operated = [t["metadata"]["labels"] for t in _operated(objects)]
    keys = [(o["apiVersion"], name(o), o["metadata"].get("namespace")) for o in objects]
    found = [f"{key[1]}: occurs twice" for key in sorted({k for k in keys if keys.count(k) > 1})]
    for workload, _, labels in templates:
        if workload["kind"] not in ONCE and not selects(workload["spec"]["selector"]["matchLabels"], labels):
            found.append(f"{name(workload)}: does not select its own pods")
    for thing in objects:
        selector, ports = selector_and_ports(thing)
        if selector is None:
            continue
        if any(selects(selector, labels) for labels in operated):
            continue  # the operator knows on which ports its pods listen
        selected = [t for _, t, labels in templates if selects(selector, labels)]
        if not selected:
            found.append(f"{name(thing)}: selects no pod")
        open_ports = {
            p for t in selected for c in containers(t) for q in c.get("ports", [])
            for p in (q["containerPort"], q.get("name"))
        }  # fmt: skip
        found += [f"{name(thing)}: nobody listens on {p}" for p in ports if p not in open_ports]
    return found


def every_pod(objects: list[dict]) -> Iterator[tuple[str, dict]]:
    """Yields (name, pod template) of each pod that results from the chart.

    Pods come from workloads, from hooks, and from operators.
    """
    for workload, template in pods(objects):
        yield name(workload), template
    for thing in objects:
        for template in _operated([thing]):
            yield name(thing), template


def by_strimzi(template: dict) -> bool:
    """Whether Strimzi creates the pod.

    Strimzi sets the labels app.kubernetes.io/..., the account and the images itself.
    """
    return "strimzi.io/cluster" in template["metadata"]["labels"]


def _operated(objects: list[dict]) -> Iterator[dict]:
    """Yields the templates of pods that operators create.

    Altinity's are in Kubernetes' form, and Strimzi's are converted to it.
    """
    for thing in objects:
        match thing["kind"]:
            case "ClickHouseInstallation" | "ClickHouseKeeperInstallation":
                yield from thing["spec"]["templates"]["podTemplates"]
            case "KafkaNodePool":
                yield _of_strimzi(thing["metadata"]["labels"]["strimzi.io/cluster"], thing["spec"])
            case "Kafka":
                for part in ("entityOperator", "kafkaExporter"):
                    if part in thing["spec"]:
                        yield _of_strimzi(thing["metadata"]["name"], thing["spec"][part])


def _of_strimzi(cluster: str, spec: dict) -> dict:
    template = spec.get("template", {})
    pod, parts = (
        template.get("pod", {}),
        ("kafkaContainer", "initContainer", "userOperatorContainer", "container"),
    )
    labels = pod.get("metadata", {}).get("labels", {}) | {"strimzi.io/cluster": cluster}
    containers = [{"name": part, **template[part]} for part in parts if part in template]
    security = {"securityContext": pod.get("securityContext", {})}
    return {"metadata": {"labels": labels}, "spec": security | {"containers": containers}}


def selector_and_ports(thing: dict) -> tuple[dict | None, list]:
    """Returns the pods that an object selects and the ports on which it expects them to listen."""
    spec = thing.get("spec", {})
    match thing["kind"]:
        case "PodDisruptionBudget":
            return spec["selector"]["matchLabels"], []
        case "Service" if spec.get("selector"):
            return spec["selector"], [p.get("targetPort", p["port"]) for p in spec["ports"]]
        case "NetworkPolicy" if spec["podSelector"].get("matchLabels"):
            rules = spec.get("ingress", [])
            return spec["podSelector"]["matchLabels"], [p["port"] for r in rules for p in r.get("ports", [])]
        case "PodMonitor":
            return spec["selector"]["matchLabels"], [e["port"] for e in spec["podMetricsEndpoints"]]
        case _:
            return None, []
