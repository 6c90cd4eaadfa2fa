"""The agent of a node: takes OTLP at once, keeps it on disk, sends it to the gateways over TLS."""

import secrets
import time

import grpc
import pytest
from agent_process import NODE, PLAIN, Gateway, agent
from collector_process import CLUSTER, spans_request
from fake_dns import FakeDns
from spillway_contracts import names
from spillway_lab.testing import servers
from spillway_lab.testing.tls_files import tls_files
from spillway_lab.testing.waiting import eventually
from topics import heavy_request

pytestmark = [pytest.mark.component, pytest.mark.timeout(300)]


@pytest.fixture
def agent_of(tmp_path, tls, clean_environment):
    """Makes agents, not started, of the gateway on a given port, whose CA they trust."""

    def make(port: int):
        gateway, ca = f"https://127.0.0.1:{port}", str(tls.ca)
        # Long enough for a busy gateway: a batch that is answered too late arrives twice.
        patient = "exporters::otlp_grpc::timeout: 60s"
        return agent(tmp_path / "agent", gateway, clean_environment, PLAIN, patient, SPILLWAY_GATEWAY_CA=ca)

    return make


@pytest.fixture
def tls(tmp_path):
    return tls_files(tmp_path / "tls")


def send(target, count: int) -> set[bytes]:
    """Sends `count` traces of one span, each in its own request. Returns their ids."""
    trace_ids = {secrets.token_bytes(16) for _ in range(count)}
    for trace_id in trace_ids:
        target.export_grpc(spans_request([trace_id], service__name="cart").SerializeToString())
    return trace_ids


def test_gateways_share_the_load_over_tls_and_spans_name_cluster_and_node(tmp_path, tls, clean_environment):
    """Both addresses of the gateway's name receive spans over TLS.

    Each span's resource names cluster and host.
    """
    port = servers.free_port()
    with (
        Gateway(f"127.0.0.1:{port}", tls) as left,
        Gateway(f"127.0.0.2:{port}", tls) as right,
        FakeDns("gateway.test", ["127.0.0.1", "127.0.0.2"]) as dns,
    ):
        running = agent(
            tmp_path / "agent",
            f"https://gateway.test:{port}",
            clean_environment,
            PLAIN,
            # The same name, resolved by the test's own name server.
            f"exporters::otlp_grpc::endpoint: dns://{dns.address}/gateway.test:{port}",
            SPILLWAY_GATEWAY_CA=str(tls.ca),
        )
        running.server.start()
        try:
            sent: set[bytes] = set()
            while not (left.requests and right.requests) and len(sent) < 400:
                sent |= send(running, 4)
                time.sleep(0.15)
            eventually(lambda: {*left.trace_ids(), *right.trace_ids()} == sent, "every span has arrived")
            assert left.requests and right.requests
        finally:
            running.server.stop()
    for request in left.requests + right.requests:
        for resource_spans in request.resource_spans:
            found = {a.key: a.value.string_value for a in resource_spans.resource.attributes}
            assert found == {
                names.SPAN_ATTRIBUTE_SERVICE: "cart",
                names.SPAN_ATTRIBUTE_CLUSTER: CLUSTER,
                "host.name": NODE,
            }


def test_what_was_taken_survives_gateways_that_refuse_and_the_agents_own_death(agent_of, tls):
    """A gateway refuses, and then the agent is killed.

    Once both are back, every accepted span reaches the gateway.
    """
    port = servers.free_port()
    with Gateway(f"127.0.0.1:{port}", tls) as gateway:
        gateway.refusing = True
        running = agent_of(port)
        running.server.start()
        try:
            sent = send(running, 20)
            assert gateway.refused.wait(60)
            running.server.kill()
            running.server.start()
            sent |= send(running, 20)
            gateway.refusing = False
            eventually(lambda: {*gateway.trace_ids()} >= sent, "every accepted span is with the gateway")
            assert {*gateway.trace_ids()} == sent
        finally:
            running.server.stop()


def test_a_gateway_that_cannot_prove_itself_gets_nothing(agent_of, tls, tmp_path):
    """The gateway has a certificate of another authority: no span leaves, and none is lost.

    A gateway with the right certificate then receives them.
    """
    foreign, port = tls_files(tmp_path / "foreign"), servers.free_port()
    running = agent_of(port)
    running.server.start()
    try:
        with Gateway(f"127.0.0.1:{port}", foreign) as impostor:
            sent = send(running, 5)
            unknown = "certificate signed by unknown authority"
            eventually(
                lambda: unknown in running.server.log.read_text(), "the agent says why it does not send"
            )
            assert not impostor.requests
        with Gateway(f"127.0.0.1:{port}", tls) as gateway:
            eventually(lambda: {*gateway.trace_ids()} == sent, "what had waited is with the gateway")
    finally:
        running.server.stop()


def test_a_large_span_is_refused_or_arrives_with_its_neighbours(agent_of, tls):
    """Every accepted span arrives, whatever its size.

    A request above the limit is refused for good before it is accepted.
    """
    port = servers.free_port()
    with Gateway(f"127.0.0.1:{port}", tls) as gateway:
        running = agent_of(port)
        running.server.start()
        try:
            fits, too_large = secrets.token_bytes(16), secrets.token_bytes(16)
            running.export_grpc(heavy_request(fits, [10, 3_900_000, 10]).SerializeToString())
            payload = heavy_request(too_large, [10, 5_000_000, 10]).SerializeToString()
            with pytest.raises(grpc.RpcError) as refused:
                running.export_grpc(payload)
            assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert running.export_http("/v1/traces", payload).status_code in (400, 413)
            later = send(running, 3)
            eventually(lambda: later <= {*gateway.trace_ids()}, "spans that came later are with the gateway")
            wanted = sorted([fits] * 3 + list(later))
            eventually(
                lambda: sorted(gateway.trace_ids()) == wanted, "every accepted span is with the gateway"
            )
        finally:
            running.server.stop()
