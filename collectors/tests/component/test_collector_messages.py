"""How spans become Kafka messages.

There is one message per batch and partition. Messages are compressed and within the broker's limit.
"""

import asyncio
import secrets
import signal

import pytest
from collector_counters import counted, settles
from collector_process import Collector, collector, gauge_request, read_topic, span_keys, spans_request
from record_batches import codecs
from spillway_lab.testing.kafka import PARTITIONS
from spillway_lab.testing.waiting import STOP_S, eventually
from topics import (
    SPANS,
    grow,
    messages_of,
    partitions_of,
    small_topic,
    spread,
)

pytestmark = [pytest.mark.component, pytest.mark.timeout(300)]
SETTING = "exporters::kafka_partition::"


def test_a_batch_is_one_message_per_partition(running, kafka):
    """2 000 traces of one request become one message per partition, without key.

    The collector counts messages, items and sizes.
    """
    trace_ids = [secrets.token_bytes(16) for _ in range(2000)]
    before = {name: counted(running, name) for name in ("messages", "items", "message_size_count")}
    running.export_grpc(spans_request(trace_ids).SerializeToString())
    messages = messages_of(kafka, trace_ids, 2000)
    assert sorted(message.partition for message in messages) == list(range(PARTITIONS))
    assert {message.key for message in messages} == {None}
    assert sorted(span_keys(messages)) == sorted((trace_id, (1).to_bytes(8, "big")) for trace_id in trace_ids)
    more = {"messages": PARTITIONS, "items": 2000, "message_size_count": PARTITIONS}
    for name, value in more.items():
        settles(running, name, before[name] + value)


def test_collectors_agree_on_a_traces_partition(running, kafka, tmp_path, clean_environment):
    """Spans of a trace that arrive at two collectors reach the same partition."""
    other = collector(tmp_path, kafka, clean_environment)
    other.server.start()
    try:
        trace_ids = [secrets.token_bytes(16) for _ in range(100)]
        for receiver in (running, other):
            receiver.export_grpc(spans_request(trace_ids).SerializeToString())
        partitions = partitions_of(messages_of(kafka, trace_ids, 200))
    finally:
        other.server.stop()
    assert len(partitions) == 100 and {len(used) for used in partitions.values()} == {1}


def test_messages_are_compressed_with_zstd(kafka, data, tmp_path, clean_environment):
    """The broker's own log shows zstd for the record batches of two topics.

    Their content is such that compression shrinks it.
    """
    topics = {"traces": "shrinking_spans", "metrics": "shrinking_metrics"}
    settings = (f"{SETTING}{signal}::topic: {topic}" for signal, topic in topics.items())
    running = collector(tmp_path, kafka, clean_environment, *settings)
    running.server.start()
    try:
        trace_ids = [secrets.token_bytes(16) for _ in range(200)]
        running.export_grpc(spans_request(trace_ids, spans_per_trace=3).SerializeToString())
        running.export_http("/v1/metrics", gauge_request("load" * 100, 0.5).SerializeToString())
        messages_of(kafka, trace_ids, 600, topics["traces"])
        read_topic(kafka, topics["metrics"], lambda messages: len(messages) >= 1)
    finally:
        running.server.stop()
    for topic in topics.values():
        assert codecs(data / "kafka" / "data", topic) == {"zstd"}


def traces(messages: list) -> set[bytes]:
    return {trace_id for trace_id, _ in span_keys(messages)}


def test_a_stop_does_not_wait_for_a_broker_that_hangs(broker, kafka, tmp_path, clean_environment):
    """The broker takes requests but answers none. The collector still ends by itself.

    Its next start sends everything.
    """
    running = collector(tmp_path, kafka, clean_environment)
    running.server.start()
    first, waiting = secrets.token_bytes(16), [secrets.token_bytes(16) for _ in range(50)]
    running.export_grpc(spans_request([first]).SerializeToString())
    messages_of(kafka, [first], 1)  # the connections exist now, so that the next request goes out
    broker.process.send_signal(signal.SIGSTOP)
    try:
        running.export_grpc(spans_request(waiting).SerializeToString())
        eventually(lambda: counted(running, "oldest_message_age", SPANS) > 0, "messages are under way")
        process = running.server.process
        process.terminate()
        assert process.wait(STOP_S) == 0
    finally:
        broker.process.send_signal(signal.SIGCONT)
    running.server.start()
    try:
        # Messages under way may arrive beside their repeats, so distinct traces are counted.
        messages = read_topic(kafka, SPANS, lambda messages: traces(messages) >= set(waiting))
        assert traces(messages) >= set(waiting)
    finally:
        running.server.stop()


def spread_over(running: Collector, kafka: str, partitions: set[int]) -> dict[bytes, set[int]] | None:
    """Sends 100 new traces.

    Returns the partitions of each, or None unless all `partitions` are used.
    """
    found = spread(running, kafka, "growing_spans")
    return found if set.union(*found.values()) == partitions else None


def test_added_partitions_are_used(kafka, data, tmp_path, clean_environment):
    """Within partitions_refresh_interval, traces spread over the new partitions too.

    Each trace is in one partition. The compression is lz4, as the settings request.
    """
    asyncio.run(small_topic(kafka, "growing_spans", 1_000_000))
    settings = ("traces::topic: growing_spans", "partitions_refresh_interval: 5s", "compression: lz4")
    running = collector(tmp_path, kafka, clean_environment, *(SETTING + setting for setting in settings))
    running.server.start()
    try:
        assert set.union(*spread(running, kafka, "growing_spans").values()) == {0, 1}
        asyncio.run(grow(kafka, "growing_spans", 5))
        now = eventually(lambda: spread_over(running, kafka, set(range(5))), "all five partitions are used")
    finally:
        running.server.stop()
    assert {len(used) for used in now.values()} == {1}
    assert codecs(data / "kafka" / "data", "growing_spans") == {"lz4"}
