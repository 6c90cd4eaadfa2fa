import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Topology(_message.Message):
    __slots__ = ("clusters", "links", "services", "usd_per_ms_per_million_requests")
    CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    USD_PER_MS_PER_MILLION_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    clusters: _containers.RepeatedCompositeFieldContainer[Cluster]
    links: _containers.RepeatedCompositeFieldContainer[Link]
    services: _containers.RepeatedCompositeFieldContainer[Service]
    usd_per_ms_per_million_requests: float
    def __init__(self, clusters: _Optional[_Iterable[_Union[Cluster, _Mapping]]] = ..., links: _Optional[_Iterable[_Union[Link, _Mapping]]] = ..., services: _Optional[_Iterable[_Union[Service, _Mapping]]] = ..., usd_per_ms_per_million_requests: _Optional[float] = ...) -> None: ...

class Cluster(_message.Message):
    __slots__ = ("name", "region")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    name: str
    region: str
    def __init__(self, name: _Optional[str] = ..., region: _Optional[str] = ...) -> None: ...

class Link(_message.Message):
    __slots__ = ("source_cluster", "destination_cluster", "rtt_ms", "egress_usd_per_gb")
    SOURCE_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    RTT_MS_FIELD_NUMBER: _ClassVar[int]
    EGRESS_USD_PER_GB_FIELD_NUMBER: _ClassVar[int]
    source_cluster: str
    destination_cluster: str
    rtt_ms: float
    egress_usd_per_gb: float
    def __init__(self, source_cluster: _Optional[str] = ..., destination_cluster: _Optional[str] = ..., rtt_ms: _Optional[float] = ..., egress_usd_per_gb: _Optional[float] = ...) -> None: ...

class Service(_message.Message):
    __slots__ = ("name", "placements", "load_report", "timeouts", "replay", "check")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PLACEMENTS_FIELD_NUMBER: _ClassVar[int]
    LOAD_REPORT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUTS_FIELD_NUMBER: _ClassVar[int]
    REPLAY_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    name: str
    placements: _containers.RepeatedCompositeFieldContainer[Placement]
    load_report: str
    timeouts: Timeouts
    replay: str
    check: str
    def __init__(self, name: _Optional[str] = ..., placements: _Optional[_Iterable[_Union[Placement, _Mapping]]] = ..., load_report: _Optional[str] = ..., timeouts: _Optional[_Union[Timeouts, _Mapping]] = ..., replay: _Optional[str] = ..., check: _Optional[str] = ...) -> None: ...

class Timeouts(_message.Message):
    __slots__ = ("request", "idle", "per_try")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    IDLE_FIELD_NUMBER: _ClassVar[int]
    PER_TRY_FIELD_NUMBER: _ClassVar[int]
    request: _duration_pb2.Duration
    idle: _duration_pb2.Duration
    per_try: _duration_pb2.Duration
    def __init__(self, request: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., idle: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., per_try: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Placement(_message.Message):
    __slots__ = ("cluster", "threshold_rps", "autoscaler")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_RPS_FIELD_NUMBER: _ClassVar[int]
    AUTOSCALER_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    threshold_rps: float
    autoscaler: Autoscaler
    def __init__(self, cluster: _Optional[str] = ..., threshold_rps: _Optional[float] = ..., autoscaler: _Optional[_Union[Autoscaler, _Mapping]] = ...) -> None: ...

class Autoscaler(_message.Message):
    __slots__ = ("target_utilisation", "max_pods")
    TARGET_UTILISATION_FIELD_NUMBER: _ClassVar[int]
    MAX_PODS_FIELD_NUMBER: _ClassVar[int]
    target_utilisation: float
    max_pods: int
    def __init__(self, target_utilisation: _Optional[float] = ..., max_pods: _Optional[int] = ...) -> None: ...

class Endpoints(_message.Message):
    __slots__ = ("cluster", "services", "kubernetes", "dns")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    KUBERNETES_FIELD_NUMBER: _ClassVar[int]
    DNS_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    services: _containers.RepeatedCompositeFieldContainer[ServiceEndpoints]
    kubernetes: _containers.RepeatedCompositeFieldContainer[KubernetesEndpoints]
    dns: DnsSettings
    def __init__(self, cluster: _Optional[str] = ..., services: _Optional[_Iterable[_Union[ServiceEndpoints, _Mapping]]] = ..., kubernetes: _Optional[_Iterable[_Union[KubernetesEndpoints, _Mapping]]] = ..., dns: _Optional[_Union[DnsSettings, _Mapping]] = ...) -> None: ...

class ServiceEndpoints(_message.Message):
    __slots__ = ("service", "cluster", "addresses", "names")
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    service: str
    cluster: str
    addresses: _containers.RepeatedScalarFieldContainer[str]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, service: _Optional[str] = ..., cluster: _Optional[str] = ..., addresses: _Optional[_Iterable[str]] = ..., names: _Optional[_Iterable[str]] = ...) -> None: ...

class DnsSettings(_message.Message):
    __slots__ = ("refresh_seconds", "server")
    REFRESH_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    refresh_seconds: int
    server: str
    def __init__(self, refresh_seconds: _Optional[int] = ..., server: _Optional[str] = ...) -> None: ...

class KubernetesEndpoints(_message.Message):
    __slots__ = ("cluster", "namespaces", "selector", "service_label", "port", "ip_family", "kubeconfig", "context")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NAMESPACES_FIELD_NUMBER: _ClassVar[int]
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    SERVICE_LABEL_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    IP_FAMILY_FIELD_NUMBER: _ClassVar[int]
    KUBECONFIG_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    namespaces: _containers.RepeatedScalarFieldContainer[str]
    selector: str
    service_label: str
    port: str
    ip_family: str
    kubeconfig: str
    context: str
    def __init__(self, cluster: _Optional[str] = ..., namespaces: _Optional[_Iterable[str]] = ..., selector: _Optional[str] = ..., service_label: _Optional[str] = ..., port: _Optional[str] = ..., ip_family: _Optional[str] = ..., kubeconfig: _Optional[str] = ..., context: _Optional[str] = ...) -> None: ...
