"""A collector signs in to Kafka by OAUTHBEARER.

The broker checks signed tokens, and ends a connection when its token expires.
"""

import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from collector_process import Collector, collector, span_keys, spans_request
from spillway_lab.testing import secure_kafka, servers
from spillway_lab.testing.kafka import kafka_server_of
from spillway_lab.testing.tls_files import TlsFiles, tls_files
from spillway_lab.testing.tokens import TokenServer, token_server
from spillway_lab.testing.waiting import eventually
from topics import messages_of

pytestmark = [pytest.mark.component, pytest.mark.timeout(300)]
# HTTP basic authentication carries these characters only when they are encoded
USER, SECRET = "west:1", "s%cret +&=/ü"
LIFE_S = 5


@pytest.fixture(scope="module")
def tls(tmp_path_factory) -> TlsFiles:
    return tls_files(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def tokens(tmp_path, tls) -> Iterator[TokenServer]:
    with token_server(tmp_path / "tokens", tls, {USER: SECRET}, LIFE_S) as running:
        yield running


@pytest.fixture
def brokers(tmp_path, tls, tokens) -> Iterator[tuple[str, str]]:
    """Yields a broker's two addresses: plaintext for the test's reader, and TLS with tokens."""
    secure = f"127.0.0.1:{servers.free_port()}"
    server = kafka_server_of(tmp_path)
    server.environment |= secure_kafka.token_options(tokens)
    with (tmp_path / "kafka" / "server.properties").open("a") as properties:
        properties.write(secure_kafka.token_listener(tmp_path, secure, tls, tokens))
    with servers.running(server):
        yield server.url, secure


@pytest.fixture
def running(brokers, tokens, tls, tmp_path, clean_environment) -> Iterator[Collector]:
    """A collector whose secret file holds a wrong secret."""
    (tmp_path / "secret").write_text("wrong\n")
    environment = secure_kafka.token_environment(tokens, tls) | {
        "SPILLWAY_KAFKA_TLS_CA": str(tls.ca),
        "SPILLWAY_KAFKA_TLS_CERT": str(tls.certificate),
        "SPILLWAY_KAFKA_TLS_KEY": str(tls.key),
        "SPILLWAY_KAFKA_SASL_USER": USER,
        "SPILLWAY_KAFKA_SASL_PASSWORD_FILE": str(tmp_path / "secret"),
    }
    made = collector(tmp_path / "collector", brokers[1], clean_environment | environment)
    made.server.start()
    yield made
    made.server.stop()


def failures(running: Collector) -> list[str]:
    name = "otelcol_exporter_kafka_partition_failed_messages{"
    return [line for line in running.metrics().splitlines() if line.startswith(name)]


def export(running: Collector) -> bytes:
    trace_id = secrets.token_bytes(16)
    running.export_grpc(spans_request([trace_id]).SerializeToString())
    return trace_id


def test_a_corrected_secret_sends_what_waited_and_new_tokens_go_on(running, brokers, tokens, tmp_path: Path):
    """With a wrong secret, spans wait in the queue. They arrive once the secret file is right.

    Spans of the next three token lives arrive, too, without a failure. No log has the secret.
    """
    waiting = export(running)
    eventually(lambda: failures(running), "an attempt has failed")
    assert all('reason="no_token"' in line for line in failures(running)), failures(running)
    assert "dropped_items{" not in running.metrics() and tokens.given == []
    log = tmp_path / "collector" / "collector.log"
    assert "no token from 127.0.0.1: HTTP 401, invalid_client" in log.read_text()

    (tmp_path / "secret").write_text(SECRET + "\n")
    assert span_keys(messages_of(brokers[0], [waiting], 1)) == [(waiting, (1).to_bytes(8, "big"))]
    before = failures(running)
    until, sent = time.monotonic() + 3 * LIFE_S, []
    while time.monotonic() < until:
        sent.append(export(running))
        time.sleep(0.5)
    found = span_keys(messages_of(brokers[0], sent, len(sent)))
    assert sorted(found) == sorted((trace_id, (1).to_bytes(8, "big")) for trace_id in sent)
    assert failures(running) == before
    assert len(tokens.given) >= 4
    assert SECRET not in log.read_text() and "eyJ" not in log.read_text()
