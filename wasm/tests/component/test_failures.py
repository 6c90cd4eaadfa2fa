"""Why a request failed, how often it was tried, and how requests that were cut short appear."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from filter_harness.client import get, traced
from filter_harness.collector import CLIENT, SERVER, Collector, Received
from filter_harness.proxy import Setup
from filter_harness.stack import Stack, running

pytestmark = pytest.mark.component


@pytest.fixture
def start(tmp_path) -> Iterator[Callable[[Setup], Stack]]:
    with ExitStack() as stacks:
        yield lambda setup: stacks.enter_context(running(tmp_path, setup))


def spans_of(collector: Collector, trace: str, kind: int, count: int) -> list[Received]:
    """Waits for exactly `count` spans of one trace and kind. Returns them by start time."""
    found = collector.wait_for(lambda span: span.trace_id == trace and span.kind == kind, count)
    assert len(found) == count
    return sorted(found, key=lambda span: span.start_ns)


def test_connection_failure_after_retries(start) -> None:
    """Nobody listens, so each try of the caller is one span at the callee's proxy.

    Each of these spans counts the tries before it. The caller's single span carries the number of
    retries, and all spans carry Envoy's response flags.
    """
    stack = start(Setup(retries=2))
    stack.app.stop()
    trace, _, headers = traced()
    assert get(stack.proxy.outbound, "/users/1", headers).status == 503
    [client] = spans_of(stack.collector, trace, CLIENT, 1)
    servers = spans_of(stack.collector, trace, SERVER, 3)
    assert client.attributes["http.request.resend_count"] == 2
    assert client.attributes["spillway.response.flags"] == "URX"
    assert [s.attributes.get("http.request.resend_count") for s in servers] == [None, 1, 2]
    for span in servers:
        assert span.attributes["spillway.response.flags"] == "UF"
        assert "connection" in span.attributes["spillway.response.details"]
        assert span.parent == client.span_id, "one span of the caller, whatever it took"
    for span in (client, *servers):
        assert span.failed and span.attributes["error.type"] == "503"


def test_success_after_a_retry_is_told(start) -> None:
    """The application fails once: the caller's span succeeds and carries the number of retries."""
    stack = start(Setup(retries=1))
    trace, _, headers = traced()
    assert get(stack.proxy.outbound, f"/once/{trace}", headers).status == 200
    [client] = spans_of(stack.collector, trace, CLIENT, 1)
    first, second = spans_of(stack.collector, trace, SERVER, 2)
    assert client.attributes["http.request.resend_count"] == 1 and not client.failed
    assert (first.failed, second.failed) == (True, False)
    assert "error.type" not in client.attributes and "spillway.response.flags" not in client.attributes


def test_timeout(start) -> None:
    """The callee is too slow: the caller's span ends first, at the timeout, with the flag UT."""
    stack = start(Setup(timeout="0.3s"))
    trace, _, headers = traced()
    with stack.app.holding():
        assert get(stack.proxy.outbound, "/held/x", headers).status == 504
        [client] = spans_of(stack.collector, trace, CLIENT, 1)
    assert client.failed and client.attributes["error.type"] == "504"
    assert "UT" in client.attributes["spillway.response.flags"]


def test_response_cut_short(start) -> None:
    """The headers said 200 but the body never ended: the span fails; its error type names who
    left."""
    stack = start(Setup())
    trace, _, headers = traced()
    stack.get_cut_short(headers)
    for kind in (CLIENT, SERVER):
        [span] = spans_of(stack.collector, trace, kind, 1)
        assert span.attributes["http.response.status_code"] == 200 and span.failed
        assert span.attributes["error.type"] in ("UC", "UR", "UPE")
    stack.proxy.wait_stat("inbound_in_flight", lambda value: value == 0)


def test_connect_tunnel(start) -> None:
    """CONNECT is counted once per side, is no load while it is open, and leaves no span."""
    stack = start(Setup(concurrency=1))
    proxy = stack.proxy
    _, _, headers = traced()
    with socket.create_connection(("127.0.0.1", proxy.outbound), timeout=30) as caller:
        line = f"CONNECT cart:80 HTTP/1.1\r\nhost: cart:80\r\ntraceparent: {headers['traceparent']}\r\n\r\n"
        caller.sendall(line.encode())
        assert caller.recv(200).startswith(b"HTTP/1.1 200")
        caller.sendall(b"GET /users/1 HTTP/1.1\r\nhost: cart\r\n\r\n")
        assert b"200 OK" in caller.recv(500), "the tunnel leads to the application"
        for side in ("inbound", "outbound"):
            proxy.wait_stat(f"{side}_long_lived", lambda value: value == 1)
            assert proxy.stats()[f"{side}_in_flight"] == 0
            assert proxy.stats()[f"{side}_arrivals"] == 1
    assert not stack.traces()
    assert proxy.stats()["inbound_in_flight"] == 0


def test_upload_abandoned_halfway(start) -> None:
    """A caller leaves in the middle of its body: one failed span per side, and none in flight."""
    stack = start(Setup())
    proxy = stack.proxy
    trace, _, headers = traced()
    with socket.create_connection(("127.0.0.1", proxy.outbound)) as caller:
        head = "POST /upload HTTP/1.1\r\nhost: cart\r\ncontent-length: 100000\r\n"
        caller.sendall(f"{head}traceparent: {headers['traceparent']}\r\n\r\n".encode() + b"x" * 5000)
        proxy.wait_stat("inbound_in_flight", lambda value: value == 1)
    for kind in (CLIENT, SERVER):
        [span] = spans_of(stack.collector, trace, kind, 1)
        assert span.failed and "http.response.status_code" not in span.attributes
        assert span.attributes["spillway.response.flags"]
    for side in ("inbound", "outbound"):
        proxy.wait_stat(f"{side}_in_flight", lambda value: value == 0)
