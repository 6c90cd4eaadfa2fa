"""Identities in the running stack: certificates decide what a pod may ask for.

They are renewed while the stack runs.
"""

import contextlib
import ssl
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest
from cryptography import x509
from loop_harness import Background, Loop
from spillway_lab.keys.keystore import Keystore
from spillway_lab.render import bootstrap, files, templates
from spillway_lab.render.pods import HOST, Pod
from spillway_lab.render.surroundings import Surroundings
from spillway_lab.stack import envoys
from spillway_lab.stack.stack import HOME, ROOT
from spillway_lab.testing.servers import free_port
from spillway_lab.testing.waiting import STOP_S, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def status(loop: Loop, cluster: str) -> dict:
    """Returns the status of the relay that strangers contact."""
    url = loop.stack.relays(cluster)[f"relay-{cluster}"]
    return httpx.get(f"{url}/status", trust_env=False).raise_for_status().json()


def counter(loop: Loop, cluster: str, name: str, relay: str = "") -> float:
    """Returns a counter of a relay as Prometheus reads it.

    By default it is the relay that strangers contact.
    """
    url = loop.stack.relays(cluster)[relay or f"relay-{cluster}"]
    lines = httpx.get(f"{url}/metrics", trust_env=False).raise_for_status().text.splitlines()
    return sum(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


@contextlib.contextmanager
def stranger(loop: Loop, claimed: Pod, held: Pod) -> Iterator[Pod]:
    """Runs an Envoy that claims to be one pod and has the certificate of another.

    It trusts the same authorities as the claimed pod.
    """
    pod = replace(
        claimed, index=99, admin_port=free_port(), inbound_port=free_port(), outbound_port=free_port()
    )
    cluster_ports = loop.stack.cluster_ports[pod.cluster]
    around = Surroundings(
        xds=[], otlp=[], toxiproxy="", templates=templates.read(ROOT / "infra"),
        filter_wasm=HOME / "wasm/spillway_filter.wasm", out=loop.stack.run,
    )  # fmt: skip
    xds, otlp = f"{HOST}:{cluster_ports['XDS_PORT']}", f"{HOST}:{cluster_ports['OTLP_GRPC_PORT']}"
    rendered = bootstrap.files(pod, xds, otlp, around)
    trusts, shows, own_folder = (str(around.tls_folder(holder.name)) for holder in (claimed, held, pod))
    for name, text in rendered.items():
        folder = shows if name.endswith(templates.CERTIFICATE.rpartition("/")[2]) else trusts
        files.write(loop.stack.run, {name: text.replace(own_folder, folder)})
    command = [str(HOME / "venv/bin/envoy"), "-c", str(loop.stack.run / "envoy" / f"{pod.name}.yaml")]
    with (loop.stack.run / "log/stranger.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--disable-hot-restart", "--concurrency", "1"], stdout=log, stderr=log
        )
        try:
            yield pod
        finally:
            process.terminate()
            process.wait(STOP_S)


def pods_of_two_services(loop: Loop, cluster: str) -> tuple[Pod, Pod]:
    pods = [pod for pod in loop.stack.plan.pods if pod.cluster == cluster]
    return pods[0], next(pod for pod in pods if pod.service != pods[0].service)


def test_a_pod_with_another_pods_certificate_is_refused_and_counted(loop: Loop):
    """A service's certificate gives no access to another service's routes.

    The relay counts the refusal, and the stranger does not count as an Envoy of the claimed
    service.
    """
    cluster = loop.stack.scenario.clusters[0]
    claimed, held = pods_of_two_services(loop, cluster)
    name = "spillway_relay_streams_refused_identity_total"
    expected = Counter(pod.service for pod in loop.stack.plan.pods if pod.cluster == cluster)
    before = counter(loop, cluster, name)
    with stranger(loop, claimed, held) as pod:
        eventually(lambda: counter(loop, cluster, name) > before, "the relay refuses the stranger")
        assert routes_of(pod) is None
        # Fewer while some come back from a fault, but never more.
        assert Counter(status(loop, cluster)["envoys"]) <= expected


def test_a_pod_of_the_same_service_is_let_in(loop: Loop):
    """The same Envoy with the right certificate gets its routes.

    The refusal above is therefore due only to the identity.
    """
    cluster = loop.stack.scenario.clusters[0]
    claimed, _ = pods_of_two_services(loop, cluster)
    with stranger(loop, claimed, claimed) as pod:
        eventually(lambda: routes_of(pod) is not None, "routes arrive")


def routes_of(pod: Pod) -> dict | None:
    try:
        return envoys.outbound_routes(pod)
    except httpx.HTTPError:
        return None


