"""TLS on both ends of the gateway.

The broker requires a certificate and a password. Senders connect over TLS.
"""

import secrets
import ssl
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import pytest
from collector_process import CLUSTER, Collector, collector, span_keys, spans_request
from spillway_lab.testing import secure_kafka, servers
from spillway_lab.testing.kafka import kafka_process
from spillway_lab.testing.tls_files import TlsFiles, tls_files
from spillway_lab.testing.waiting import eventually
from topics import clusters, messages_of
from trace_exports import TRACE_EXPORT

pytestmark = [pytest.mark.component, pytest.mark.timeout(300)]
USER, PASSWORD = "west", "pass word $HOME #1"
LOGIN = f'plain.PlainLoginModule required user_{USER}="{PASSWORD}"'


@pytest.fixture(scope="module")
def tls(tmp_path_factory) -> TlsFiles:
    return tls_files(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def brokers(tmp_path_factory, tls) -> Iterator[tuple[str, str]]:
    """Yields a broker's two addresses: plaintext for the test's reader, and TLS with SASL."""
    folder = tmp_path_factory.mktemp("broker")
    secure = f"127.0.0.1:{servers.free_port()}"
    process = kafka_process(folder)
    with (folder / "kafka" / "server.properties").open("a") as properties:
        properties.write(secure_kafka.listener(folder, secure, tls, "PLAIN", LOGIN))
    with process as server:
        yield server.url, secure


def client(tls: TlsFiles, password_file: Path) -> dict[str, str]:
    return {
        "SPILLWAY_KAFKA_TLS_CA": str(tls.ca),
        "SPILLWAY_KAFKA_TLS_CERT": str(tls.certificate),
        "SPILLWAY_KAFKA_TLS_KEY": str(tls.key),
        "SPILLWAY_KAFKA_SASL": "PLAIN",
        "SPILLWAY_KAFKA_SASL_USER": USER,
        "SPILLWAY_KAFKA_SASL_PASSWORD_FILE": str(password_file),
    }


def until_an_attempt_failed(running: Collector) -> None:
    failed = "otelcol_exporter_kafka_partition_failed_messages{"
    eventually(lambda: failed in running.metrics(), "an attempt has failed")


def test_a_corrected_password_sends_what_waited(brokers, tls, tmp_path, clean_environment):
    """Over mutual TLS, spans wait in the queue while the password is wrong.

    They arrive once the password file is right.
    """
    clear, secure = brokers
    password = tmp_path / "password"
    password.write_text("wrong\n")
    running = collector(tmp_path / "collector", secure, clean_environment | client(tls, password))
    running.server.start()
    trace_id = secrets.token_bytes(16)
    try:
        running.export_grpc(spans_request([trace_id]).SerializeToString())
        until_an_attempt_failed(running)
        assert "dropped_items{" not in running.metrics()
        password.write_text(PASSWORD + "\n")
        messages = messages_of(clear, [trace_id], 1)
    finally:
        running.server.stop()
    assert span_keys(messages) == [(trace_id, (1).to_bytes(8, "big"))]


def test_a_managed_broker_is_trusted_by_the_systems_roots(brokers, tls, tmp_path, clean_environment):
    """With `system` in place of a file, the collector trusts the roots of its machine.

    In this test they are the broker's authority.
    """
    clear, secure = brokers
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    environment = client(tls, password) | {
        "SPILLWAY_KAFKA_TLS_CA": "system",
        "SSL_CERT_FILE": str(tls.ca),
        "SSL_CERT_DIR": str(tmp_path),
    }
    running = collector(tmp_path / "collector", secure, clean_environment | environment)
    running.server.start()
    trace_id = secrets.token_bytes(16)
    try:
        running.export_grpc(spans_request([trace_id]).SerializeToString())
        messages = messages_of(clear, [trace_id], 1)
    finally:
        running.server.stop()
    assert span_keys(messages) == [(trace_id, (1).to_bytes(8, "big"))]


def test_a_broker_of_another_authority_gets_nothing(brokers, tls, tmp_path, clean_environment):
    """The collector does not send to a broker whose certificate the bundle does not sign.

    Spans stay in the queue, and none is dropped.
    """
    _, secure = brokers
    stranger = tls_files(tmp_path / "stranger")
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    environment = client(tls, password) | {"SPILLWAY_KAFKA_TLS_CA": str(stranger.ca)}
    running = collector(tmp_path / "collector", secure, clean_environment | environment)
    running.server.start()
    try:
        running.export_grpc(spans_request([secrets.token_bytes(16)]).SerializeToString())
        until_an_attempt_failed(running)
        assert "otelcol_exporter_kafka_partition_messages{" not in running.metrics()
        assert "certificate signed by unknown authority" in (tmp_path / "collector/collector.log").read_text()
    finally:
        running.server.stop()


def test_a_missing_certificate_file_ends_the_start(tls, tmp_path, clean_environment):
    """Broken TLS files end the start, instead of showing at the first span."""
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    running = collector(
        tmp_path, "kafka.test:9093", clean_environment | {"SPILLWAY_KAFKA_TLS_CA": str(broken)}
    )
    with pytest.raises(RuntimeError, match="did not become ready"):
        running.server.start()
    assert "tls" in (tmp_path / "collector.log").read_text().lower()


@pytest.fixture
def asking(brokers, tls, tmp_path, clean_environment) -> Iterator[Collector]:
    """A collector whose senders must show a certificate."""
    environment = {
        "SPILLWAY_OTLP_TLS_CERT": str(tls.certificate),
        "SPILLWAY_OTLP_TLS_KEY": str(tls.key),
        "SPILLWAY_OTLP_TLS_CLIENT_CA": str(tls.ca),
    }
    running = collector(tmp_path / "collector", brokers[0], clean_environment | environment)
    running.server.start()
    yield running
    running.server.stop()


def export(running: Collector, payload: bytes, *credentials: bytes) -> None:
    """Exports over gRPC and TLS.

    `credentials` are the authority, and then the sender's key and certificate if it has them.
    """
    secured = grpc.ssl_channel_credentials(*credentials)
    with grpc.secure_channel(f"127.0.0.1:{running.ports['grpc']}", secured) as channel:
        channel.unary_unary(TRACE_EXPORT)(payload, timeout=10, wait_for_ready=True)


def test_senders_must_show_a_certificate_when_asked_to(asking, tls):
    """With a client CA, both receivers take OTLP over mutual TLS only.

    They refuse plaintext and senders without a certificate.
    """
    payload = spans_request([secrets.token_bytes(16)]).SerializeToString()
    ca, key, certificate = (file.read_bytes() for file in (tls.ca, tls.key, tls.certificate))
    address = f"127.0.0.1:{asking.ports['grpc']}"
    url = f"https://127.0.0.1:{asking.ports['http']}/v1/traces"
    pair = (str(tls.certificate), str(tls.key))
    headers = {"content-type": "application/x-protobuf"}
    export(asking, payload, ca, key, certificate)
    assert httpx.post(url, content=payload, headers=headers, verify=context(tls, pair)).status_code == 200
    for channel in (
        grpc.insecure_channel(address),
        grpc.secure_channel(address, grpc.ssl_channel_credentials(ca)),
    ):
        with channel, pytest.raises(grpc.RpcError):
            channel.unary_unary(TRACE_EXPORT)(payload, timeout=10)
    with pytest.raises(httpx.HTTPError):
        httpx.post(url, content=payload, headers=headers, verify=context(tls, None))


def test_a_member_of_a_cluster_speaks_for_no_other(asking, brokers, tls):
    """A sender with a certificate of the cluster's authority belongs to that cluster.

    A cluster that its spans name is overwritten.
    """
    trace_id = secrets.token_bytes(16)
    payload = spans_request([trace_id], spillway__cluster="elsewhere").SerializeToString()
    export(asking, payload, *(file.read_bytes() for file in (tls.ca, tls.key, tls.certificate)))
    for message in messages_of(brokers[0], [trace_id], 1):
        assert clusters(message) == {CLUSTER}


def context(tls: TlsFiles, pair: tuple[str, str] | None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(tls.ca))
    if pair:
        made.load_cert_chain(*pair)
    return made
