"""The agent of a node: takes OTLP at once, keeps it on disk, hands it to the gateways over TLS."""

import secrets
import time
from collections.abc import Callable

import pytest
from agent_process import NODE, PLAIN, Gateway, agent
from collector_process import CLUSTER, spans_request
from fake_dns import FakeDns
from spillway_contracts import names
from spillway_lab.testing import servers
from tls_files import tls_files

pytestmark = [pytest.mark.component, pytest.mark.timeout(120)]


def eventually(condition: Callable[[], bool], seconds: float = 30.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def send(target, count: int) -> set[bytes]:
    """So many traces of one span, each in its own request; their ids."""
    trace_ids = {secrets.token_bytes(16) for _ in range(count)}
    for trace_id in trace_ids:
        target.export_grpc(spans_request([trace_id], service__name="cart").SerializeToString())
    return trace_ids


def test_gateways_share_the_load_over_tls_and_spans_name_cluster_and_node(tmp_path, clean_environment):
    """Both addresses of the gateway's name get spans, over TLS; each span's resource has cluster and host."""
    tls, port = tls_files(tmp_path / "tls"), servers.free_port()
    with (
        Gateway(f"127.0.0.1:{port}", tls) as one,
        Gateway(f"127.0.0.2:{port}", tls) as other,
        FakeDns("gateway.test", ["127.0.0.1", "127.0.0.2"]) as dns,
    ):
        running = agent(
            tmp_path / "agent",
            f"https://gateway.test:{port}",
            clean_environment,
            PLAIN,
            # The same name, asked of the test's own name server.
            f"exporters::otlp_grpc::endpoint: dns://{dns.address}/gateway.test:{port}",
            SPILLWAY_GATEWAY_CA=str(tls.ca),
        )
        running.server.start()
        try:
            sent: set[bytes] = set()
            while not (one.requests and other.requests) and len(sent) < 400:
                sent |= send(running, 4)
                time.sleep(0.15)
            assert eventually(lambda: one.spans() | other.spans() == sent)
            assert one.requests and other.requests
        finally:
            running.server.stop()
    for request in one.requests + other.requests:
        for resource_spans in request.resource_spans:
            found = {a.key: a.value.string_value for a in resource_spans.resource.attributes}
            assert found == {
                names.SPAN_ATTRIBUTE_SERVICE: "cart",
                names.SPAN_ATTRIBUTE_CLUSTER: CLUSTER,
                "host.name": NODE,
            }


def test_what_was_taken_survives_gateways_that_refuse_and_the_agents_own_death(tmp_path, clean_environment):
    """A gateway refuses, then the agent is killed: after both are back every accepted span is with the gateway."""
    tls, port = tls_files(tmp_path / "tls"), servers.free_port()
    with Gateway(f"127.0.0.1:{port}", tls) as gateway:
        gateway.refusing = True
        running = agent(
            tmp_path / "agent",
            f"https://127.0.0.1:{port}",
            clean_environment,
            PLAIN,
            SPILLWAY_GATEWAY_CA=str(tls.ca),
        )
        running.server.start()
        try:
            sent = send(running, 20)
            assert gateway.refused.wait(10)
            running.server.kill()
            running.server.start()
            sent |= send(running, 20)
            gateway.refusing = False
            assert eventually(lambda: gateway.spans() >= sent)
            assert gateway.spans() == sent
        finally:
            running.server.stop()


def test_a_gateway_that_cannot_prove_itself_gets_nothing(tmp_path, clean_environment):
    """Another authority's certificate: no span leaves, and none is lost: with the right one it arrives."""
    tls, foreign, port = tls_files(tmp_path / "tls"), tls_files(tmp_path / "foreign"), servers.free_port()
    running = agent(
        tmp_path / "agent",
        f"https://127.0.0.1:{port}",
        clean_environment,
        PLAIN,
        SPILLWAY_GATEWAY_CA=str(tls.ca),
    )
    running.server.start()
    try:
        with Gateway(f"127.0.0.1:{port}", foreign) as impostor:
            sent = send(running, 5)
            assert eventually(lambda: "certificate" in running.server.log.read_text())
            assert not impostor.requests
        with Gateway(f"127.0.0.1:{port}", tls) as gateway:
            assert eventually(lambda: gateway.spans() == sent)
    finally:
        running.server.stop()
