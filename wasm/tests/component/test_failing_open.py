"""Faults around the filter never affect a request, and are counted."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from filter_harness import app as application
from filter_harness.client import get
from filter_harness.collector import Collector
from filter_harness.proxy import Proxy, free_ports

pytestmark = pytest.mark.component


@pytest.fixture
def away(tmp_path):
    """Starts an application and an Envoy with small bounds, whose collector does not run."""
    app_port, collector_port = free_ports(2)
    app = application.start(app_port)
    proxies: list[Proxy] = []

    def start(overrides: dict | None = None) -> tuple[Proxy, int]:
        bounds = {"max_batch_spans": 8, "max_queue_spans": 16}
        proxies.append(Proxy(tmp_path, app_port, collector_port, {**bounds, **(overrides or {})}))
        return proxies[-1], collector_port

    yield start
    for proxy in proxies:
        proxy.stop()
    app.stop()


def requests(proxy: Proxy, count: int) -> int:
    """Sends `count` requests, eight at a time, through both listeners.

    Returns the number of failures.
    """
    with ThreadPoolExecutor(8) as pool:
        return sum(a.status != 200 for a in pool.map(lambda _: get(proxy.outbound, "/users/1"), range(count)))


def test_collector_away(away) -> None:
    """Without a collector no request fails; every span is finally dropped and counted by reason.

    When the collector starts, spans flow.
    """
    proxy, port = away()
    assert requests(proxy, 400) == 0
    by_reason = [f"spans_dropped_{reason}" for reason in ("queue_full", "export_failed")]
    stats = proxy.wait_stats(lambda stats: sum(stats[name] for name in by_reason) == 800)
    assert stats["spans_dropped_export_failed"] > 0 and stats["callout_failures"] > 0
    proxy.wait_stat("spans_dropped", lambda value: value == 800)
    assert proxy.stats()["spans_sent"] == 0
    collector = Collector(port)
    try:
        deadline = time.monotonic() + 30
        while not collector.spans and time.monotonic() < deadline:
            assert requests(proxy, 4) == 0
            time.sleep(0.2)
        proxy.wait_stat("spans_sent", lambda value: value > 0)
        assert max(collector.batches) <= 8
    finally:
        collector.stop()


def test_every_span_is_sent_or_counted(away) -> None:
    """A collector refuses at first: sent plus dropped spans are all spans, and none comes twice."""
    proxy, port = away({"max_batch_spans": 64, "max_queue_spans": 4096})
    collector = Collector(port)
    collector.refuse = True
    try:
        assert requests(proxy, 100) == 0
        proxy.wait_stat("callout_failures", lambda value: value > 0)
        collector.refuse = False
        assert requests(proxy, 100) == 0
        made = 2 * 200
        stats = proxy.wait_stats(lambda stats: stats["spans_sent"] + stats["spans_dropped"] >= made)
        assert stats["spans_sent"] + stats["spans_dropped"] == made
        ids = [(span.trace_id, span.span_id) for span in collector.spans]
        assert len(ids) == len(set(ids)) == stats["spans_sent"]
    finally:
        collector.stop()


def test_rejected_spans_are_dropped_spans(away) -> None:
    """Spans that the collector reports as rejected count as dropped, not as sent."""
    proxy, port = away({"max_queue_spans": 64})  # no span is dropped before it is sent
    collector = Collector(port)
    collector.reject = True
    try:
        assert requests(proxy, 20) == 0
        proxy.wait_stat("spans_sent", lambda sent: sent + proxy.stats()["spans_dropped"] == 40)
        assert proxy.stats()["spans_dropped"] == len(collector.batches)
    finally:
        collector.stop()


def test_bad_configuration_keeps_envoy_from_starting(away) -> None:
    """An unknown key and a missing identity are named in the log, and Envoy does not start."""
    with pytest.raises(RuntimeError, match='colour: unknown key.*service: ""; must be letters'):
        away({"service": "", "colour": "red"})


def test_unknown_collector_cluster(away) -> None:
    """An unknown collector cluster costs the spans, which are counted, but no request fails."""
    proxy, _ = away({"collector_cluster": "nowhere"})
    assert requests(proxy, 50) == 0
    proxy.wait_stat("spans_dropped", lambda value: value == 100)
    assert requests(proxy, 50) == 0
    proxy.wait_stat("spans_dropped", lambda value: value == 200)


@pytest.mark.parametrize("name", [b"x-\xff", b"x-\xc3\xa9", b"x-\x80\x81"])
def test_header_names_that_are_not_ascii_do_not_reach_the_filter(stack, name: bytes) -> None:
    """Envoy's codec refuses a header name that is not UTF-8, and the filter keeps running.

    The SDK would panic on such a name.
    """
    before = stack.proxy.stats()["spans_finished"]
    with socket.create_connection(("127.0.0.1", stack.proxy.outbound), 10) as caller:
        caller.sendall(b"GET /users/1 HTTP/1.1\r\nhost: cart\r\n" + name + b": 1\r\n\r\n")
        assert caller.recv(100).startswith(b"HTTP/1.1 400 ")
    assert get(stack.proxy.outbound, "/users/1").status == 200
    stack.proxy.wait_stat("spans_finished", lambda value: value >= before + 2)
