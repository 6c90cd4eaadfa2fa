"""How spans become Kafka messages: one per batch and partition, compressed, within the broker's limit."""

import asyncio
import re
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from collector_process import RUN, Collector, collector, gauge_request, read_topic, span_keys, spans_request
from record_batches import codecs
from spillway_contracts import names
from spillway_lab.testing import servers
from spillway_lab.testing.kafka import PARTITIONS, kafka_process
from topics import SPANS, grow, heavy_request, messages_of, partitions_of, small_topic, spread

pytestmark = [pytest.mark.component, pytest.mark.timeout(180)]
EXPORTER = yaml.safe_load((RUN.parent / "config.yaml").read_text())["exporters"]["kafka_partition"]
COUNTER = "otelcol_exporter_kafka_partition"


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("broker")


@pytest.fixture(scope="module")
def broker(data) -> Iterator[servers.Server]:
    with kafka_process(data) as server:
        yield server


@pytest.fixture(scope="module")
def kafka(broker) -> str:
    return broker.url


@pytest.fixture(scope="module")
def running(tmp_path_factory, kafka, clean_environment) -> Iterator[Collector]:
    running = collector(tmp_path_factory.mktemp("collector"), kafka, clean_environment)
    running.server.start()
    yield running
    running.server.stop()


def counted(running: Collector, name: str, labels: str = "") -> float:
    pattern = rf"^{COUNTER}_{name}\{{.*{labels}.*\}} (\S+)$"
    return sum(float(value) for value in re.findall(pattern, running.metrics(), re.MULTILINE))


def settles(read: Callable[[], float], value: float) -> bool:
    """Whether it reads so in the end: a reader of the topic may be faster than the broker's answer."""
    deadline = time.monotonic() + 10
    while read() != value and time.monotonic() < deadline:
        time.sleep(0.1)
    return read() == value


def test_a_batch_is_one_message_per_partition(running, kafka):
    """2 000 traces of one request are as many messages as there are partitions, without key; all is counted."""
    trace_ids = [secrets.token_bytes(16) for _ in range(2000)]
    before = {name: counted(running, name) for name in ("messages", "items", "message_size_count")}
    running.export_grpc(spans_request(trace_ids).SerializeToString())
    messages = messages_of(kafka, trace_ids, 2000)
    assert sorted(message.partition for message in messages) == list(range(PARTITIONS))
    assert {message.key for message in messages} == {None}
    assert sorted(span_keys(messages)) == sorted((trace_id, (1).to_bytes(8, "big")) for trace_id in trace_ids)
    more = {"messages": PARTITIONS, "items": 2000, "message_size_count": PARTITIONS}
    for name, value in more.items():
        assert settles(lambda name=name: counted(running, name), before[name] + value)


def test_collectors_agree_on_a_traces_partition(running, kafka, tmp_path, clean_environment):
    """Spans of a trace that come through two collectors meet in one partition."""
    other = collector(tmp_path, kafka, clean_environment)
    other.server.start()
    try:
        trace_ids = [secrets.token_bytes(16) for _ in range(100)]
        for one in (running, other):
            one.export_grpc(spans_request(trace_ids).SerializeToString())
        partitions = partitions_of(messages_of(kafka, trace_ids, 200))
    finally:
        other.server.stop()
    assert len(partitions) == 100 and {len(used) for used in partitions.values()} == {1}


def test_messages_are_compressed_with_zstd(running, kafka, data):
    """The broker's own log says so, for the record batches of both topics, whose content compression shrinks."""
    trace_ids = [secrets.token_bytes(16) for _ in range(200)]
    running.export_grpc(spans_request(trace_ids, spans_per_trace=3).SerializeToString())
    running.export_http("/v1/metrics", gauge_request("load" * 100, 0.5).SerializeToString())
    messages_of(kafka, trace_ids, 600)
    read_topic(kafka, names.KAFKA_TOPIC_OTLP_METRICS, lambda messages: len(messages) >= 1)
    for topic in (SPANS, names.KAFKA_TOPIC_OTLP_METRICS):
        assert codecs(data / "kafka" / "data", topic) == {"zstd"}


def test_what_exceeds_the_brokers_limit_is_split(running, kafka):
    """A trace of 12 MB in one request, which compression cannot help, arrives whole, in messages within the limit."""
    trace_id = secrets.token_bytes(16)
    splits = counted(running, "splits")
    running.export_http("/v1/traces", heavy_request(trace_id, [40_000] * 300).SerializeToString())
    messages = messages_of(kafka, [trace_id], 300)
    assert sorted(span_keys(messages)) == [(trace_id, n.to_bytes(8, "big")) for n in range(1, 301)]
    assert (
        len(messages) > 3 and max(len(message.value) for message in messages) <= EXPORTER["max_message_bytes"]
    )
    assert {len(used) for used in partitions_of(messages).values()} == {1}
    assert settles(lambda: counted(running, "splits"), splits + len(messages) - 1)


