"""The persistent sending queue: what was accepted is in Kafka in the end, whatever was away meanwhile."""

import secrets
import time

import grpc
import pytest
from collector_process import collector, read_topic, span_keys, spans_request
from spillway_contracts import names
from spillway_lab.testing import servers
from spillway_lab.testing.kafka import kafka_process

pytestmark = [pytest.mark.component, pytest.mark.timeout(180)]
KAFKA_AWAY_S = 10.0


def send_traces(target, count: int) -> set[bytes]:
    """Sends so many traces of one span, each in its own request; their ids."""
    trace_ids = [secrets.token_bytes(16) for _ in range(count)]
    for trace_id in trace_ids:
        target.export_grpc(spans_request([trace_id]).SerializeToString())
    return set(trace_ids)


def arrived(kafka: str, expected: set[bytes]) -> set[bytes]:
    """Those of the expected trace ids that are in otlp_spans in the end."""

    def found(messages: list) -> set[bytes]:
        return {trace_id for trace_id, _ in span_keys(messages)} & expected

    return found(
        read_topic(kafka, names.KAFKA_TOPIC_OTLP_SPANS, lambda messages: found(messages) == expected, 60.0)
    )


def test_spans_sent_while_kafka_is_away_arrive_after(tmp_path, clean_environment):
    """Kafka is away for 10 s and the collector is killed in the middle of it: every accepted span arrives."""
    with kafka_process(tmp_path) as kafka:
        running = collector(tmp_path / "collector", kafka.url, clean_environment)
        running.server.start()
        try:
            sent = send_traces(running, 20)
            assert arrived(kafka.url, sent) == sent
            kafka.stop()
            away_until = time.monotonic() + KAFKA_AWAY_S
            sent |= send_traces(running, 20)
            running.server.kill()
            running.server.start()
            while time.monotonic() < away_until:
                sent |= send_traces(running, 2)
                time.sleep(0.2)
            kafka.start()
            sent |= send_traces(running, 20)
            assert arrived(kafka.url, sent) == sent
        finally:
            running.server.stop()


def test_collector_stops_cleanly_while_kafka_is_away_and_keeps_its_queue(tmp_path, clean_environment):
    """SIGTERM ends it by itself with 0 although Kafka never was there; the next start sends what it had."""
    with kafka_process(tmp_path) as kafka:
        kafka.stop()
        running = collector(tmp_path / "collector", kafka.url, clean_environment)
        running.server.start()
        sent = send_traces(running, 10)
        process = running.server.process
        process.terminate()
        assert process.wait(8) == 0
        kafka.start()
        running.server.start()
        try:
            assert arrived(kafka.url, sent) == sent
        finally:
            running.server.stop()


def test_full_queue_refuses_and_says_so(tmp_path, clean_environment):
    """Beyond queue_size the sender gets a retryable error: nothing is accepted that has no room."""
    nowhere = f"127.0.0.1:{servers.free_port()}"
    override = "exporters::kafka_partition::sending_queue::queue_size: 2000"
    running = collector(tmp_path, nowhere, clean_environment, override)
    running.server.start()
    try:
        with pytest.raises(grpc.RpcError) as refused:
            send_traces(running, 200)
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
        assert "queue is full" in refused.value.details()
    finally:
        running.server.stop()
