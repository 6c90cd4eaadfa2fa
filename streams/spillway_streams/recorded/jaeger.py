"""Conversion of Jaeger UI JSON traces to OTLP. Pure.

Timestamps are not changed. The root of a sampled trace has the tags `sampler.type`, with the value
"probabilistic", and `sampler.param`, the probability with which the trace was kept. Every span of
such a trace gets the matching tracestate, so that counts can be corrected.
"""

import gzip
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2
from spillway_contracts import names
from spillway_native import tracestate

from spillway_streams import StreamsError

_KINDS = {
    "server": trace_pb2.Span.SPAN_KIND_SERVER,
    "client": trace_pb2.Span.SPAN_KIND_CLIENT,
    "producer": trace_pb2.Span.SPAN_KIND_PRODUCER,
    "consumer": trace_pb2.Span.SPAN_KIND_CONSUMER,
}


# (process, span), as in the JSON -> the cluster that the span was made in
ClusterOf = Callable[[dict[str, Any], dict[str, Any]], str]


class JaegerError(StreamsError):
    """A file that is not Jaeger UI JSON. Names the file and what is missing."""


def read(path: Path) -> list[dict[str, Any]]:
    """Returns the traces of one file, gzipped or not."""
    try:
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        traces = json.loads(text)["data"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise JaegerError(f"{path}: not Jaeger UI JSON with a 'data' list: {error!r}") from error
    if not isinstance(traces, list):
        raise JaegerError(f"{path}: 'data' is {type(traces).__name__}, must be a list of traces")
    return traces


def started_us(trace: dict[str, Any]) -> int:
    return min(span["startTime"] for span in trace["spans"])


def in_time_order(traces: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the traces of all files in order of their first span."""
    return sorted((trace for trace in traces if trace.get("spans")), key=started_us)


def convert(trace: dict[str, Any], cluster: str | ClusterOf) -> ExportTraceServiceRequest:
    """Converts one trace to one request, with one ResourceSpans per process and cluster.

    Raises JaegerError, which names a missing key.
    """
    try:
        return _convert(trace, cluster if callable(cluster) else lambda process, span: cluster)
    except StreamsError:  # raised by `cluster`, whose message is more precise
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise JaegerError(f"trace {trace.get('traceID', '?')}: {error!r}") from error


def batches(
    traces: Iterable[dict[str, Any]], cluster: str | ClusterOf, max_spans: int = 500
) -> Iterator[ExportTraceServiceRequest]:
    """Yields requests of at most about `max_spans` spans. A trace is never split."""
    batch, size = ExportTraceServiceRequest(), 0
    for trace in traces:
        request = convert(trace, cluster)
        if size and size + len(trace["spans"]) > max_spans:
            yield batch
            batch, size = ExportTraceServiceRequest(), 0
        batch.MergeFrom(request)
        size += len(trace["spans"])
    if size:
        yield batch


def _convert(trace: dict[str, Any], cluster_of: ClusterOf) -> ExportTraceServiceRequest:
    state = _tracestate(trace["spans"])
    groups = defaultdict(list)
    for span in trace["spans"]:
        process = span["processID"]
        groups[process, cluster_of(trace["processes"][process], span)].append(span)
    request = ExportTraceServiceRequest()
    for (process, cluster), spans in sorted(groups.items()):
        resource_spans = request.resource_spans.add()
        service = trace["processes"][process]["serviceName"]
        _set(resource_spans.resource.attributes, names.SPAN_ATTRIBUTE_SERVICE, service)
        _set(resource_spans.resource.attributes, names.SPAN_ATTRIBUTE_CLUSTER, cluster)
        scope = resource_spans.scope_spans.add()
        scope.spans.extend(_span(span, state) for span in spans)
    return request


def _tracestate(spans: list[dict[str, Any]]) -> str:
    for span in spans:
        tags = {tag["key"]: tag["value"] for tag in span["tags"]}
        if tags.get("sampler.type") == "probabilistic":
            return tracestate(float(tags["sampler.param"]))
    return ""


def _span(span: dict[str, Any], state: str) -> trace_pb2.Span:
    tags = {tag["key"]: tag["value"] for tag in span["tags"]}
    result = trace_pb2.Span(
        trace_id=bytes.fromhex(span["traceID"].zfill(32)),
        span_id=bytes.fromhex(span["spanID"].zfill(16)),
        parent_span_id=_parent(span),
        trace_state=state,
        name=span["operationName"],
        kind=_KINDS.get(tags.pop("span.kind", ""), trace_pb2.Span.SPAN_KIND_INTERNAL),
        start_time_unix_nano=span["startTime"] * 1000,
        end_time_unix_nano=(span["startTime"] + span["duration"]) * 1000,
    )
    for key, value in tags.items():
        _set(result.attributes, key, value)
    return result


def _parent(span: dict[str, Any]) -> bytes:
    for reference in span.get("references", []):
        if reference["refType"] == "CHILD_OF":
            return bytes.fromhex(reference["spanID"].zfill(16))
    return b""


def _set(attributes: Any, key: str, value: str | bool | float) -> None:
    target = attributes.add(key=key).value
    if isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, int):
        target.int_value = value
    elif isinstance(value, float):
        target.double_value = value
    else:
        target.string_value = str(value)
