"""What a span's attributes say, whichever tracer wrote them: our filter's names (contracts/names.yaml),
OpenTelemetry's stable and old HTTP and RPC conventions, Envoy's tracer, and gRPC spans that came
from Jaeger clients. The first name that is present wins, so ours come first.
"""

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from spillway_contracts import names

Value = str | int | float | bool
Attributes = Mapping[str, Value]

METHOD = (names.OTEL_ATTRIBUTE_HTTP_METHOD, "http.method")
STATUS = (names.OTEL_ATTRIBUTE_HTTP_STATUS, "http.status_code")
ROUTE = (names.OTEL_ATTRIBUTE_HTTP_ROUTE, names.OTEL_ATTRIBUTE_URL_TEMPLATE)
PATH = (names.OTEL_ATTRIBUTE_URL_PATH, "http.target", "url.full", "http.url")
GRPC_STATUS = ("rpc.grpc.status_code", "rpc.response.status_code", "grpc.status_code")
REQUEST_SIZE = (
    names.OTEL_ATTRIBUTE_REQUEST_SIZE,
    "http.request.size",  # on the wire: with the headers
    "http.request_content_length",
    "request_size",
)
RESPONSE_SIZE = (
    names.OTEL_ATTRIBUTE_RESPONSE_SIZE,
    "http.response.size",
    "http.response_content_length",
    "response_size",
)
PEER = (
    names.SPAN_ATTRIBUTE_DESTINATION_SERVICE,
    "peer.service",
    names.OTEL_ATTRIBUTE_SERVER_ADDRESS,
    "net.peer.name",
)
RESENDS = (names.OTEL_ATTRIBUTE_RESEND_COUNT, "http.resend_count")
CLUSTER = (names.SPAN_ATTRIBUTE_CLUSTER, "k8s.cluster.name")

_NAME = re.compile(r"(?:HTTP )?([A-Z]+) (/\S*)")
# UNKNOWN, DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, DATA_LOSS: what the conventions call a
# server's error. NOT_FOUND and the like are answers, as HTTP's 4xx are.
_GRPC_FAULTS = frozenset({2, 4, 12, 13, 14, 15})
_GRPC_NAME = re.compile(r"/[\w.]+/\w+")
_MAX_PATH = 2048


class Request(NamedTuple):
    """Method and path of what a span served or called; '' where it does not say."""

    method: str
    path: str
    route: str


def first(attributes: Attributes, keys: tuple[str, ...]) -> Value | None:
    for key in keys:
        if key in attributes:
            return attributes[key]
    return None


def text(attributes: Attributes, *keys: str) -> str:
    value = first(attributes, keys)
    return value if isinstance(value, str) else ""


def whole(attributes: Attributes, keys: tuple[str, ...], limit: int = 2**63 - 1) -> int | None:
    """A count in 0..limit; None when absent or no such number (Envoy writes numbers as strings)."""
    value = first(attributes, keys)
    try:
        number = int(value) if value is not None else -1
    except (ValueError, OverflowError):
        return None
    return number if 0 <= number <= limit else None


def rate(attributes: Attributes, key: str) -> float:
    """A rate per second; 0.0 when absent, negative or not finite."""
    value = attributes.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if math.isfinite(value) and value > 0 else 0.0


def request(attributes: Attributes, span_name: str) -> Request:
    """What was asked for: HTTP attributes, else RPC attributes, else the span's name."""
    route = text(attributes, *ROUTE)
    path = text(attributes, *PATH)[:_MAX_PATH]
    method = text(attributes, *METHOD)
    if method or path:
        return Request(method.upper(), path, route[:_MAX_PATH])
    service, rpc = text(attributes, "rpc.service"), text(attributes, "rpc.method")
    if service and rpc:
        return Request("POST", "", f"/{service}/{rpc}"[:_MAX_PATH])
    is_rpc = text(attributes, "component").lower() == "grpc" or "rpc.system" in attributes
    if is_rpc and _GRPC_NAME.fullmatch(span_name):
        return Request("POST", "", span_name[:_MAX_PATH])
    if match := _NAME.fullmatch(span_name[:_MAX_PATH]):
        return Request(match[1], match[2], "")
    return Request("", "", "")


def outcome(attributes: Attributes, is_error: bool) -> tuple[int, bool]:
    """HTTP status (0: none) and whether the request failed: an error status, HTTP 5xx, an HTTP
    request that got no response, or a gRPC status that is the server's fault."""
    status = whole(attributes, STATUS, 0xFFFF)
    grpc = whole(attributes, GRPC_STATUS)
    no_response = status == 0 and first(attributes, STATUS) is not None
    failed = is_error or no_response or (status or 0) >= 500 or grpc in _GRPC_FAULTS
    failed = failed or attributes.get("error") in (True, "true")
    return status or 0, failed


def peer(attributes: Attributes) -> str:
    """Service that a client span says it called; '' when it is silent or names a foreign host.

    Our attribute is taken as it is; of a host name the port goes, and `.<namespace>.svc...` does.
    """
    if own := text(attributes, PEER[0]):
        return own
    host = text(attributes, *PEER[1:]).split(":", 1)[0]
    label, _, rest = host.partition(".")
    in_cluster = not rest or "svc" in rest.split(".")
    return label if in_cluster and not label.isdigit() else ""
