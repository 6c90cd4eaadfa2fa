"""Spans from a pod's Envoy to its cluster's collector: which senders are accepted."""

import os
import secrets
import shutil
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import pytest
from cryptography import x509
from pod_envoy import CLUSTER, OTHER, PodEnvoy, prepared
from spillway_lab.keys import keystore
from spillway_lab.render.pods import HOST
from spillway_lab.testing.servers import free_port
from spillway_lab.testing.waiting import eventually

COLLECTORS = Path(__file__).resolve().parents[2] / "collectors"
sys.path.insert(0, str(COLLECTORS / "tests" / "component"))

from collector_counters import samples  # noqa: E402
from collector_process import Collector, collector, spans_request  # noqa: E402
from trace_exports import TRACE_EXPORT  # noqa: E402

BIN = COLLECTORS.parent / ".spillway" / "bin"
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("SPILLWAY_")} | {
    "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"
}
TO_COLLECTOR = "spillway-collector"
pytestmark = [pytest.mark.component, pytest.mark.timeout(300)]


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """The collector's launcher and configuration with shorter intervals.

    Renewed files are read after a second, and senders reconnect after two.
    """
    copied = tmp_path / "box"
    copied.mkdir()
    for path in (COLLECTORS / "run", COLLECTORS / "checks.sh", *COLLECTORS.glob("*.yaml")):
        shutil.copy(path, copied)
    for name, was, now in (
        ("otlp-tls.yaml", "reload_interval: 10s", "reload_interval: 1s"),
        ("config.yaml", "max_connection_age: 5m", "max_connection_age: 2s"),
    ):
        text = (copied / name).read_text()
        assert was in text
        (copied / name).write_text(text.replace(was, now))
    return copied


@pytest.fixture
def envoy(tmp_path: Path) -> PodEnvoy:
    return prepared(tmp_path, free_port())


def gateway(envoy: PodEnvoy, cluster: str, box: Path) -> Collector:
    """Returns a cluster's collector, not started, at the address to which the pod's Envoy sends.

    Kafka is away, so spans wait in the queue.
    """
    held = envoy.store.folder / f"collector-{cluster}"
    made = collector(
        envoy.folder / "collector", f"{HOST}:{free_port()}", ENVIRONMENT, box=box,
        SPILLWAY_OTLP_GRPC_LISTEN=f"{HOST}:{envoy.otlp_port}",
        SPILLWAY_OTLP_TLS_CERT=str(held / keystore.CERTIFICATE),
        SPILLWAY_OTLP_TLS_KEY=str(held / keystore.KEY),
        SPILLWAY_OTLP_TLS_CLIENT_CA=str(held / keystore.TRUST),
    )  # fmt: skip
    made.ports["grpc"] = envoy.otlp_port
    return made


@pytest.fixture
def own_collector(envoy: PodEnvoy, box: Path) -> Iterator[Collector]:
    """The collector of the pod's cluster."""
    made = gateway(envoy, CLUSTER, box)
    made.server.start()
    yield made
    made.server.stop()


def accepted(running: Collector) -> float:
    """Number of spans that the collector has accepted."""
    return samples(running.metrics(), r"otelcol_receiver_accepted_spans(?:__spans_)?(?:_total)?")


def sends_a_span(envoy: PodEnvoy) -> None:
    """Sends a request. One without a matching route is a call too."""
    assert eventually(lambda: envoy.status(envoy.pod.inbound_port, "/"), "an answer") == 503


def present(envoy: PodEnvoy, held: str) -> None:
    """Lets the pod's Envoy show another certificate and keeps what it trusts."""
    file = envoy.folder / "envoy" / envoy.pod.name / "certificate.yaml"
    current, other = (str(envoy.store.folder / name) for name in (envoy.pod.name, held))
    assert current in file.read_text()
    file.write_text(file.read_text().replace(current, other))


