"""The one shape in which every tracer's spans are thought about."""

from enum import IntEnum
from typing import NamedTuple


class Kind(IntEnum):
    INTERNAL = 0
    SERVER = 1
    CLIENT = 2


class Span(NamedTuple):
    """A span that passed validation. Ids are lower-case hex; '' and None mean that it did not say."""

    trace_id: str
    span_id: str
    parent_id: str
    kind: Kind
    name: str
    started_us: int
    duration_us: int
    cluster: str
    service: str
    class_id: str
    method: str
    path: str
    route: str
    source_cluster: str
    source_service: str
    destination_cluster: str
    destination_service: str
    in_flight: int
    arrival_rate: float
    network_us: int | None
    resends: int
    request_bytes: int
    response_bytes: int
    status: int
    failed: bool
    adjusted_count: float
    ruleset_version: int
