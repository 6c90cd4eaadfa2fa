import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Origin(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ORIGIN_UNSPECIFIED: _ClassVar[Origin]
    ORIGIN_OPTIMIZER: _ClassVar[Origin]
    ORIGIN_PAPA: _ClassVar[Origin]
    ORIGIN_OPERATOR: _ClassVar[Origin]
ORIGIN_UNSPECIFIED: Origin
ORIGIN_OPTIMIZER: Origin
ORIGIN_PAPA: Origin
ORIGIN_OPERATOR: Origin

class TrafficClass(_message.Message):
    __slots__ = ("service", "method", "path_template")
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    PATH_TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    service: str
    method: str
    path_template: str
    def __init__(self, service: _Optional[str] = ..., method: _Optional[str] = ..., path_template: _Optional[str] = ...) -> None: ...

class Destination(_message.Message):
    __slots__ = ("cluster", "weight", "predicted_compute_ms", "predicted_network_ms")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_COMPUTE_MS_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_NETWORK_MS_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    weight: int
    predicted_compute_ms: float
    predicted_network_ms: float
    def __init__(self, cluster: _Optional[str] = ..., weight: _Optional[int] = ..., predicted_compute_ms: _Optional[float] = ..., predicted_network_ms: _Optional[float] = ...) -> None: ...

class Rule(_message.Message):
    __slots__ = ("source_cluster", "source_service", "traffic_class", "destinations", "reason", "changed_version", "changed_by", "policy")
    SOURCE_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    SOURCE_SERVICE_FIELD_NUMBER: _ClassVar[int]
    TRAFFIC_CLASS_FIELD_NUMBER: _ClassVar[int]
    DESTINATIONS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CHANGED_VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANGED_BY_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    source_cluster: str
    source_service: str
    traffic_class: TrafficClass
    destinations: _containers.RepeatedCompositeFieldContainer[Destination]
    reason: str
    changed_version: int
    changed_by: Origin
    policy: str
    def __init__(self, source_cluster: _Optional[str] = ..., source_service: _Optional[str] = ..., traffic_class: _Optional[_Union[TrafficClass, _Mapping]] = ..., destinations: _Optional[_Iterable[_Union[Destination, _Mapping]]] = ..., reason: _Optional[str] = ..., changed_version: _Optional[int] = ..., changed_by: _Optional[_Union[Origin, str]] = ..., policy: _Optional[str] = ...) -> None: ...

class Denial(_message.Message):
    __slots__ = ("source_cluster", "traffic_class", "clusters")
    SOURCE_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    TRAFFIC_CLASS_FIELD_NUMBER: _ClassVar[int]
    CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    source_cluster: str
    traffic_class: TrafficClass
    clusters: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, source_cluster: _Optional[str] = ..., traffic_class: _Optional[_Union[TrafficClass, _Mapping]] = ..., clusters: _Optional[_Iterable[str]] = ...) -> None: ...

class InputWindow(_message.Message):
    __slots__ = ("id", "start", "end")
    ID_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    id: str
    start: _timestamp_pb2.Timestamp
    end: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[str] = ..., start: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Prediction(_message.Message):
    __slots__ = ("mean_latency_ms", "compute_ms", "network_ms", "egress_usd_per_hour", "demand_rps")
    MEAN_LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_MS_FIELD_NUMBER: _ClassVar[int]
    NETWORK_MS_FIELD_NUMBER: _ClassVar[int]
    EGRESS_USD_PER_HOUR_FIELD_NUMBER: _ClassVar[int]
    DEMAND_RPS_FIELD_NUMBER: _ClassVar[int]
    mean_latency_ms: float
    compute_ms: float
    network_ms: float
    egress_usd_per_hour: float
    demand_rps: float
    def __init__(self, mean_latency_ms: _Optional[float] = ..., compute_ms: _Optional[float] = ..., network_ms: _Optional[float] = ..., egress_usd_per_hour: _Optional[float] = ..., demand_rps: _Optional[float] = ...) -> None: ...

class Canary(_message.Message):
    __slots__ = ("ruleset", "clusters", "share", "until")
    RULESET_FIELD_NUMBER: _ClassVar[int]
    CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    ruleset: Ruleset
    clusters: _containers.RepeatedScalarFieldContainer[str]
    share: int
    until: _timestamp_pb2.Timestamp
    def __init__(self, ruleset: _Optional[_Union[Ruleset, _Mapping]] = ..., clusters: _Optional[_Iterable[str]] = ..., share: _Optional[int] = ..., until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Ruleset(_message.Message):
    __slots__ = ("id", "version", "origin", "policy", "input_window", "created_at", "expires_at", "predicted", "rules", "traffic_classes", "fencing_token", "denials", "base_version", "partial", "reset_fences", "reason", "canary", "concludes")
    ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    INPUT_WINDOW_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    TRAFFIC_CLASSES_FIELD_NUMBER: _ClassVar[int]
    FENCING_TOKEN_FIELD_NUMBER: _ClassVar[int]
    DENIALS_FIELD_NUMBER: _ClassVar[int]
    BASE_VERSION_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    RESET_FENCES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CANARY_FIELD_NUMBER: _ClassVar[int]
    CONCLUDES_FIELD_NUMBER: _ClassVar[int]
    id: str
    version: int
    origin: Origin
    policy: str
    input_window: InputWindow
    created_at: _timestamp_pb2.Timestamp
    expires_at: _timestamp_pb2.Timestamp
    predicted: Prediction
    rules: _containers.RepeatedCompositeFieldContainer[Rule]
    traffic_classes: _containers.RepeatedCompositeFieldContainer[TrafficClass]
    fencing_token: int
    denials: _containers.RepeatedCompositeFieldContainer[Denial]
    base_version: int
    partial: bool
    reset_fences: _containers.RepeatedScalarFieldContainer[Origin]
    reason: str
    canary: Canary
    concludes: int
    def __init__(self, id: _Optional[str] = ..., version: _Optional[int] = ..., origin: _Optional[_Union[Origin, str]] = ..., policy: _Optional[str] = ..., input_window: _Optional[_Union[InputWindow, _Mapping]] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., predicted: _Optional[_Union[Prediction, _Mapping]] = ..., rules: _Optional[_Iterable[_Union[Rule, _Mapping]]] = ..., traffic_classes: _Optional[_Iterable[_Union[TrafficClass, _Mapping]]] = ..., fencing_token: _Optional[int] = ..., denials: _Optional[_Iterable[_Union[Denial, _Mapping]]] = ..., base_version: _Optional[int] = ..., partial: _Optional[bool] = ..., reset_fences: _Optional[_Iterable[_Union[Origin, str]]] = ..., reason: _Optional[str] = ..., canary: _Optional[_Union[Canary, _Mapping]] = ..., concludes: _Optional[int] = ...) -> None: ...
