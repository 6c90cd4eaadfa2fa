"""Conversion of OTLP JSON to requests, each of one trace, resource and cluster."""

import base64
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from spillway_contracts import names

from spillway_streams.load.attributes import CLUSTER, attributes_of
from spillway_streams.recorded.clusters import Clusters, TraceFileError

_IDS = {"traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id"}


def otlp_request(document: Mapping[str, Any]) -> ExportTraceServiceRequest:
    """Parses OTLP/JSON, which writes ids in hex where the JSON of protobuf writes base64.

    Raises json_format.ParseError or ValueError.
    """
    return json_format.ParseDict(
        _base64_ids(document), ExportTraceServiceRequest(), ignore_unknown_fields=True
    )


def _base64_ids(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            k: base64.b64encode(bytes.fromhex(v)).decode()
            if k in _IDS and isinstance(v, str)
            else _base64_ids(v)
            for k, v in value.items()
        }
    return [_base64_ids(item) for item in value] if isinstance(value, list) else value


def traces(
    where: str, document: Mapping[str, Any], clusters: Clusters
) -> Iterator[tuple[bytes, ExportTraceServiceRequest]]:
    """Yields (trace id, request) for each trace and cluster of each resource.

    `where`: the place named in errors. Raises TraceFileError.
    """
    try:
        request = otlp_request(document)
    except (json_format.ParseError, ValueError) as error:
        raise TraceFileError(f"{where}: not OTLP JSON: {error}") from error
    for n, resource_spans in enumerate(request.resource_spans):
        about = attributes_of(resource_spans.resource.attributes)
        groups: dict[tuple[bytes, str], list[Span]] = defaultdict(list)
        for scope in resource_spans.scope_spans:
            for span in scope.spans:
                at = f"{where}: resourceSpans[{n}], span {span.span_id.hex()}"
                cluster = clusters.of(at, about, _Lazy(span))
                groups[span.trace_id, cluster].append(span)
        for (trace_id, cluster), spans in groups.items():
            yield trace_id, _request(resource_spans.resource, spans, cluster)


class _Lazy(Mapping[str, Any]):
    """A span's attributes, which are read only if the resource does not name the cluster."""

    def __init__(self, span: Span):
        self._span = span

    @cached_property
    def _found(self) -> dict[str, Any]:
        return attributes_of(self._span.attributes)

    def __getitem__(self, key: str) -> Any:
        return self._found[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def _request(resource: Resource, spans: list[Span], cluster: str) -> ExportTraceServiceRequest:
    """Returns spans of one trace and resource as a request that names this cluster and no other."""
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    resource_spans.resource.CopyFrom(resource)
    copies = resource_spans.scope_spans.add().spans
    copies.extend(spans)
    for holder in (resource_spans.resource, *copies):
        if any(attribute.key in CLUSTER for attribute in holder.attributes):
            kept = [attribute for attribute in holder.attributes if attribute.key not in CLUSTER]
            del holder.attributes[:]
            holder.attributes.extend(kept)
    added = resource_spans.resource.attributes.add(key=names.SPAN_ATTRIBUTE_CLUSTER)
    added.value.string_value = cluster
    return request