def test_a_span_above_the_limit_is_dropped_and_counted_and_the_rest_goes_on(running, kafka):
    """The span that no message could hold is counted with its reason; its neighbours and the next requests arrive."""
    trace_id, later = secrets.token_bytes(16), secrets.token_bytes(16)
    running.export_http("/v1/traces", heavy_request(trace_id, [10, 5_000_000, 10]).SerializeToString())
    running.export_grpc(spans_request([later]).SerializeToString())
    messages = messages_of(kafka, [trace_id, later], 3)
    kept = [key for key in span_keys(messages) if key[0] in (trace_id, later)]
    assert sorted(kept) == sorted(
        [
            (trace_id, (1).to_bytes(8, "big")),
            (trace_id, (3).to_bytes(8, "big")),
            (later, (1).to_bytes(8, "big")),
        ]
    )
    assert counted(running, "dropped_items", 'reason="item_too_large"') == 1


def test_a_broker_with_a_smaller_limit_gets_smaller_messages(kafka, tmp_path, clean_environment):
    """A topic takes a twentieth of what the collector may send: everything arrives, but the span above that."""
    asyncio.run(small_topic(kafka, "small_spans", 200_000))
    topic = "exporters::kafka_partition::traces::topic: small_spans"
    running = collector(tmp_path, kafka, clean_environment, topic)
    running.server.start()
    trace_id = secrets.token_bytes(16)
    try:
        sizes = [20_000] * 60 + [300_000] + [20_000] * 60
        running.export_http("/v1/traces", heavy_request(trace_id, sizes).SerializeToString())
        messages = messages_of(kafka, [trace_id], 120, "small_spans")
        assert sorted({n for _, n in span_keys(messages)}) == [
            n.to_bytes(8, "big") for n in range(1, 122) if n != 61
        ]
        assert settles(lambda: counted(running, "dropped_items", 'reason="refused_by_broker"'), 1)
        assert counted(running, "failed_messages", 'reason="MESSAGE_TOO_LARGE"') > 0
    finally:
        running.server.stop()


def traces(messages: list) -> set[bytes]:
    return {trace_id for trace_id, _ in span_keys(messages)}


def test_a_stop_does_not_wait_for_a_broker_that_hangs(broker, kafka, tmp_path, clean_environment):
    """The broker takes requests and answers none: the collector still ends by itself, and its next start sends all."""
    running = collector(tmp_path, kafka, clean_environment)
    running.server.start()
    first, waiting = secrets.token_bytes(16), [secrets.token_bytes(16) for _ in range(50)]
    running.export_grpc(spans_request([first]).SerializeToString())
    messages_of(kafka, [first], 1)  # connections are there, so that the next request goes out
    broker.process.send_signal(signal.SIGSTOP)
    try:
        running.export_grpc(spans_request(waiting).SerializeToString())
        time.sleep(1)  # longer than flush_timeout: the messages are under way
        process = running.server.process
        process.terminate()
        assert process.wait(8) == 0
    finally:
        broker.process.send_signal(signal.SIGCONT)
    running.server.start()
    try:
        # What was under way may arrive beside what is sent again: distinct traces are counted.
        messages = read_topic(kafka, SPANS, lambda messages: traces(messages) >= set(waiting))
        assert traces(messages) >= set(waiting)
    finally:
        running.server.stop()


def test_added_partitions_are_used(kafka, data, tmp_path, clean_environment):
    """Within partitions_refresh_interval traces spread over the new partitions too, each in one; lz4 on request."""
    asyncio.run(small_topic(kafka, "growing_spans", 1_000_000))
    prefix = "exporters::kafka_partition::"
    settings = ("traces::topic: growing_spans", "partitions_refresh_interval: 5s", "compression: lz4")
    running = collector(tmp_path, kafka, clean_environment, *(prefix + setting for setting in settings))
    running.server.start()
    try:
        assert set.union(*spread(running, kafka, "growing_spans").values()) == {0, 1}
        asyncio.run(grow(kafka, "growing_spans", 5))
        while set.union(*(now := spread(running, kafka, "growing_spans")).values()) != set(range(5)):
            time.sleep(1)
    finally:
        running.server.stop()
    assert {len(used) for used in now.values()} == {1}
    assert codecs(data / "kafka" / "data", "growing_spans") == {"lz4"}
