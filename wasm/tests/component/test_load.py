"""Load at arrival with two workers, and the in-flight gauge under every way a request can end."""

import socket
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from filter_harness.client import get, traced
from filter_harness.collector import SERVER

pytestmark = pytest.mark.component


def server_spans(stack, path: str, count: int):
    return stack.collector.wait_for(lambda s: s.kind == SERVER and s.attributes["url.path"] == path, count)


def test_in_flight_is_shared_by_workers(stack) -> None:
    """Thirty requests held at once, spread over both workers: the stamps count up to thirty."""
    with ThreadPoolExecutor(30) as pool:
        answers = list(pool.map(lambda _: get(stack.proxy.inbound, "/slow/1500"), range(30)))
    assert all(answer.status == 200 for answer in answers)
    stamps = sorted(s.attributes["spillway.load.in_flight"] for s in server_spans(stack, "/slow/1500", 30))
    assert stamps[0] <= 2 and stamps[-1] == 30
    # Two workers may read the gauge in the same instant, so a value may repeat, but none is far off.
    assert all(abs(stamp - rank) <= 2 for rank, stamp in enumerate(stamps, start=1)), stamps
    stack.proxy.wait_stat("inbound_in_flight", lambda value: value == 0)


def test_arrival_rate_is_the_last_second(stack) -> None:
    """At a steady 100 requests/s the stamps of the last second agree on 100, on both workers."""
    time.sleep(1.2)  # what came before leaves the window
    start = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        for nth in range(250):
            time.sleep(max(0.0, start + nth / 100 - time.monotonic()))
            pool.submit(get, stack.proxy.inbound, "/steady")
    spans = sorted(server_spans(stack, "/steady", 250), key=lambda span: span.start_ns)
    rates = [span.attributes["spillway.load.arrival_rate"] for span in spans]
    assert rates[0] <= 1 and rates[50] == pytest.approx(50, abs=8)
    assert statistics.median(rates[-100:]) == pytest.approx(100, rel=0.05)


def test_in_flight_returns_to_zero_after_resets(stack) -> None:
    """Callers that go away, an application that resets, and errors all give their share back once."""
    for _ in range(10):
        caller = socket.create_connection(("127.0.0.1", stack.proxy.outbound))
        caller.sendall(b"GET /slow/400 HTTP/1.1\r\nhost: cart\r\n\r\n")
        time.sleep(0.02)
        caller.close()
        get(stack.proxy.outbound, "/reset")
        get(stack.proxy.outbound, "/status/500")
    for side in ("inbound", "outbound"):
        stack.proxy.wait_stat(f"{side}_in_flight", lambda value: value == 0)
    time.sleep(0.6)
    stats = stack.proxy.stats()
    assert (stats["inbound_in_flight"], stats["outbound_in_flight"]) == (0, 0)


def test_abandoned_request_is_a_failed_span_without_status(stack) -> None:
    """A caller that leaves before the response leaves a span that says so."""
    trace, _, headers = traced()
    caller = socket.create_connection(("127.0.0.1", stack.proxy.outbound))
    line = f"GET /slow/800 HTTP/1.1\r\nhost: cart\r\ntraceparent: {headers['traceparent']}\r\n\r\n"
    caller.sendall(line.encode())
    time.sleep(0.1)
    caller.close()
    for span in stack.collector.wait_for(lambda s: s.trace_id == trace, 2):
        assert span.failed and "http.response.status_code" not in span.attributes
        assert span.end_ns - span.start_ns < 700_000_000


def test_long_lived_streams_are_counted_and_leave_no_span(stack) -> None:
    """An upgrade and an event stream are no latency and no load; each is counted once per side."""
    before = stack.proxy.stats()
    upgrade_trace, _, headers = traced()
    caller = socket.create_connection(("127.0.0.1", stack.proxy.outbound))
    upgrade = "connection: upgrade\r\nupgrade: websocket\r\n"
    line = f"GET /upgrade HTTP/1.1\r\nhost: cart\r\n{upgrade}traceparent: {headers['traceparent']}\r\n\r\n"
    caller.sendall(line.encode())
    assert caller.recv(100).startswith(b"HTTP/1.1 101")
    assert stack.proxy.stats()["inbound_in_flight"] == 0, "an open tunnel is no load"
    events_trace, _, headers = traced()
    assert get(stack.proxy.outbound, "/events", headers).status == 200
    caller.close()
    time.sleep(0.8)
    after = stack.proxy.stats()
    for side in ("inbound", "outbound"):
        assert after[f"{side}_long_lived"] == before[f"{side}_long_lived"] + 2
        assert after[f"{side}_in_flight"] == 0
    assert not [s for s in stack.collector.spans if s.trace_id in (upgrade_trace, events_trace)]
