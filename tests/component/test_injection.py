"""The chart's MutatingAdmissionPolicy in a real API server, for pods that ask for an Envoy.

Pods ask by their labels.
"""

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cluster_chart
import httpx
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from spillway_lab.testing.programs import program
from spillway_lab.testing.servers import ROOT, Server, free_port, running
from spillway_lab.testing.waiting import eventually

pytestmark = pytest.mark.component
HOST = "127.0.0.1"
GROUP = "/apis/admissionregistration.k8s.io/v1beta1"
LABELS = {"spillway.dev/inject": "true", "spillway.dev/service": "cart"}


@dataclass
class Cluster:
    client: httpx.Client

    def ask(self, method: str, path: str, body: dict | None = None) -> dict:
        """Returns the API server's answer. Raises AssertionError with its text when it refuses."""
        answer = self.client.request(method, path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def pod(self, labels: dict[str, str], namespace: str = "shop", **spec: object) -> httpx.Response:
        """Returns what the API server would make of a pod (dry run)."""
        body = {
            "metadata": {"name": "cart-0", "labels": labels},
            "spec": {"containers": [{"name": "cart", "image": "cart:1"}], **spec},
        }
        return self.client.post(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", json=body)


def etcd(folder: Path) -> tuple[Server, str]:
    clients, peers = (f"http://{HOST}:{free_port()}" for _ in range(2))
    command = [
        program("etcd"),
        "--data-dir",
        str(folder / "etcd"),
        "--unsafe-no-fsync",
        "--log-level",
        "warn",
    ]
    command += ["--listen-client-urls", clients, "--advertise-client-urls", clients]
    command += ["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers]
    command += ["--initial-cluster", f"default={peers}"]
    return Server(clients, command, folder / "etcd.log", lambda: healthy(f"{clients}/health")), clients


def healthy(url: str, **how: object) -> bool:
    with contextlib.suppress(httpx.HTTPError, OSError):
        return httpx.get(url, trust_env=False, timeout=5, **how).status_code == 200
    return False


def api_server(folder: Path, store: str) -> tuple[Server, httpx.Client]:
    port, key = free_port(), folder / "accounts.key"
    key.write_bytes(
        rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    (folder / "tokens.csv").write_text('administrator,administrator,1,"system:masters"\n')
    options = {
        "etcd-servers": store, "bind-address": HOST, "secure-port": port, "cert-dir": folder,
        "authorization-mode": "RBAC", "token-auth-file": folder / "tokens.csv",
        "service-account-issuer": "https://kubernetes.default.svc", "service-account-key-file": key,
        "service-account-signing-key-file": key, "service-cluster-ip-range": "10.96.0.0/24",
        "disable-admission-plugins": "ServiceAccount", "feature-gates": "MutatingAdmissionPolicy=true",
        "runtime-config": "admissionregistration.k8s.io/v1beta1=true",
    }  # fmt: skip
    url, token = f"https://{HOST}:{port}", {"Authorization": "Bearer administrator"}
    server = Server(
        url, [program("kube-apiserver"), *(f"--{name}={value}" for name, value in options.items())],
        folder / "api.log", lambda: healthy(f"{url}/readyz", headers=token, verify=False),
    )  # fmt: skip
    return server, httpx.Client(base_url=url, headers=token, verify=False, trust_env=False, timeout=30)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An API server with the chart's policy and binding.

    It has one namespace with applications and one without.
    """
    subprocess.run([ROOT / "tools/bring", "etcd", "kube-apiserver"], check=True)
    folder = tmp_path_factory.mktemp("kubernetes")
    store, address = etcd(folder)
    with running(store):
        server, client = api_server(folder, address)
        with running(server), client:
            made = Cluster(client)
            for name in ("shop", "other"):
                made.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
            rendered = cluster_chart.render(cluster_chart.EVERYTHING)
            for kind, path in (
                ("MutatingAdmissionPolicy", "mutatingadmissionpolicies"),
                ("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings"),
            ):
                made.ask("POST", f"{GROUP}/{path}", cluster_chart.find(rendered, kind, "spillway-injection"))
            eventually(
                lambda: injected(made.pod(LABELS)), "the policy is in force", seconds=120, period_s=0.5
            )
            yield made


def injected(answer: httpx.Response) -> bool:
    return answer.is_success and "initContainers" in answer.json()["spec"]


def from_the_library() -> tuple[dict, list[dict]]:
    """Returns the container and volumes of the example that uses the library."""
    values = {
        "cluster": "west",
        "image": "cart:1",
        "envoyImage": "registry.example/spillway/spillway-envoy:1",
    }
    pod = cluster_chart.pods(cluster_chart.render(values, cluster_chart.CHARTS / "examples/cart", "shop"))[
        "cart"
    ]
    return pod["initContainers"][0], pod["volumes"]


def covers(wanted: object, found: object, where: str = "pod") -> None:
    """Asserts that `found` contains all of `wanted`. The server adds defaults."""
    if isinstance(wanted, dict):
        for key, value in wanted.items():
            assert key in found, f"{where}.{key}"
            covers(value, found[key], f"{where}.{key}")
    elif isinstance(wanted, list):
        assert len(wanted) == len(found), where
        for i, (expected, actual) in enumerate(zip(wanted, found, strict=True)):
            covers(expected, actual, f"{where}[{i}]")
    else:
        assert wanted == found, where


def test_a_labelled_pod_gets_what_the_library_gives(cluster: Cluster):
    """Container and volumes are the same as those of the named templates.

    Only the image and the source of the service's name differ.
    """
    spec = cluster.pod(LABELS).json()["spec"]
    container, volumes = from_the_library()
    (proxy,) = spec["initContainers"]
    assert proxy.pop("image").startswith("registry.example/spillway/spillway-envoy:")
    container.pop("image")
    container["env"] = [variable for variable in container["env"] if "valueFrom" in variable]
    source = proxy["env"].pop()
    assert source["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.labels['spillway.dev/service']"
    covers(container, proxy)
    covers(volumes, [v for v in spec["volumes"] if v["name"].startswith("spillway")])
    assert [c["name"] for c in spec["containers"]] == ["cart"]


def test_what_the_pod_has_stays(cluster: Cluster):
    """Envoy comes before the pod's own init containers, and its volumes after the pod's own."""
    container = {"name": "own", "image": "own:1"}
    spec = cluster.pod(LABELS, initContainers=[container], volumes=[{"name": "data", "emptyDir": {}}]).json()[
        "spec"
    ]
    assert [c["name"] for c in spec["initContainers"]] == ["spillway-proxy", "own"]
    assert [v["name"] for v in spec["volumes"]] == ["data", "spillway-envoy", "spillway-tls"]


def test_a_pod_is_injected_once(cluster: Cluster):
    """A pod that already has the container stays as it is."""
    container, _ = from_the_library()
    spec = cluster.pod(LABELS, initContainers=[container | {"volumeMounts": []}]).json()["spec"]
    assert [c["name"] for c in spec["initContainers"]] == ["spillway-proxy"]
    assert "volumes" not in spec


@pytest.mark.parametrize(
    ("labels", "namespace"),
    [
        ({"spillway.dev/service": "cart"}, "shop"),
        ({**LABELS, "spillway.dev/inject": "false"}, "shop"),
        (LABELS, "other"),
    ],
    ids=["unlabelled", "declined", "another namespace"],
)
def test_other_pods_are_left_alone(cluster: Cluster, labels: dict, namespace: str):
    """Pods that do not ask get nothing, nor do pods in namespaces without an application."""
    answer = cluster.pod(labels, namespace)
    assert answer.is_success and "initContainers" not in answer.json()["spec"]


def test_a_pod_that_does_not_say_its_service_is_refused(cluster: Cluster):
    """The pod asks for an Envoy whose service is unknown, so it must not run without one."""
    answer = cluster.pod({"spillway.dev/inject": "true"})
    assert answer.status_code >= 400
    assert "spillway-injection" in answer.text
