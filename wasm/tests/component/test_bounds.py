"""Spans are bounded in number and bytes, and each is counted, even when Envoy stops."""

import http.client
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from filter_harness.bootstrap import bootstrap
from filter_harness.client import get
from filter_harness.openloop import HoldingApp
from filter_harness.proxy import Proxy, Setup, free_ports
from filter_harness.stack import running

pytestmark = pytest.mark.component


def flood(port: int, count: int) -> int:
    """Sends `count` requests with long paths on eight persistent connections.

    Returns the number of requests that failed.
    """

    def some(share: int) -> int:
        connection, failed = http.client.HTTPConnection("127.0.0.1", port, timeout=30), 0
        for nth in range(share):
            connection.request("GET", f"/users/{'n' * 600}{nth}", headers={"host": "cart"})
            response = connection.getresponse()
            response.read()
            failed += response.status != 200
        connection.close()
        return failed

    with ThreadPoolExecutor(8) as pool:
        return sum(pool.map(some, [count // 8] * 8))


def test_collector_absent_memory_stays_flat(tmp_path) -> None:
    """Without a collector, Envoy's memory does not grow with thousands of finished spans.

    No span is kept beyond the bounds. Every span is dropped or held, and no request fails.
    """
    app_port, nobody = free_ports(2)
    # Within a minute no batch gets its second try. Eight batches fail, and then the queue
    # overflows.
    bounds = {"max_batch_bytes": 16384, "max_queue_bytes": 65536, "flush_interval_ms": 60_000}
    with ExitStack() as running:
        running.callback(HoldingApp(app_port).stop)
        proxy = Proxy(tmp_path, app_port, nobody, Setup(overrides=bounds))
        running.callback(proxy.stop)
        assert flood(proxy.outbound, 3_000) == 0
        filled = proxy.rss_kb()
        assert flood(proxy.outbound, 6_000) == 0
        grown = proxy.rss_kb() - filled
        # Twelve thousand spans of 1 kB each would be more than 12 MB if they were kept.
        assert grown < 5_000, f"{grown} kB for 12 000 spans"
        # Two workers with two sides each: the queue and eight batches, at 900 bytes or more per
        # span.
        most = 4 * (65536 + 8 * 16384) // 900
        stats = proxy.wait_stats(lambda s: s["spans_finished"] == 18_000 <= s["spans_dropped"] + most)
        assert stats["spans_sent"] == 0 and stats["spans_dropped"] < 18_000
        # On a machine that needs longer than that minute, the eight batches get their second try,
        # too.
        failed = stats["spans_dropped_export_failed"]
        assert stats["spans_dropped_queue_full"] == stats["spans_dropped"] - failed and failed <= most
        proxy.wait_stat("callout_failures", lambda value: value > 0)


def test_batches_are_bounded_in_bytes(tmp_path) -> None:
    """No export exceeds `max_batch_bytes`, and all exports together contain every span once."""
    with running(tmp_path, Setup(overrides={"max_batch_bytes": 16384}), HoldingApp) as stack:
        collector = stack.collector
        assert flood(stack.proxy.inbound, 800) == 0
        stack.proxy.wait_stat("spans_sent", lambda value: value == 800)
        assert len({span.span_id for span in collector.spans}) == 800
        # The envelope around the spans consists of the resource and the scope.
        assert max(collector.sizes) <= 16384 + 200
        envelopes, size = 200 * len(collector.sizes), sum(collector.sizes)
        stack.proxy.wait_stat("export_bytes", lambda exported: 0 <= size - exported <= envelopes)


def test_removed_listener_sends_what_is_left(tmp_path) -> None:
    """A listener that is removed while Envoy runs loses no span of its last interval.

    This happens with a new configuration or a drain.
    """
    setup = Setup(overrides={"flush_interval_ms": 60_000}, listeners=tmp_path / "listeners.json")
    with running(tmp_path, setup) as stack:
        proxy, collector = stack.proxy, stack.collector
        for _ in range(20):
            assert get(proxy.inbound, "/users/1").status == 200
        proxy.wait_stat("spans_finished", lambda value: value == 20)
        assert not collector.spans, "the interval is a minute"
        ports = (proxy.admin, proxy.inbound, proxy.outbound, stack.app_port, stack.collector_port)
        _, listeners = bootstrap(setup, *ports)
        proxy.write_listeners([listener for listener in listeners if listener["name"] != "inbound"])
        collector.wait_for(lambda span: True, 20)
        proxy.wait_stat("spans_sent", lambda value: value == 20)
        assert proxy.stats()["spans_dropped"] == 0


@pytest.mark.parametrize(("interval_ms", "settled", "left"), [(60_000, "finished", 20), (200, "sent", 0)])
def test_exit_tells_what_it_leaves(tmp_path, interval_ms: int, settled: str, left: int) -> None:
    """When Envoy stops, it does not wait for answers, but its log names the number of lost spans.

    After one flush interval without requests, that number is 0.
    """
    with running(tmp_path, Setup(overrides={"flush_interval_ms": interval_ms})) as stack:
        for _ in range(10):
            get(stack.proxy.outbound, "/users/1")
        stack.proxy.wait_stat(f"spans_{settled}", lambda value: value == 20)
    lines = [line for line in stack.proxy.log.read_text().splitlines() if "not yet accepted" in line]
    assert sum(int(line.split("closing, ")[1].split()[0]) for line in lines) == left, lines
