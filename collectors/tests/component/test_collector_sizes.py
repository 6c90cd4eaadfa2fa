"""Spans and metrics that are too large for one message, by our limit or by a broker's lower one."""

import asyncio
import secrets

import pytest
import yaml
from collector_counters import counted, settles
from collector_process import BOX, collector, read_topic, span_keys, spans_request
from topics import heavy_gauge, heavy_request, messages_of, partitions_of, points_of, small_topic

pytestmark = [pytest.mark.component, pytest.mark.timeout(300)]
EXPORTER = yaml.safe_load((BOX / "config.yaml").read_text())["exporters"]["kafka_partition"]
SETTING = "exporters::kafka_partition::"


def test_what_exceeds_the_brokers_limit_is_split(running, kafka):
    """A trace of 12 MB in one request arrives whole, in messages within the limit.

    Compression cannot shrink it.
    """
    trace_id = secrets.token_bytes(16)
    splits = counted(running, "splits")
    running.export_http("/v1/traces", heavy_request(trace_id, [40_000] * 300).SerializeToString())
    messages = messages_of(kafka, [trace_id], 300)
    assert sorted(span_keys(messages)) == [(trace_id, n.to_bytes(8, "big")) for n in range(1, 301)]
    assert (
        len(messages) > 3 and max(len(message.value) for message in messages) <= EXPORTER["max_message_bytes"]
    )
    assert {len(used) for used in partitions_of(messages).values()} == {1}
    settles(running, "splits", splits + len(messages) - 1)


def test_a_span_above_the_limit_is_dropped_and_counted_and_the_rest_goes_on(running, kafka):
    """A span that no message can hold is counted with its reason.

    Its neighbours and the next requests arrive.
    """
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
    """A topic takes a twentieth of what the collector may send.

    Everything arrives except the span above the topic's limit.
    """
    asyncio.run(small_topic(kafka, "small_spans", 200_000))
    running = collector(tmp_path, kafka, clean_environment, f"{SETTING}traces::topic: small_spans")
    running.server.start()
    trace_id = secrets.token_bytes(16)
    try:
        sizes = [20_000] * 60 + [300_000] + [20_000] * 60
        running.export_http("/v1/traces", heavy_request(trace_id, sizes).SerializeToString())
        messages = messages_of(kafka, [trace_id], 120, "small_spans")
        assert sorted({n for _, n in span_keys(messages)}) == [
            n.to_bytes(8, "big") for n in range(1, 122) if n != 61
        ]
        settles(running, "dropped_items", 1, 'reason="refused_by_broker"')
        assert counted(running, "failed_messages", 'reason="MESSAGE_TOO_LARGE"') > 0
    finally:
        running.server.stop()


def test_a_broker_with_a_smaller_limit_gets_a_metric_in_parts(kafka, tmp_path, clean_environment):
    """The same holds for metrics, even when all data points belong to one metric."""
    asyncio.run(small_topic(kafka, "small_metrics", 200_000))
    running = collector(tmp_path, kafka, clean_environment, f"{SETTING}metrics::topic: small_metrics")
    running.server.start()
    try:
        sizes = [20_000] * 60 + [300_000] + [20_000] * 60
        answer = running.export_http("/v1/metrics", heavy_gauge(sizes).SerializeToString())
        assert answer.status_code == 200
        messages = read_topic(kafka, "small_metrics", lambda messages: len(points_of(messages)) >= 120)
        assert sorted(points_of(messages)) == [n for n in range(121) if n != 60]
        settles(running, "dropped_items", 1, 'reason="refused_by_broker"')
    finally:
        running.server.stop()
