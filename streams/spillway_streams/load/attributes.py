"""Attributes of OTLP resources and data points, for payloads that are parsed in Python.

Only metrics are parsed here: they are few and small.
"""

from collections.abc import Iterable, Mapping

from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from spillway_contracts import names

from spillway_streams import StreamsError

Value = str | int | float | bool
EARLIEST_US = 946_684_800_000_000  # 2000-01-01: an older time comes from a clock that was never set
CLUSTER = (names.SPAN_ATTRIBUTE_CLUSTER, "k8s.cluster.name")
_SCALARS = {"string_value", "int_value", "double_value", "bool_value"}


class PayloadError(StreamsError):
    """A payload that is not the message that its topic carries."""


def attributes_of(pairs: Iterable[KeyValue]) -> dict[str, Value]:
    """Returns the attributes that have a scalar value (string, int, double or bool), by key."""
    found = {}
    for pair in pairs:
        kind = pair.value.WhichOneof("value")
        if kind in _SCALARS:
            found[pair.key] = getattr(pair.value, kind)
    return found


def text(attributes: Mapping[str, Value], *keys: str) -> str:
    """Returns the value of the first of these keys that is present.

    Returns '' when no key is present, or when that value is not a string.
    """
    for key in keys:
        if key in attributes:
            value = attributes[key]
            return value if isinstance(value, str) else ""
    return ""
