"""With mutual TLS, the certificate names the caller, and headers can only repeat its name."""

import pytest
from filter_harness.authority import Authority
from filter_harness.client import get, traced
from filter_harness.proxy import Setup
from filter_harness.stack import running

pytestmark = pytest.mark.component

PATTERN = "spiffe://test/cluster/{cluster}/service/{service}"
CALLER = "spiffe://test/cluster/west/service/front"


def claims(cluster: str, service: str) -> dict[str, str]:
    """Returns the headers by which a request names its source."""
    return {"x-spillway-source-cluster": cluster, "x-spillway-source-service": service}


def test_the_certificate_names_the_caller(tmp_path) -> None:
    """The source is that of the certificate, whatever the headers claim.

    Headers that contradict it are counted. A caller without a service's certificate is anonymous.
    """
    authority = Authority(tmp_path)
    listener = authority.listener("server", "spiffe://test/cluster/east/service/cart")
    front = authority.caller(authority.issue("front", CALLER))
    other = authority.caller(authority.issue("other", "spiffe://test/cluster/west/relay"))
    nobody = authority.caller(None)
    setup = Setup(concurrency=1, peer_identity=PATTERN, tls=listener)
    with running(tmp_path, setup) as stack:
        for contradictions, (caller, claimed) in enumerate(
            [(front, claims("west", "front")), (front, claims("north", "cart"))]
        ):
            trace, parent, headers = traced()
            get(stack.proxy.inbound, "/users/1", headers | claimed, tls=caller)
            [span] = stack.collector.wait_for(lambda span, trace=trace: span.trace_id == trace, 1)
            assert span.parent == parent
            assert span.attributes["spillway.source.cluster"] == "west"
            assert span.attributes["spillway.source.service"] == "front"
            stack.proxy.wait_stat("inbound_ignored_sources", lambda value, n=contradictions: value == n)
        for count, caller in enumerate([other, nobody], start=3):
            trace, _, headers = traced()
            answer = get(stack.proxy.inbound, "/users/1", headers | claims("west", "front"), tls=caller)
            assert trace not in answer.seen["traceparent"]
            assert "x-spillway-source-service" not in answer.seen
            spans = stack.collector.wait_for(lambda span: True, count)
            assert "spillway.source.service" not in spans[-1].attributes
        stack.proxy.wait_stat("inbound_ignored_sources", lambda value: value == 3)
        stack.collector.totals.wait_for(lambda totals: sum(totals.requests().values()) == 4)
        entries = {entry: count for (name, entry), count in stack.collector.totals.requests().items() if name}
        assert entries == {True: 2, False: 2}
