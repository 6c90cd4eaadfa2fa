"""In-flight requests over two workers, and the gauge for every way in which a request can end."""

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from filter_harness.client import get, traced
from filter_harness.collector import SERVER

pytestmark = pytest.mark.component


def test_in_flight_is_shared_by_workers(stack) -> None:
    """Thirty requests are held at once, over both workers: the stamps count up to thirty."""
    with ThreadPoolExecutor(30) as pool:
        with stack.app.holding():
            answers = [pool.submit(get, stack.proxy.inbound, "/held/30") for _ in range(30)]
            stack.proxy.wait_stat("inbound_in_flight", lambda value: value == 30)
        assert all(answer.result().status == 200 for answer in answers)
    spans = stack.collector.wait_for(
        lambda s: s.kind == SERVER and s.attributes["url.path"] == "/held/30", 30
    )
    stamps = sorted(span.attributes["spillway.load.in_flight"] for span in spans)
    # A worker adds its request to the gauge, and then reads it. The other worker can add at most
    # one request in between. So a stamp exceeds its rank by at most one, and is never below it.
    assert stamps[-1] == 30
    assert all(stamp - rank in (0, 1) for rank, stamp in enumerate(stamps, start=1)), stamps
    stack.proxy.wait_stat("inbound_in_flight", lambda value: value == 0)


def abandoned(stack, path: str, headers: str = "") -> None:
    """Sends a request and leaves while the application works on it."""
    with socket.create_connection(("127.0.0.1", stack.proxy.outbound)) as caller:
        caller.sendall(f"GET {path} HTTP/1.1\r\nhost: cart\r\n{headers}\r\n".encode())
        stack.proxy.wait_stat("inbound_in_flight", lambda value: value == 1)


def test_in_flight_returns_to_zero_after_resets(stack) -> None:
    """Callers that leave, applications that reset, and errors release their load exactly once."""
    before = stack.proxy.stats()
    for _ in range(10):
        with stack.app.holding():
            abandoned(stack, "/held/x")
            stack.proxy.wait_idle()
        get(stack.proxy.outbound, "/reset")
        get(stack.proxy.outbound, "/status/500")
        stack.proxy.wait_idle()
        after = stack.proxy.stats()
        assert (after["inbound_in_flight"], after["outbound_in_flight"]) == (0, 0)
    for side in ("inbound", "outbound"):
        assert after[f"{side}_arrivals"] == before[f"{side}_arrivals"] + 30


def test_abandoned_request_is_a_failed_span_without_status(stack) -> None:
    """A caller leaves before the response: its spans fail and have no status.

    It does not matter how long the application still works on the request.
    """
    trace, _, headers = traced()
    with stack.app.holding():
        abandoned(stack, "/held/x", f"traceparent: {headers['traceparent']}\r\n")
        for span in stack.collector.wait_for(lambda s: s.trace_id == trace, 2):
            assert span.failed and "http.response.status_code" not in span.attributes


def test_long_lived_streams_are_counted_and_leave_no_span(lone) -> None:
    """An upgrade and an event stream add no latency sample and no load, and count once per side."""
    _, _, headers = traced()
    with lone.app.holding(), socket.create_connection(("127.0.0.1", lone.proxy.outbound)) as caller:
        upgrade = "connection: upgrade\r\nupgrade: websocket\r\n"
        line = (
            f"GET /upgrade HTTP/1.1\r\nhost: cart\r\n{upgrade}traceparent: {headers['traceparent']}\r\n\r\n"
        )
        caller.sendall(line.encode())
        assert caller.recv(100).startswith(b"HTTP/1.1 101")
        assert lone.proxy.stats()["inbound_in_flight"] == 0, "an open tunnel is no load"
        _, _, headers = traced()
        assert get(lone.proxy.outbound, "/events", headers).status == 200
    assert not lone.traces()
    lone.proxy.wait_stats(lambda stats: stats["inbound_long_lived"] == stats["outbound_long_lived"] == 2)
    stats = lone.proxy.stats()
    assert (stats["inbound_in_flight"], stats["outbound_in_flight"]) == (0, 0)
