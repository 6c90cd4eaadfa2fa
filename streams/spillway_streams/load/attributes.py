"""What OTLP resources and points say of themselves, for payloads that are read in Python (metrics: few and small)."""

from collections.abc import Iterable, Mapping

from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from spillway_contracts import names

from spillway_streams import StreamsError

Value = str | int | float | bool
EARLIEST_US = 946_684_800_000_000  # 2000-01-01: older means an unset clock
CLUSTER = (names.SPAN_ATTRIBUTE_CLUSTER, "k8s.cluster.name")
_SCALARS = {"string_value", "int_value", "double_value", "bool_value"}


class PayloadError(StreamsError):
    """A payload that is not the message that its topic carries."""


def attributes_of(pairs: Iterable[KeyValue]) -> dict[str, Value]:
    found = {}
    for pair in pairs:
        kind = pair.value.WhichOneof("value")
        if kind in _SCALARS:
            found[pair.key] = getattr(pair.value, kind)
    return found


def text(attributes: Mapping[str, Value], *keys: str) -> str:
    """The value of the first of these keys that is there; '' when there is none or it is no text."""
    for key in keys:
        if key in attributes:
            value = attributes[key]
            return value if isinstance(value, str) else ""
    return ""