def credentials(envoy: PodEnvoy, held: str | None) -> grpc.ChannelCredentials:
    """Returns credentials that trust the collector of the pod's cluster.

    They show a certificate of the store, or none.
    """
    ca = (envoy.store.folder / f"sender-{CLUSTER}" / keystore.TRUST).read_bytes()
    if held is None:
        return grpc.ssl_channel_credentials(ca)
    return grpc.ssl_channel_credentials(ca, *pair(envoy, held))


def pair(envoy: PodEnvoy, held: str) -> tuple[bytes, bytes]:
    """Returns key and certificate of the store, as PEM."""
    folder = envoy.store.folder / held
    return (folder / keystore.KEY).read_bytes(), (folder / keystore.CERTIFICATE).read_bytes()


def export(running: Collector, given: grpc.ChannelCredentials | None, ready: bool = False) -> None:
    """Sends one span over TLS, or in cleartext if `given` is None.

    Raises grpc.RpcError when it is not accepted.
    """
    payload = spans_request([secrets.token_bytes(16)]).SerializeToString()
    made = grpc.secure_channel(running.address, given) if given else grpc.insecure_channel(running.address)
    with made as channel:
        channel.unary_unary(TRACE_EXPORT)(payload, timeout=30, wait_for_ready=ready)


def test_spans_reach_the_clusters_own_collector(envoy: PodEnvoy, own_collector: Collector):
    """The filter's spans are accepted over mutual TLS, and none is refused."""
    with envoy.running():
        sends_a_span(envoy)
        eventually(lambda: envoy.stat("wasmcustom.spillway_spans_sent") >= 1, "the filter's span is taken")
        assert envoy.count("ssl.handshake", TO_COLLECTOR) >= 1
        assert envoy.stat("wasmcustom.spillway_spans_dropped") == 0
    eventually(lambda: accepted(own_collector) >= 1, "the collector counts it")


def test_a_collector_refuses_another_clusters_envoy(envoy: PodEnvoy, own_collector: Collector):
    """The certificate of the same service in another cluster gives no access.

    No span is accepted, and requests go on.
    """
    present(envoy, f"{OTHER}-cart-0")
    with envoy.running():
        sends_a_span(envoy)
        failures = "wasmcustom.spillway_callout_failures"
        eventually(lambda: envoy.stat(failures) >= 2, "the filter's calls fail")
        sends_a_span(envoy)
        assert envoy.stat("wasmcustom.spillway_spans_sent") == 0
        # it was not Envoy that refused
        assert envoy.count("ssl.fail_verify_error", TO_COLLECTOR) == 0
    assert accepted(own_collector) == 0


def test_envoy_refuses_another_clusters_collector(envoy: PodEnvoy, box: Path):
    """A collector with another authority than the pod's gets nothing."""
    running = gateway(envoy, OTHER, box)
    running.server.start()
    try:
        with envoy.running():
            sends_a_span(envoy)
            refused = "ssl.fail_verify_error"
            eventually(lambda: envoy.count(refused, TO_COLLECTOR) > 0, "Envoy refuses the authority")
            assert envoy.stat("wasmcustom.spillway_spans_sent") == 0
        assert accepted(running) == 0
    finally:
        running.server.stop()


def test_envoy_refuses_a_collector_of_another_name(envoy: PodEnvoy, box: Path):
    """The relay's certificate from the same authority does not make it a collector."""
    held = envoy.store.folder / f"collector-{CLUSTER}"
    shutil.rmtree(held)
    shutil.copytree(envoy.store.folder / f"relay-{CLUSTER}", held, symlinks=True)
    running = gateway(envoy, CLUSTER, box)
    running.server.start()
    try:
        with envoy.running():
            sends_a_span(envoy)
            refused = "ssl.fail_verify_san"
            eventually(lambda: envoy.count(refused, TO_COLLECTOR) > 0, "Envoy refuses the name")
        assert accepted(running) == 0
    finally:
        running.server.stop()


