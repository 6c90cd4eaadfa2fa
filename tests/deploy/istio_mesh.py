"""Releases of istiod, and the objects of the cluster that they process."""

import subprocess
from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml
from kube_region import program
from spillway_lab.testing.servers import ROOT

CHART = ROOT / "infra/helm/spillway-cluster"
VALUES = ROOT / "rule-publisher/relay/featuretests/envoy/testdata/istio/values.yaml"
SERVICES = {"gate": 8081, "shop": 8080, "ledger": 9090}
# Objects that users have before Spillway: a timeout, and a direct response.
VIRTUAL_SERVICE = {
    "apiVersion": "networking.istio.io/v1",
    "kind": "VirtualService",
    "metadata": {"name": "shop", "namespace": "shop"},
    "spec": {
        "hosts": ["shop"],
        "http": [
            {"match": [{"uri": {"prefix": "/gone"}}], "directResponse": {"status": 410}},
            {"timeout": "3s", "route": [{"destination": {"host": "shop"}}]},
        ],
    },
}


class Release(NamedTuple):
    """An istiod to test: its program, its sidecars' version, and variables for its environment."""

    name: str
    program: str
    version: str
    environment: Mapping[str, str]


RELEASES = (
    Release("1.31", "pilot-discovery", "1.31.0", {}),
    # Istio's master while 1.30 was being developed.
    Release("1.30", "pilot-discovery-1.30", "1.30.0", {}),
    # The same, with the setting of Istio's profile compatibility-version-1.29.
    Release(
        "1.30-as-1.29",
        "pilot-discovery-1.30",
        "1.30.0",
        {"PILOT_SIDECAR_PICK_BEST_SERVICE_NAMESPACE": "false"},
    ),
)


def service(name: str, port: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"selector": {"app": name}, "ports": [{"name": "http", "port": port}]},
    }


def pod(name: str) -> dict[str, Any]:
    container = {"name": "app", "image": "registry.example/app"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{name}-0", "namespace": "shop", "labels": {"app": name}},
        "spec": {"containers": [container]},
    }


def rendered() -> list[dict]:
    command = [
        program("helm"),
        "template",
        "spillway",
        str(CHART),
        "--namespace",
        "spillway",
        "-f",
        str(VALUES),
    ]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [
        document for document in yaml.safe_load_all(text) if document and "istio.io" in document["apiVersion"]
    ]
