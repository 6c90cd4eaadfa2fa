import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OUTCOME_ACK: _ClassVar[Outcome]
    OUTCOME_NACK: _ClassVar[Outcome]
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_ACK: Outcome
OUTCOME_NACK: Outcome

class Acknowledgement(_message.Message):
    __slots__ = ("cluster", "service", "envoy", "ruleset_version", "type_url", "outcome", "detail", "at")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    ENVOY_FIELD_NUMBER: _ClassVar[int]
    RULESET_VERSION_FIELD_NUMBER: _ClassVar[int]
    TYPE_URL_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    service: str
    envoy: str
    ruleset_version: int
    type_url: str
    outcome: Outcome
    detail: str
    at: _timestamp_pb2.Timestamp
    def __init__(self, cluster: _Optional[str] = ..., service: _Optional[str] = ..., envoy: _Optional[str] = ..., ruleset_version: _Optional[int] = ..., type_url: _Optional[str] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., detail: _Optional[str] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