def test_only_senders_of_the_cluster_are_let_in(envoy: PodEnvoy, own_collector: Collector):
    """A sender and a pod of the cluster may send.

    Clients may not send in cleartext, without a certificate, with another cluster's certificate, or
    with a server's certificate of the same cluster.
    """
    for held in (f"sender-{CLUSTER}", envoy.pod.name):
        export(own_collector, credentials(envoy, held), ready=True)
    refused = [None, *(credentials(envoy, held) for held in (None, f"sender-{OTHER}", f"{OTHER}-cart-0"))]
    refused.append(credentials(envoy, f"relay-{CLUSTER}"))
    for given in refused:
        with pytest.raises(grpc.RpcError) as error:
            export(own_collector, given)
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE
    assert accepted(own_collector) == 2


def test_a_new_authority_is_taken_up_without_a_restart(envoy: PodEnvoy, own_collector: Collector):
    """All certificates are reissued while Envoy and collector run.

    Spans continue with the new certificates. Certificates of the old authority, which both no
    longer trust, are refused.
    """
    with envoy.running():
        sends_a_span(envoy)
        eventually(lambda: envoy.stat("wasmcustom.spillway_spans_sent") >= 1, "the filter's span is taken")
        before = pair(envoy, f"sender-{CLUSTER}")
        old = (envoy.store.folder / f"sender-{CLUSTER}" / keystore.TRUST).read_text()
        (envoy.store.authority(CLUSTER) / keystore.TRUST).unlink()
        envoy.store.renew()
        new = (envoy.store.folder / f"sender-{CLUSTER}" / keystore.TRUST).read_text()
        assert new != old
        serial = envoy.store.held()[f"collector-{CLUSTER}"].serial_number
        eventually(lambda: shown(own_collector) == serial, "the collector shows its new certificate")
        eventually(
            lambda: takes(own_collector, credentials(envoy, f"sender-{CLUSTER}")), "the new sender is let in"
        )
        with pytest.raises(grpc.RpcError):
            export(own_collector, grpc.ssl_channel_credentials(new.encode(), *before))
        handshakes, sent = envoy.count("ssl.handshake", TO_COLLECTOR), "wasmcustom.spillway_spans_sent"
        sends_a_span(envoy)
        eventually(
            lambda: envoy.count("ssl.handshake", TO_COLLECTOR) > handshakes or sends_a_span(envoy),
            "Envoy connects anew",
        )
        after = envoy.stat(sent)
        sends_a_span(envoy)
        eventually(lambda: envoy.stat(sent) > after, "spans are taken by the new certificates")


def shown(running: Collector) -> int:
    """Serial number of the certificate that the collector shows now."""
    pem = ssl.get_server_certificate((HOST, running.ports["grpc"]))
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


def takes(running: Collector, given: grpc.ChannelCredentials) -> bool:
    try:
        export(running, given)
    except grpc.RpcError:
        return False
    return True


def test_otlp_over_http_asks_for_the_same(envoy: PodEnvoy, own_collector: Collector):
    """The HTTP receiver accepts spans of the cluster's senders.

    It refuses cleartext and another cluster's senders.
    """
    address, path = f"{HOST}:{own_collector.ports['http']}", "/v1/traces"
    payload = spans_request([secrets.token_bytes(16)]).SerializeToString()
    headers = {"content-type": "application/x-protobuf"}
    folder = envoy.store.folder
    for held, allowed in ((f"sender-{CLUSTER}", True), (f"sender-{OTHER}", False), (None, False)):
        context = ssl.create_default_context(cafile=str(folder / f"sender-{CLUSTER}" / keystore.TRUST))
        if held:
            context.load_cert_chain(folder / held / keystore.CERTIFICATE, folder / held / keystore.KEY)
        url = f"https://{address}{path}"
        if allowed:
            assert httpx.post(url, content=payload, headers=headers, verify=context).status_code == 200
        else:
            with pytest.raises(httpx.HTTPError):
                httpx.post(url, content=payload, headers=headers, verify=context)
    # The collector answers 400 and closes without reading the body, so the reset may overtake the
    # answer.
    try:
        assert httpx.post(f"http://{address}{path}", content=payload, headers=headers).status_code == 400
    except httpx.ReadError:
        pass
    assert accepted(own_collector) == 1
