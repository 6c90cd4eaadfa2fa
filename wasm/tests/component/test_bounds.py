"""Spans are bounded in number and bytes, every one is accounted for, and the last ones are not lost silently."""

import http.client
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from filter_harness import app as application
from filter_harness.bootstrap import bootstrap
from filter_harness.client import get
from filter_harness.collector import Collector
from filter_harness.openloop import HoldingApp
from filter_harness.proxy import Proxy, Setup, free_ports

pytestmark = pytest.mark.component


def flood(port: int, count: int) -> int:
    """`count` requests on eight connections that stay open, with long paths; returns how many failed."""

    def some(share: int) -> int:
        connection, failed = http.client.HTTPConnection("127.0.0.1", port, timeout=15), 0
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
    """Without a collector thousands of spans are finished, none is kept beyond the bounds, every one is
    dropped or held, no request fails; Envoy's memory does not grow with them."""
    app_port, nobody = free_ports(2)
    app = HoldingApp(app_port)
    bounds = {"max_batch_bytes": 16384, "max_queue_bytes": 65536}
    proxy = Proxy(tmp_path, app_port, nobody, Setup(overrides=bounds))
    try:
        assert flood(proxy.outbound, 3_000) == 0
        filled = proxy.rss_kb()
        assert flood(proxy.outbound, 6_000) == 0
        grown = proxy.rss_kb() - filled
        # Twelve thousand spans of a kilobyte each: more than 12 MB, were they kept.
        assert grown < 5_000, f"{grown} kB for 12 000 spans"
        proxy.wait_stat("spans_finished", lambda value: value == 18_000)  # of both sides
        stats = proxy.stats()
        held = stats["spans_finished"] - stats["spans_dropped"]
        # Two workers with two sides: what waits and eight batches, of spans of no less than 900 bytes.
        assert 0 <= held <= 4 * (65536 + 8 * 16384) // 900
        assert stats["spans_sent"] == 0 and stats["callout_failures"] > 0
        by_reason = {
            k.removeprefix("spans_dropped_"): v for k, v in stats.items() if k.startswith("spans_dropped_")
        }
        assert sum(by_reason.values()) == stats["spans_dropped"]
        assert by_reason["queue_full"] > 0 and by_reason["rejected"] == by_reason["shutdown"] == 0
    finally:
        proxy.stop()
        app.stop()


def test_batches_are_bounded_in_bytes(tmp_path) -> None:
    """No export is larger than `max_batch_bytes`, and all of them together hold every span once."""
    app_port, collector_port = free_ports(2)
    app, collector = HoldingApp(app_port), Collector(collector_port)
    proxy = Proxy(tmp_path, app_port, collector_port, Setup(overrides={"max_batch_bytes": 16384}))
    try:
        assert flood(proxy.inbound, 800) == 0
        proxy.wait_stat("spans_sent", lambda value: value == 800)
        assert len({span.span_id for span in collector.spans}) == 800
        # The envelope around the spans is the resource and the scope.
        assert max(collector.sizes) <= 16384 + 200
        stats = proxy.stats()
        assert 0 <= sum(collector.sizes) - stats["export_bytes"] <= 200 * len(collector.sizes)
    finally:
        proxy.stop()
        collector.stop()
        app.stop()


def test_removed_listener_sends_what_is_left(tmp_path) -> None:
    """A listener that goes while Envoy stays (new configuration, drain) loses no span of its last interval."""
    app_port, collector_port = free_ports(2)
    app, collector = application.start(app_port), Collector(collector_port)
    setup = Setup(overrides={"flush_interval_ms": 60_000}, listeners=tmp_path / "listeners.json")
    proxy = Proxy(tmp_path, app_port, collector_port, setup)
    try:
        for _ in range(20):
            assert get(proxy.inbound, "/users/1").status == 200
        proxy.wait_stat("spans_finished", lambda value: value == 20)
        assert not collector.spans, "the interval is a minute"
        _, listeners = bootstrap(setup, proxy.admin, proxy.inbound, proxy.outbound, app_port, collector_port)
        proxy.write_listeners([one for one in listeners if one["name"] != "inbound"])
        collector.wait_for(lambda span: True, 20, seconds=20)
        proxy.wait_stat("spans_sent", lambda value: value == 20)
        assert proxy.stats()["spans_dropped"] == 0
    finally:
        proxy.stop()
        collector.stop()
        app.shutdown()


def test_exit_tells_what_it_leaves(tmp_path) -> None:
    """Envoy does not wait for answers when it is told to stop: its log says how many spans that cost;
    after one flush interval without requests there are none."""
    app_port, collector_port = free_ports(2)
    app, collector = application.start(app_port), Collector(collector_port)
    for interval, wait, told in [(60_000, 0.3, True), (200, 1.0, False)]:
        proxy = Proxy(tmp_path, app_port, collector_port, Setup(overrides={"flush_interval_ms": interval}))
        for _ in range(10):
            get(proxy.outbound, "/users/1")
        time.sleep(wait)
        proxy.stop()
        lines = [line for line in proxy.log.read_text().splitlines() if "not yet accepted" in line]
        left = sum(int(line.split("closing, ")[1].split()[0]) for line in lines)
        assert left == (20 if told else 0), lines
    collector.stop()
    app.shutdown()
