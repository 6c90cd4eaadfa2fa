"""B3 beside W3C: an application can propagate either and still refers to its own proxy's span."""

import pytest
from filter_harness.client import get, traced
from filter_harness.collector import CLIENT, SERVER

pytestmark = pytest.mark.component


def multi(trace: str, span: str, **more: str) -> dict[str, str]:
    """Returns the B3 headers of a caller that propagates several of them."""
    return {"x-b3-traceid": trace, "x-b3-spanid": span, **more}


def through(stack, headers: dict[str, str], trace: str) -> tuple[dict[str, str], str, str]:
    """Returns the headers that the application saw, and the span ids of client and server side."""
    answer = get(stack.proxy.outbound, "/users/1", headers)
    spans = stack.collector.wait_for(lambda span: span.trace_id == trace, 2)
    client, server = (next(span for span in spans if span.kind == kind) for kind in (CLIENT, SERVER))
    assert server.parent == client.span_id
    return answer.seen, client.span_id, server.span_id


@pytest.mark.parametrize("w3c", [False, True])
def test_the_application_finds_its_own_proxy_in_every_shape(stack, w3c: bool) -> None:
    """B3 arrives alone, or beside a traceparent of another trace, which wins.

    At the application, single B3, multi B3 and traceparent all name one trace and the server's
    span. They never name the caller's span.
    """
    trace, span, headers = traced()
    other, _, _ = traced()
    b3_trace = other if w3c else trace
    shapes = {
        "b3": f"{b3_trace}-{span}-1",
        **multi(b3_trace, span, **{"x-b3-parentspanid": span, "x-b3-sampled": "1"}),
    }
    seen, _, server = through(stack, {**shapes, **(headers if w3c else {})}, trace)
    assert seen["traceparent"] == f"00-{trace}-{server}-01"
    assert seen["b3"] == f"{trace}-{server}-1"
    assert (seen["x-b3-traceid"], seen["x-b3-spanid"], seen["x-b3-sampled"]) == (trace, server, "1")
    assert "x-b3-parentspanid" not in seen


def test_debug_and_undecided_callers(stack) -> None:
    """Debug stays debug. An undecided caller's decision is made once and then passed on."""
    trace, span, _ = traced()
    seen, _, server = through(stack, {"b3": f"{trace}-{span}-d"}, trace)
    assert seen["b3"] == f"{trace}-{server}-d"
    trace, span, _ = traced()
    seen, _, server = through(stack, multi(trace, span, **{"x-b3-flags": "1"}), trace)
    assert (seen["x-b3-spanid"], seen["x-b3-flags"]) == (server, "1") and "x-b3-sampled" not in seen
    trace, span, _ = traced()
    seen, _, server = through(stack, multi(trace, span), trace)
    assert (seen["x-b3-spanid"], seen["x-b3-sampled"]) == (server, "1")


def test_a_malformed_b3_does_not_hide_the_other(stack) -> None:
    """The single header is garbage, and the multi headers carry a trace.

    That trace is continued, and the garbage is counted.
    """
    before = stack.proxy.stats()["outbound_malformed_traces"]
    trace, span, _ = traced()
    seen, _, server = through(stack, {"b3": "garbage", **multi(trace, span, **{"x-b3-sampled": "1"})}, trace)
    assert seen["b3"] == f"{trace}-{server}-1", "and what goes on is whole"
    stack.proxy.wait_stat("outbound_malformed_traces", lambda value: value == before + 1)
    assert stack.proxy.stats()["inbound_malformed_traces"] == 0


def test_unsampled_b3_is_left_alone(stack) -> None:
    """A caller's decision not to sample is honoured: its headers arrive unchanged."""
    trace, span, _ = traced()
    value = f"{trace}-{span}-0"
    seen = get(stack.proxy.outbound, "/users/1", {"b3": value}).seen
    assert seen["b3"] == value and "traceparent" not in seen