def test_a_pod_of_another_cluster_is_refused_everywhere(loop: Loop):
    """A certificate of the same service in another cluster has another authority.

    Neither relay nor collector accepts it: its holder gets no routes, and its spans are refused.
    """
    first, second, *_ = loop.stack.scenario.clusters
    claimed, _ = pods_of_two_services(loop, first)
    held = next(p for p in loop.stack.plan.pods if p.cluster == second and p.service == claimed.service)
    name = "spillway_relay_tls_handshakes_refused_total"
    before = counter(loop, first, name)
    with stranger(loop, claimed, held) as pod:
        eventually(lambda: counter(loop, first, name) > before, "the relay refuses the stranger")
        eventually(lambda: answers(pod) == 503, "the stranger's calls find no routes")
        eventually(lambda: stat(pod, "spillway_callout_failures") >= 1, "its spans are refused")
        assert stat(pod, "spillway_spans_sent") == 0
        assert routes_of(pod) is None


def answers(pod: Pod) -> int:
    """Returns the status of a call by the pod's application, or 0 before its Envoy listens."""
    try:
        return httpx.get(f"http://{HOST}:{pod.outbound_port}/", trust_env=False).status_code
    except httpx.HTTPError:
        return 0


def stat(pod: Pod, name: str) -> int:
    """Returns one of the filter's stats."""
    name = f"wasmcustom.{name}"
    lines = httpx.get(
        f"http://{HOST}:{pod.admin_port}/stats?filter={name}", trust_env=False
    ).text.splitlines()
    return sum(int(line.split(": ")[1]) for line in lines if line.startswith(f"{name}: "))


def test_collectors_take_spans_of_their_own_cluster_alone(loop: Loop):
    """Every collector accepts its own cluster's sender.

    It refuses another cluster's sender, clients without a certificate, and cleartext.
    """
    for cluster in loop.stack.scenario.clusters:
        for other in loop.stack.scenario.clusters:
            context = loop.sender(cluster, shows=other)
            if other == cluster:
                assert export_nothing(loop, cluster, verify=context).status_code == 200
            else:
                with pytest.raises(httpx.HTTPError):
                    export_nothing(loop, cluster, verify=context)
        with pytest.raises(httpx.HTTPError):
            export_nothing(loop, cluster, verify=loop.sender(cluster, shows=None))
        assert export_nothing(loop, cluster, scheme="http").status_code == 400


def export_nothing(loop: Loop, cluster: str, scheme: str = "https", **how) -> httpx.Response:
    """Sends a trace export without spans by OTLP over HTTP."""
    port = loop.stack.cluster_ports[cluster]["OTLP_HTTP_PORT"]
    headers = {"content-type": "application/x-protobuf"}
    url = f"{scheme}://{HOST}:{port}/v1/traces"
    return httpx.post(url, content=b"", headers=headers, trust_env=False, timeout=30, **how)


def shown(loop: Loop, cluster: str) -> set[int]:
    """Serial numbers of the certificates that a cluster's collector shows now, at both ports."""
    ports = loop.stack.cluster_ports[cluster]
    pems = [ssl.get_server_certificate((HOST, ports[f"OTLP_{way}_PORT"])) for way in ("GRPC", "HTTP")]
    return {x509.load_pem_x509_certificate(pem.encode()).serial_number for pem in pems}


def test_certificates_are_renewed_under_load(loop: Loop):
    """A new authority issues all certificates, and no request fails.

    Every relay and collector reads the new files. A restart of the relays closes the streams of the
    Envoys, which come back with new certificates and get new rulesets.
    """
    name = "spillway_relay_tls_files_taken_total"
    clusters = loop.stack.scenario.clusters
    relays = [(cluster, relay) for cluster in clusters for relay in loop.stack.relays(cluster)]
    before = {relay: counter(loop, cluster, name, relay) for cluster, relay in relays}
    background = Background(loop.stack, "renewed", 40)
    store = Keystore(loop.stack.run / "tls")
    for cluster in clusters:
        (store.authority(cluster) / "ca.crt").unlink()
    store.renew()
    for cluster, relay in relays:
        eventually(
            lambda c=cluster, r=relay: counter(loop, c, name, r) > before[r], "the relay takes the new files"
        )
        loop.stack.supervisor.kill(relay)
    for cluster in clusters:
        # The collector checks its files every ten seconds, on a connection, and separately for each
        # port.
        serial = store.held()[f"collector-{cluster}"].serial_number
        eventually(
            lambda c=cluster, s=serial: shown(loop, c) == {s}, "the collector shows its new certificate", 180
        )
        assert export_nothing(loop, cluster, verify=loop.sender(cluster)).status_code == 200
    loop.closed_since(time.time())
    samples = background.samples()
    assert samples.ok.all(), set(samples.reason[~samples.ok])
