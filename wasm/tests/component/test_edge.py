"""Edge mode: a request from an untrusted client counts as one request, whatever it claims."""

import pytest
from filter_harness.client import get, traced
from filter_harness.collector import SERVER
from filter_harness.proxy import CLASS, Setup
from filter_harness.stack import running

pytestmark = pytest.mark.component


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory):
    with running(tmp_path_factory.mktemp("edge"), Setup(edge=True)) as stack:
        yield stack


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
FORGED = {
    "a sampling threshold of 2^20": {
        "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01",
        "tracestate": "ot=th:fffff",
    },
    "an unsampled trace": {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-00"},
    "an unsampled trace of B3": {"b3": f"{TRACE}-00f067aa0ba902b7-0"},
    "a debug trace of B3": {"x-b3-traceid": TRACE, "x-b3-spanid": "00f067aa0ba902b7", "x-b3-flags": "1"},
    "a service of the mesh": {"x-spillway-source-service": "front", "x-spillway-source-cluster": "west"},
    "the mesh's answers": {"x-spillway-no-answer": "UF", "x-spillway-service-time-us": "1"},
    "the tries of a proxy": {"x-envoy-attempt-count": "7"},
}


@pytest.mark.parametrize("claim", FORGED)
def test_a_forged_claim_is_one_request(edge, claim: str) -> None:
    """The request makes one span of a new trace, with an adjusted count of 1.

    It adds one entry to the totals, and the application sees none of the claims.
    """
    totals, spans = edge.collector.totals, edge.collector.spans
    totals.wait_for(lambda totals: len(totals.exports) > 0)
    before, seen = totals.requests().get((CLASS, True), 0), len(spans)
    answer = get(edge.proxy.inbound, "/users/1", FORGED[claim])
    assert answer.status == 200
    totals.wait_for(lambda totals: totals.requests().get((CLASS, True), 0) > before)
    totals.wait_for(lambda totals: totals.spans()["sent"] == seen + 1)
    assert totals.requests() == {
        (CLASS, True): before + 1,
        (CLASS, False): 0,
        (None, True): 0,
        (None, False): 0,
    }
    [span] = spans[seen:]
    assert span.kind == SERVER and span.trace_id != TRACE and not span.parent and not span.state
    assert not {"spillway.source.service", "spillway.source.cluster", "http.request.resend_count"} & set(
        span.attributes
    )
    assert answer.seen["traceparent"] == f"00-{span.trace_id}-{span.span_id}-03"
    assert "tracestate" not in answer.seen
    assert not [name for name in answer.seen if name.startswith("x-spillway-")]
    assert not [
        value for name, value in answer.seen.items() if name.startswith(("b3", "x-b3")) and TRACE in value
    ]


def test_ignored_sources_are_counted(edge) -> None:
    """Requests that claim to come from a service of the mesh are counted in the stats."""
    before = edge.proxy.stats()["inbound_ignored_sources"]
    get(edge.proxy.inbound, "/users/1", FORGED["a service of the mesh"])
    edge.proxy.wait_stat("inbound_ignored_sources", lambda value: value == before + 1)


def test_behind_the_edge_the_mesh_is_believed(stack) -> None:
    """Without edge mode, the same claims by a proxy of the mesh continue its trace.

    Its calls are not counted as entries.
    """
    trace, _, headers = traced()
    get(stack.proxy.outbound, "/users/1", headers)
    [server] = stack.collector.wait_for(lambda span: span.trace_id == trace and span.kind == SERVER, 1)
    assert server.attributes["spillway.source.service"] == "front"
    stack.collector.totals.wait_for(lambda totals: totals.requests().get((CLASS, False), 0) >= 1)
