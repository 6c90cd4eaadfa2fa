"""Sizes, network time and load reflect what really happened.

The cases are cut bodies, retries, and calls that last too long.
"""

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
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


def of_kind(collector: Collector, trace: str, kind: int, count: int = 1) -> list[Received]:
    """Waits for `count` spans of one trace and kind."""
    return collector.wait_for(lambda span: span.trace_id == trace and span.kind == kind, count)


def test_cut_response_is_told_at_what_came(start) -> None:
    """The headers promise 1 000 bytes and 500 arrive: the span has 500."""
    stack = start(Setup())
    trace, _, headers = traced()
    stack.get_cut_short(headers)
    for kind in (CLIENT, SERVER):
        [span] = of_kind(stack.collector, trace, kind)
        assert span.failed and span.attributes["http.response.body.size"] == 500


def test_cut_upload_is_told_at_what_came(start) -> None:
    """A caller leaves after 5 000 of 100 000 bytes: the spans have at most 5 000."""
    stack = start(Setup())
    proxy, collector = stack.proxy, stack.collector
    trace, _, headers = traced()
    with socket.create_connection(("127.0.0.1", proxy.outbound)) as caller:
        head = "POST /upload HTTP/1.1\r\nhost: cart\r\ncontent-length: 100000\r\n"
        caller.sendall(f"{head}traceparent: {headers['traceparent']}\r\n\r\n".encode() + b"x" * 5000)
        proxy.wait_stat("inbound_in_flight", lambda value: value == 1)
    [client], [server] = (of_kind(collector, trace, kind) for kind in (CLIENT, SERVER))
    assert client.attributes["http.request.body.size"] == 5000
    assert server.attributes["http.request.body.size"] <= 5000, "what the caller's proxy still passed on"


def test_whole_bodies_are_told_as_declared(start) -> None:
    """The server answers 500 after the whole declared body has passed: spans have its full size."""
    stack = start(Setup())
    proxy, collector = stack.proxy, stack.collector
    trace, _, headers = traced()
    assert get(proxy.outbound, "/status/500", headers, body=b"x" * 3000).status == 500
    for kind in (CLIENT, SERVER):
        [span] = of_kind(collector, trace, kind)
        assert span.attributes["http.request.body.size"] == 3000


def test_a_retry_leaves_no_network_time(start) -> None:
    """The caller's time includes the first try and the wait after it.

    So a call has network time only if it was not retried.
    """
    stack = start(Setup(retries=1))
    proxy, collector = stack.proxy, stack.collector
    trace, _, headers = traced()
    assert get(proxy.outbound, f"/once/{trace}", headers).status == 200
    [client] = of_kind(collector, trace, CLIENT)
    assert client.attributes["http.request.resend_count"] == 1
    assert "spillway.service.time_us" in client.attributes
    assert "spillway.network.time_us" not in client.attributes
    trace, _, headers = traced()
    assert get(proxy.outbound, "/users/1", headers).status == 200
    [client] = of_kind(collector, trace, CLIENT)
    assert client.attributes["spillway.network.time_us"] >= 0


def test_a_call_just_beyond_the_limit_is_a_stream(start) -> None:
    """A call that ends shortly after `long_lived_after_ms` is still counted as a stream.

    It leaves no span, although it mostly ends before the sweep of each second sees it.
    """
    proxy = start(Setup(overrides={"long_lived_after_ms": 1000})).proxy
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda _: get(proxy.outbound, "/slow/1060"), range(12)))
    assert all(answer.status == 200 for answer in answers)
    for side in ("inbound", "outbound"):
        proxy.wait_stat(f"{side}_long_lived", lambda value: value == 12)
        proxy.wait_stat(f"{side}_in_flight", lambda value: value == 0)
    # The filter updates both on the tick after a request's end.
    assert proxy.stats()["spans_finished"] == 0
