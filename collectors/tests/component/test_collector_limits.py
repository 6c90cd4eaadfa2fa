"""At its limits the collector refuses exports retryably, and spans accepted before still arrive."""

import os
import signal
from pathlib import Path

import grpc
import httpx
import pytest
from collector_process import Collector, collector, spans_request
from constant_load import ConstantLoad, check_nothing_lost
from spillway_lab.testing import servers
from spillway_lab.testing.kafka import kafka_process
from spillway_lab.testing.waiting import eventually

pytestmark = [pytest.mark.component, pytest.mark.timeout(300)]
QUEUE = "exporters::kafka_partition::sending_queue"


def refusals(target: Collector) -> tuple[grpc.StatusCode, str, httpx.Response]:
    """Sends one export over gRPC and over HTTP, and returns how each is refused.

    The result is the gRPC code, the gRPC details and the HTTP response. The export is large,
    because the queue may still have room for a small one.
    """
    payload = spans_request([os.urandom(16) for _ in range(1000)]).SerializeToString()
    with pytest.raises(grpc.RpcError) as refused:
        target.export_grpc(payload)
    return refused.value.code(), refused.value.details(), target.export_http("/v1/traces", payload)


def test_full_queue_refuses_and_keeps_what_it_had_accepted(tmp_path, clean_environment, record_property):
    """Kafka hangs until the queue is full: exports get UNAVAILABLE and 503, both retryable.

    Afterwards, every span that was answered OK is in Kafka.
    """
    with kafka_process(tmp_path) as kafka:
        running = collector(tmp_path / "c", kafka.url, clean_environment, f"{QUEUE}::queue_size: 500000")
        running.server.start()
        try:
            with ConstantLoad(running.address) as load:
                load.run(1.0)
                kafka.process.send_signal(signal.SIGSTOP)
                try:
                    eventually(lambda: load.account().codes, "the queue is full")
                    code, details, answer = refusals(running)
                finally:
                    kafka.process.send_signal(signal.SIGCONT)
                load.run(1.0)  # room again: exports are accepted
            assert (code, answer.status_code) == (grpc.StatusCode.UNAVAILABLE, 503)
            assert "queue is full" in details
            assert set(load.account().codes) == {grpc.StatusCode.UNAVAILABLE}
            check_nothing_lost(kafka.url, load.account(), record_property)
        finally:
            running.server.stop()


def test_memory_limit_refuses_retryably(tmp_path, clean_environment):
    """Above the memory limiter's soft limit the answers are UNAVAILABLE and 503, both retryable."""
    nowhere = f"127.0.0.1:{servers.free_port()}"
    limit = ("processors::memory_limiter::limit_mib: 2", "processors::memory_limiter::spike_limit_mib: 1")
    running = collector(tmp_path, nowhere, clean_environment, *limit)
    running.server.start()
    try:
        payload = spans_request([b"x" * 16]).SerializeToString()
        full = "the limiter has looked at the memory"
        eventually(lambda: running.export_http("/v1/traces", payload).status_code == 503, full)
        code, details, answer = refusals(running)
    finally:
        running.server.stop()
    assert (code, answer.status_code) == (grpc.StatusCode.UNAVAILABLE, 503)
    assert "memory" in details


def torn(queue: Path) -> None:
    """Damages the queue as a machine's crash can.

    The crash wrote pages in another order than requested, and some of them not at all.
    """
    content = queue.read_bytes()
    # bbolt's two first pages: without them no other can be found
    meta = 2 * os.sysconf("SC_PAGE_SIZE")
    # bbolt doubles the file, so its second half may not be in use yet.
    queue.write_bytes(bytes(meta) + content[meta : max(meta, len(content) // 4)])


def test_a_torn_queue_does_not_keep_the_collector_from_starting(tmp_path, clean_environment, record_property):
    """The torn file is kept aside, and spans that only it held are lost.

    Later spans are accepted and arrive.
    """
    with kafka_process(tmp_path) as kafka:
        running = collector(tmp_path / "c", kafka.url, clean_environment)
        running.server.start()
        try:
            kafka.kill()
            with ConstantLoad(running.address) as load:
                load.run(1.5)
            running.server.kill()
            queue = tmp_path / "c" / "state" / "queue"
            torn(max(queue.iterdir(), key=lambda file: file.stat().st_size))
            running.server.start()
            assert list(queue.glob("*.backup"))
            with ConstantLoad(running.address) as load:
                load.run(1.0)
            kafka.start()
            check_nothing_lost(kafka.url, load.account(), record_property)
        finally:
            running.server.stop()
