"""The real filter in the real Envoy: spans, their chain, and the headers in both directions."""

import time

import pytest
from filter_harness.bootstrap import NODE
from filter_harness.client import get, traced
from filter_harness.collector import CLIENT, SERVER
from filter_harness.proxy import CLASS

pytestmark = pytest.mark.component


def pair(stack, trace: str):
    """Returns the client and the server span of a trace that crossed both listeners."""
    spans = stack.collector.wait_for(lambda span: span.trace_id == trace, 2)
    assert len(spans) == 2
    return [next(span for span in spans if span.kind == kind) for kind in (CLIENT, SERVER)]


def test_chain_and_headers(stack) -> None:
    """caller -> client span -> server span -> application: each is the parent of the next."""
    trace, caller, headers = traced()
    before = time.time_ns()
    answer = get(stack.proxy.outbound, "/users/7?secret=1", {**headers, "tracestate": "v=1"})
    after = time.time_ns()
    client, server = pair(stack, trace)
    assert (client.parent, server.parent) == (caller, client.span_id)
    assert answer.seen["traceparent"] == f"00-{trace}-{server.span_id}-01"
    assert answer.seen["tracestate"] == client.state == server.state == "v=1"
    assert answer.seen["x-spillway-source-cluster"] == "west"
    assert answer.seen["x-spillway-source-service"] == "front"
    assert answer.headers["x-spillway-cluster"] == "east"
    assert int(answer.headers["x-spillway-service-time-us"]) == server.attributes["spillway.service.time_us"]
    assert before <= client.start_ns <= server.start_ns <= server.end_ns <= client.end_ns <= after


def test_attributes(stack) -> None:
    """Class, route, parties, ruleset, times and sizes match configuration, route and answer."""
    trace, _, headers = traced()
    get(stack.proxy.outbound, "/users/7?secret=1", headers)
    client, server = pair(stack, trace)
    instance = {"service.instance.id": NODE}
    assert client.resource == {"service.name": "front", "spillway.cluster": "west", **instance}
    assert server.resource == {"service.name": "cart", "spillway.cluster": "east", **instance}
    for span in (client, server):
        assert span.name == "GET /users/{id}" and not span.failed
        expected = {
            "http.request.method": "GET", "url.path": "/users/7", "http.response.status_code": 200,
            "spillway.class": CLASS, "spillway.source.cluster": "west",
            "spillway.source.service": "front", "spillway.destination.cluster": "east",
            "spillway.destination.service": "cart", "http.request.body.size": 0,
        }  # fmt: skip
        assert expected.items() <= span.attributes.items()
        assert span.attributes["http.response.body.size"] > 100
    assert client.attributes["spillway.direction"] == "outbound"
    assert client.attributes["url.template"] == server.attributes["http.route"] == "/users/{id}"
    assert "http.route" not in client.attributes and "url.template" not in server.attributes
    assert client.attributes["server.address"] == "cart"
    assert client.attributes["spillway.ruleset.version"] == 42
    assert server.attributes["spillway.load.in_flight"] == 1
    assert client.attributes["spillway.service.time_us"] == server.attributes["spillway.service.time_us"]
    assert client.attributes["spillway.network.time_us"] >= 0
    for absent in ("spillway.ruleset.version", "spillway.network.time_us"):
        assert absent not in server.attributes


def test_network_time_excludes_the_service(stack) -> None:
    """Network time excludes the time that the callee reports: both fit into the caller's span."""
    trace, _, headers = traced()
    get(stack.proxy.outbound, "/slow/200", headers)
    client, server = pair(stack, trace)
    assert server.attributes["spillway.service.time_us"] >= 200_000
    duration_us = (client.end_ns - client.start_ns) // 1_000
    assert (
        client.attributes["spillway.network.time_us"]
        <= duration_us - server.attributes["spillway.service.time_us"]
    )


def test_catch_all_has_no_class_and_bodies_are_counted(stack) -> None:
    """The route `other` is no class. Both sides measure the request's body to the byte."""
    trace, _, headers = traced()
    get(stack.proxy.outbound, "/upload", headers, body=b"x" * 200_001)
    for span in pair(stack, trace):
        assert not {"spillway.class", "http.route", "url.template"} & set(span.attributes)
        assert span.name == "POST"
        assert span.attributes["http.request.body.size"] == 200_001


def test_new_traces_are_sampled_and_distinct(stack) -> None:
    """Without a trace header each request starts its own sampled trace."""
    seen = {get(stack.proxy.outbound, "/users/1").seen["traceparent"] for _ in range(20)}
    assert len({value.split("-")[1] for value in seen}) == 20
    assert all(value.endswith("-03") for value in seen)


def test_b3_is_continued(stack) -> None:
    """A trace in single or multi B3 headers is continued, and keeps its caller as the parent."""
    trace, span, _ = traced()
    get(stack.proxy.outbound, "/users/1", {"b3": f"{trace}-{span}-1"})
    assert pair(stack, trace)[0].parent == span
    trace, span, _ = traced()
    multi = {"X-B3-TraceId": trace, "X-B3-SpanId": span, "X-B3-Sampled": "1"}
    answer = get(stack.proxy.outbound, "/users/1", multi)
    client, server = pair(stack, trace)
    assert (client.parent, server.parent) == (span, client.span_id)
    # Each side rewrites B3 beside traceparent, so an application that propagates only B3 continues
    # the span of its own proxy.
    assert answer.seen["x-b3-spanid"] == server.span_id


def test_unsampled_leaves_no_span_but_is_load(lone) -> None:
    """The sampled flag decides about spans only: the arrival still counts."""
    trace, caller, headers = traced(sampled=False)
    answer = get(lone.proxy.outbound, "/users/1", headers)
    assert answer.seen["traceparent"] == f"00-{trace}-{caller}-00"
    assert lone.proxy.stats()["inbound_arrivals"] == 1
    assert not lone.traces()


@pytest.mark.parametrize(("path", "status"), [("/status/500", 500), ("/status/404", 404), ("/reset", 503)])
def test_failures(stack, path: str, status: int) -> None:
    """Server errors and resets by the application fail the span; a 404 does not."""
    trace, _, headers = traced()
    assert get(stack.proxy.outbound, path, headers).status == status
    for span in pair(stack, trace):
        assert span.attributes["http.response.status_code"] == status
        assert span.failed == (status >= 500)


def test_malformed_input_is_counted_not_fatal(stack) -> None:
    """Garbage in any header that the filter reads fails no request, and is counted."""
    before = stack.proxy.stats()["outbound_malformed_traces"]
    garbage = {"traceparent": "00-zz", "tracestate": "\xff\xfe", "x-spillway-source-cluster": "\xfc"}
    assert get(stack.proxy.outbound, "/users/1", garbage).status == 200
    assert get(stack.proxy.inbound, "/users/1", garbage).status == 200
    stack.proxy.wait_stat("outbound_malformed_traces", lambda value: value == before + 1)
