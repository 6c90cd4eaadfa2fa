"""Creates and grows topics of a test, and reads the traces that the test has sent."""

import secrets
from collections import defaultdict

from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from collector_process import CLUSTER, Collector, gauge_request, read_topic, span_keys, spans_request
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from spillway_contracts import names

SPANS = names.KAFKA_CLUSTER_TOPIC_OTLP_SPANS.format(cluster=CLUSTER)
METRICS = names.KAFKA_CLUSTER_TOPIC_OTLP_METRICS.format(cluster=CLUSTER)


def messages_of(kafka: str, trace_ids: list[bytes], spans: int, topic: str = SPANS) -> list:
    """Returns the messages that carry these traces, once they hold `spans` spans of them."""
    wanted = set(trace_ids)

    def mine(messages: list) -> list:
        return [message for message in messages if wanted & {key[0] for key in span_keys([message])}]

    def held(messages: list) -> int:
        return sum(trace_id in wanted for trace_id, _ in span_keys(messages))

    return mine(read_topic(kafka, topic, lambda messages: held(messages) >= spans))


def partitions_of(messages: list) -> dict[bytes, set[int]]:
    """Returns the partitions of each trace in these messages."""
    found = defaultdict(set)
    for message in messages:
        for trace_id, _ in span_keys([message]):
            found[trace_id].add(message.partition)
    return found


def heavy_request(trace_id: bytes, sizes: list[int]) -> ExportTraceServiceRequest:
    """Returns one trace whose spans carry that many random bytes each.

    Compression cannot shrink them.
    """
    request = spans_request([trace_id], spans_per_trace=len(sizes))
    for span, size in zip(request.resource_spans[0].scope_spans[0].spans, sizes, strict=True):
        span.attributes.add(key="payload").value.bytes_value = secrets.token_bytes(size)
    return request


def heavy_gauge(sizes: list[int]) -> ExportMetricsServiceRequest:
    """Returns one metric whose data points, numbered from 0, carry that many random bytes each."""
    request = gauge_request("heavy", 0.0)
    gauge = request.resource_metrics[0].scope_metrics[0].metrics[0].gauge
    del gauge.data_points[:]
    for number, size in enumerate(sizes):
        point = gauge.data_points.add(as_int=number)
        point.attributes.add(key="payload").value.bytes_value = secrets.token_bytes(size)
    return request


def points_of(messages: list) -> list[int]:
    """Returns the numbers of a heavy gauge's data points in these messages."""
    requests = [ExportMetricsServiceRequest.FromString(message.value) for message in messages]
    return [
        point.as_int
        for request in requests
        for resource_metrics in request.resource_metrics
        for scope_metrics in resource_metrics.scope_metrics
        for metric in scope_metrics.metrics
        for point in metric.gauge.data_points
    ]


def spread(running: Collector, kafka: str, topic: str) -> dict[bytes, set[int]]:
    """Sends 100 new traces. Returns the partitions of each."""
    trace_ids = [secrets.token_bytes(16) for _ in range(100)]
    running.export_grpc(spans_request(trace_ids).SerializeToString())
    found = partitions_of(messages_of(kafka, trace_ids, 100, topic))
    return {trace_id: found[trace_id] for trace_id in trace_ids}


async def grow(kafka: str, name: str, partitions: int) -> None:
    """Raises the number of a topic's partitions to `partitions`."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        await admin.create_partitions({name: NewPartitions(partitions)})
    finally:
        await admin.close()


async def small_topic(kafka: str, name: str, max_bytes: int) -> None:
    """Creates a topic of two partitions whose messages have at most `max_bytes` bytes."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(name, 2, 1, topic_configs={"max.message.bytes": str(max_bytes)})])
    finally:
        await admin.close()


def clusters(message) -> set[str]:
    """Returns the cluster attribute of every resource in one message; None where it is missing."""
    request = ExportTraceServiceRequest.FromString(message.value)
    return {
        {a.key: a.value.string_value for a in resource_spans.resource.attributes}.get(
            names.SPAN_ATTRIBUTE_CLUSTER
        )
        for resource_spans in request.resource_spans
    }
