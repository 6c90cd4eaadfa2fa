"""infra/envoy/ as the lab fills it in, run by a real Envoy.

A server that checks certificates stands in for the relay.
"""

import contextlib
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from pod_envoy import CLUSTER, OTHER, PodEnvoy, prepared
from spillway_lab.keys import certificates
from spillway_lab.keys.keystore import Keystore
from spillway_lab.render.pods import HOST
from spillway_lab.testing.servers import free_port
from spillway_lab.testing.waiting import STOP_S, eventually

pytestmark = pytest.mark.component


@pytest.fixture
def envoy(tmp_path: Path) -> PodEnvoy:
    return prepared(tmp_path, free_port())


class Relay:
    """Stands in for the relay: requests each client's certificate, records it and hangs up."""

    def __init__(self, port: int, folder: Path) -> None:
        self.folder = folder
        self.clients: list[x509.Certificate] = []
        self.protocols: list[tuple[str | None, str | None]] = []
        self._socket = socket.create_server((HOST, port))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            connection.settimeout(5)
            with (
                contextlib.suppress(OSError),
                self._context().wrap_socket(connection, server_side=True) as tls,
            ):
                # with TLS 1.3 the client may still refuse after our side of the handshake
                tls.recv(1)
                self.protocols.append((tls.version(), tls.selected_alpn_protocol()))
                self.clients.append(x509.load_der_x509_certificate(tls.getpeercert(binary_form=True)))

    def _context(self) -> ssl.SSLContext:
        """Returns a new context for each connection, because the relay reloads new files too."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.folder / "ca.crt"))
        context.load_cert_chain(self.folder / "tls.crt", self.folder / "tls.key")
        context.verify_mode = ssl.CERT_REQUIRED
        context.set_alpn_protocols(["h2"])
        return context

    def saw(self, certificate: x509.Certificate) -> bool:
        return certificate.serial_number in {client.serial_number for client in self.clients}

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(STOP_S)


@contextlib.contextmanager
def relay(envoy: PodEnvoy, cluster: str) -> Iterator[Relay]:
    """Runs the server with the certificate of a cluster's relay."""
    made = Relay(envoy.xds_port, envoy.folder / "tls" / f"relay-{cluster}")
    try:
        yield made
    finally:
        made.close()


def test_envoy_takes_the_files_without_a_warning(envoy: PodEnvoy):
    """Bootstrap, filter configuration and SDS files are valid and use nothing deprecated."""
    command = envoy.command("--mode", "validate", "-l", "warning")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr, done.stderr


def test_without_a_relay_envoy_starts_and_says_so(envoy: PodEnvoy):
    """The listeners open although relay and collector are away.

    Outbound requests are answered 503 and never 404. Inbound requests go to the application, which
    does not exist.
    """
    with envoy.running():
        for port in (envoy.pod.inbound_port, envoy.pod.outbound_port):
            # Until the listener is open there is no answer (0). Its first answer is the one that
            # counts.
            first = eventually(lambda port=port: envoy.status(port, "/"), f"an answer at port {port}")
            assert first == 503
        assert envoy.stat("cluster.spillway-app.upstream_cx_connect_fail") == 1


def test_envoy_shows_its_relay_the_pods_certificate(envoy: PodEnvoy):
    """Envoy uses TLS 1.3 and HTTP/2. Its cluster and service are the only name."""
    held = envoy.store.held()[envoy.pod.name]
    with relay(envoy, CLUSTER) as server, envoy.running():
        eventually(lambda: server.saw(held), "Envoy connects")
    assert server.protocols[0] == ("TLSv1.3", "h2")
    shown = server.clients[0].extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [name.value for name in shown] == [f"spiffe://spillway.local/cluster/{CLUSTER}/service/cart"]


def test_envoy_refuses_another_clusters_relay(envoy: PodEnvoy):
    """The pod does not trust the other cluster's authority, whatever name that has signed."""
    with relay(envoy, OTHER) as server, envoy.running():
        eventually(lambda: envoy.count("ssl.fail_verify_error") > 0, "Envoy refuses the authority")
        assert server.clients == []


def test_envoy_refuses_another_server_of_its_cluster(envoy: PodEnvoy):
    """A valid certificate of the pod's authority is not enough without the relay's identity."""
    with relay(envoy, CLUSTER) as server:
        server.folder = envoy.store.folder / f"collector-{CLUSTER}"
        with envoy.running():
            eventually(lambda: envoy.count("ssl.fail_verify_san") > 0, "Envoy refuses the name")
    assert server.clients == []


def test_envoy_refuses_a_relay_of_another_authority(envoy: PodEnvoy, tmp_path: Path):
    """The right name from an authority that the pod does not trust is not enough."""
    strangers = Keystore(tmp_path / "strangers")
    strangers.issue([certificates.relay(CLUSTER, (HOST,))])
    with relay(envoy, CLUSTER) as server:
        server.folder = strangers.folder / f"relay-{CLUSTER}"
        with envoy.running():
            eventually(lambda: envoy.count("ssl.fail_verify_error") > 0, "Envoy refuses the authority")
    assert server.clients == []


def test_new_certificates_are_taken_up_without_a_restart(envoy: PodEnvoy):
    """Pod and relay are renewed while Envoy runs, and the next connection shows the new
    certificate.

    Envoy never combines a new certificate with an old key.
    """
    with relay(envoy, CLUSTER) as server, envoy.running() as process:
        for _ in range(3):
            eventually(lambda: server.saw(envoy.store.held()[envoy.pod.name]), "Envoy connects")
            envoy.store.renew()
        eventually(lambda: server.saw(envoy.store.held()[envoy.pod.name]), "Envoy connects again")
        assert process.poll() is None
        assert len({client.serial_number for client in server.clients}) == 4
        sds = (
            f"http://{HOST}:{envoy.pod.admin_port}/stats?filter=key_rotation_failed|ssl_context_update_by_sds"
        )
        rotations = dict(line.split(": ") for line in httpx.get(sds, trust_env=False).text.splitlines())
        assert {int(n) for name, n in rotations.items() if name.endswith("key_rotation_failed")} == {0}


def test_a_new_authority_is_taken_up_without_a_restart(envoy: PodEnvoy):
    """All certificates are issued by an authority that did not exist when Envoy started."""
    with relay(envoy, CLUSTER) as server, envoy.running():
        before = envoy.store.held()[envoy.pod.name]
        eventually(lambda: server.saw(before), "Envoy connects")
        (envoy.store.authority(CLUSTER) / "ca.crt").unlink()
        envoy.store.renew()
        after = envoy.store.held()[envoy.pod.name]
        assert after.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier) != (
            before.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier)
        )
        eventually(lambda: server.saw(after), "Envoy connects again")
