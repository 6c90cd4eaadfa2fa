"""OTLP in, Kafka out, through the real collector and a real broker."""

import secrets

import grpc
import pytest
from collector_counters import samples
from collector_process import (
    CLUSTER,
    gauge_request,
    read_topic,
    span_keys,
    spans_request,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from spillway_contracts import names
from spillway_lab.testing.kafka import PARTITIONS
from topics import METRICS, clusters, messages_of, partitions_of

pytestmark = [pytest.mark.component, pytest.mark.timeout(300)]
GARBAGE = b"\xff\xffno protobuf"


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_spans_land_once_with_their_cluster(running, kafka, protocol):
    """Every span arrives once, in a message that names the cluster."""
    trace_ids = [secrets.token_bytes(16) for _ in range(8)]
    payload = spans_request(trace_ids, spans_per_trace=5, service__name="frontend").SerializeToString()
    if protocol == "grpc":
        running.export_grpc(payload)
    else:
        assert running.export_http("/v1/traces", payload).status_code == 200
    messages = messages_of(kafka, trace_ids, 40)
    expected = [(trace_id, n.to_bytes(8, "big")) for trace_id in trace_ids for n in range(1, 6)]
    assert sorted(span_keys(messages)) == sorted(expected)
    for message in messages:
        assert clusters(message) == {CLUSTER}


def test_a_trace_stays_in_one_partition(running, kafka):
    """Spans of a trace that come in different requests reach the same partition.

    All partitions are used.
    """
    trace_ids = [secrets.token_bytes(16) for _ in range(64)]
    for _ in range(3):
        running.export_grpc(spans_request(trace_ids).SerializeToString())
    partitions = partitions_of(messages_of(kafka, trace_ids, 3 * 64))
    assert len(partitions) == 64 and all(len(seen) == 1 for seen in partitions.values())
    assert set.union(*partitions.values()) == set(range(PARTITIONS))


def test_a_span_that_names_its_cluster_keeps_it(running, kafka):
    """The collector adds its cluster only where a span's resource names none."""
    trace_id = secrets.token_bytes(16)
    running.export_grpc(spans_request([trace_id], spillway__cluster="elsewhere").SerializeToString())
    assert [clusters(message) for message in messages_of(kafka, [trace_id], 1)] == [{"elsewhere"}]


def test_metrics_land(running, kafka):
    """A gauge sent over OTLP/HTTP is in the cluster's topic of metrics, with value and cluster."""
    payload = gauge_request(names.OTEL_METRIC_CPU_LIMIT_UTILIZATION, 0.25).SerializeToString()
    assert running.export_http("/v1/metrics", payload).status_code == 200
    [message] = read_topic(kafka, METRICS, lambda messages: len(messages) >= 1)
    [resource_metrics] = ExportMetricsServiceRequest.FromString(message.value).resource_metrics
    [metric] = resource_metrics.scope_metrics[0].metrics
    assert (metric.name, metric.gauge.data_points[0].as_double) == (
        names.OTEL_METRIC_CPU_LIMIT_UTILIZATION,
        0.25,
    )
    attributes = {a.key: a.value.string_value for a in resource_metrics.resource.attributes}
    assert attributes == {names.SPAN_ATTRIBUTE_CLUSTER: CLUSTER}


def test_what_does_not_decode_is_refused_and_counted_and_the_rest_goes_on(running, kafka):
    """A sender of garbage gets a final error with the reason.

    It is counted, and good spans still flow.
    """
    with pytest.raises(grpc.RpcError) as refused:
        running.export_grpc(GARBAGE)
    # OTLP defines both of these codes as final. gRPC's own decoder answers with INTERNAL.
    assert refused.value.code() in (grpc.StatusCode.INTERNAL, grpc.StatusCode.INVALID_ARGUMENT)
    assert "unmarshal" in refused.value.details()
    for path, payload, content_type in [
        ("/v1/traces", GARBAGE, "application/x-protobuf"),
        ("/v1/traces", b"{no json", "application/json"),
        ("/v1/metrics", GARBAGE, "application/x-protobuf"),
    ]:
        answer = running.export_http(path, payload, content_type)
        assert answer.status_code == 400 and answer.content
    trace_id = secrets.token_bytes(16)
    running.export_grpc(spans_request([trace_id]).SerializeToString())
    assert len(messages_of(kafka, [trace_id], 1)) == 1
    metrics = running.metrics()
    assert samples(metrics, "http_server_request_duration.*_count", 'http_response_status_code="400"') == 3
    assert samples(metrics, "rpc_server_call_duration.*_count", 'rpc_response_status_code="INTERNAL"') == 1
