import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Heartbeat(_message.Message):
    __slots__ = ("cluster", "at", "ttl_seconds", "services", "ruleset_version", "relay", "hold_seconds", "canary_version", "calls_in_flight")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    RULESET_VERSION_FIELD_NUMBER: _ClassVar[int]
    RELAY_FIELD_NUMBER: _ClassVar[int]
    HOLD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CANARY_VERSION_FIELD_NUMBER: _ClassVar[int]
    CALLS_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    at: _timestamp_pb2.Timestamp
    ttl_seconds: int
    services: _containers.RepeatedCompositeFieldContainer[ServicePresence]
    ruleset_version: int
    relay: str
    hold_seconds: int
    canary_version: int
    calls_in_flight: _containers.RepeatedCompositeFieldContainer[CallsInFlight]
    def __init__(self, cluster: _Optional[str] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ttl_seconds: _Optional[int] = ..., services: _Optional[_Iterable[_Union[ServicePresence, _Mapping]]] = ..., ruleset_version: _Optional[int] = ..., relay: _Optional[str] = ..., hold_seconds: _Optional[int] = ..., canary_version: _Optional[int] = ..., calls_in_flight: _Optional[_Iterable[_Union[CallsInFlight, _Mapping]]] = ...) -> None: ...

class ServicePresence(_message.Message):
    __slots__ = ("service", "connected_envoys", "envoys", "pods", "ready_pods")
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_ENVOYS_FIELD_NUMBER: _ClassVar[int]
    ENVOYS_FIELD_NUMBER: _ClassVar[int]
    PODS_FIELD_NUMBER: _ClassVar[int]
    READY_PODS_FIELD_NUMBER: _ClassVar[int]
    service: str
    connected_envoys: int
    envoys: _containers.RepeatedScalarFieldContainer[int]
    pods: int
    ready_pods: int
    def __init__(self, service: _Optional[str] = ..., connected_envoys: _Optional[int] = ..., envoys: _Optional[_Iterable[int]] = ..., pods: _Optional[int] = ..., ready_pods: _Optional[int] = ...) -> None: ...

class CallsInFlight(_message.Message):
    __slots__ = ("service", "reporting_envoys", "destinations")
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    REPORTING_ENVOYS_FIELD_NUMBER: _ClassVar[int]
    DESTINATIONS_FIELD_NUMBER: _ClassVar[int]
    service: str
    reporting_envoys: int
    destinations: _containers.RepeatedCompositeFieldContainer[DestinationCalls]
    def __init__(self, service: _Optional[str] = ..., reporting_envoys: _Optional[int] = ..., destinations: _Optional[_Iterable[_Union[DestinationCalls, _Mapping]]] = ...) -> None: ...

class DestinationCalls(_message.Message):
    __slots__ = ("service", "cluster", "calls")
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    service: str
    cluster: str
    calls: int
    def __init__(self, service: _Optional[str] = ..., cluster: _Optional[str] = ..., calls: _Optional[int] = ...) -> None: ...
