"""The charts of infra/helm/ as helm renders them, and parts of rendered pods that tests run."""

import functools
import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from spillway_lab.testing.programs import program
from spillway_lab.testing.servers import ROOT

CHARTS = ROOT / "infra/helm"
CHART = CHARTS / "spillway-cluster"
# Values that have no default, and one application.
REQUIRED: dict[str, Any] = {
    "cluster": {"name": "west"},
    "image": {"registry": "registry.example/spillway"},
    "collector": {"kafka": {"brokers": "kafka-0.example:9093,kafka-1.example:9094"}},
}
CART = {"service": "cart", "namespace": "shop", "appPort": 8080, "edge": False}
EVERYTHING: dict[str, Any] = REQUIRED | {
    "credentialsRevision": "abc",
    "relay": {"namespaces": ["shop", "pay"]},
    "agent": {"enabled": True},
    "sidecar": {
        "applications": [CART],
        "certManager": {"enabled": True, "issuer": {"name": "west"}},
        "injection": {"enabled": True},
    },
    "monitoring": {"serviceMonitors": True, "prometheusRules": True, "labels": {"release": "prometheus"}},
}
ISTIO = yaml.safe_load(
    (ROOT / "rule-publisher/relay/featuretests/envoy/testdata/istio/values.yaml").read_text()
)


@functools.cache
def _program() -> str:
    """Returns the path of helm, which is built if it is missing."""
    subprocess.run([ROOT / "tools/bring", "helm"], check=True)
    return program("helm")


def helm(*arguments: str, values: Mapping[str, Any] | None = None) -> subprocess.CompletedProcess:
    """Runs helm with the values on standard input."""
    command = [_program(), *arguments, *(["-f", "-"] if values is not None else [])]
    return subprocess.run(
        command, input=json.dumps(values), capture_output=True, text=True, timeout=120, check=False
    )


def render(values: Mapping[str, Any], chart: Path = CHART, namespace: str = "spillway"):
    """Returns every object of the chart.

    Raises AssertionError with helm's output when it cannot be rendered.
    """
    done = helm("template", "release", str(chart), "--namespace", namespace, values=values)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def find(objects: list[dict], kind: str, name: str) -> dict:
    found = [o for o in objects if (o["kind"], o["metadata"]["name"]) == (kind, name)]
    assert len(found) == 1, f"{kind} {name}: {len(found)} of them"
    return found[0]


def pods(objects: list[dict]) -> dict[str, dict]:
    """Returns the pod specs of workloads by name."""
    kinds = {"Deployment", "StatefulSet", "DaemonSet"}
    return {o["metadata"]["name"]: o["spec"]["template"]["spec"] for o in objects if o["kind"] in kinds}


def environment(container: dict, secrets: Mapping[str, str], moved: Mapping[str, str]) -> dict[str, str]:
    """Returns a container's environment.

    `secrets` holds values by "<secret>/<key>", or by the path of a pod's field. `moved` maps
    prefixes of paths and addresses in a pod to those on this machine.
    """
    found = {}
    for variable in container["env"]:
        if "value" in variable:
            value = str(variable["value"])
        else:
            source = variable["valueFrom"]
            reference = source.get("secretKeyRef")
            value = secrets[
                f"{reference['name']}/{reference['key']}" if reference else source["fieldRef"]["fieldPath"]
            ]
        for there, here in moved.items():
            value = here + value[len(there) :] if value.startswith(there) else value
        found[variable["name"]] = value
    return found


def arguments(container: dict, variables: Mapping[str, str]) -> list[str]:
    """Returns the container's arguments as the kubelet expands them."""
    return [re.sub(r"\$\((\w+)\)", lambda match: variables[match[1]], a) for a in container["args"]]
