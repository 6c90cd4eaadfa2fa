"""Kafka's rights: infra/kafka/acls.yaml -> access control entries, and those into the brokers. Nothing is taken away."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import for_code
from aiokafka.protocol.admin import CreateAclsRequest_v1
from aiokafka.protocol.api import Request
from spillway_contracts.wires import KafkaWire

from spillway_streams import StreamsError
from spillway_streams.admission import MERGED
from spillway_streams.declared import KNOWN, of_clusters

# Kafka's numbers (AclOperation, ResourceType, PatternType LITERAL, AclPermissionType ALLOW).
_OPERATIONS = {"READ": 3, "WRITE": 4, "CREATE": 5, "DESCRIBE": 8, "DESCRIBE_CONFIGS": 10, "ALTER_CONFIGS": 11}
_RESOURCES = {"TOPIC": 2, "GROUP": 3}
_LITERAL, _ALLOW = 3, 3
_RIGHTS = {
    "read": ("READ", "DESCRIBE"),
    "write": ("WRITE", "DESCRIBE"),
    "describe": ("DESCRIBE",),
    "configs": ("DESCRIBE_CONFIGS",),
    "alter": ("ALTER_CONFIGS",),
    "create": ("CREATE", "DESCRIBE"),
}


@dataclass(frozen=True, order=True)
class Acl:
    """`principal` may do `operation` on the topic or group of that name, from any host."""

    principal: str
    resource: str
    name: str
    operation: str


def read(path: Path, clusters: Iterable[str]) -> list[Acl]:
    """Sorted, without repeats. A role with {cluster} is there once per cluster and its topics are that cluster's;
    another role's topics with {cluster} are those of all clusters. StreamsError names what is wrong."""
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise StreamsError(f"{path}: cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise StreamsError(f"{path}: must map roles to what they may do")
    found: set[Acl] = set()
    clusters = list(clusters)
    for role, rights in document.items():
        where = f"{path}: {role}"
        if "{cluster}" not in role:
            found |= set(_of(where, f"User:{role}", rights or {}, clusters))
            continue
        for cluster in clusters:
            found |= set(_of(where, f"User:{role.format(cluster=cluster)}", rights or {}, [cluster]))
    return sorted(found)


def _of(where: str, principal: str, rights: dict, clusters: list[str]) -> Iterable[Acl]:
    for right, wanted in rights.items():
        if right == "group":
            yield Acl(principal, "GROUP", wanted, "READ")
            yield Acl(principal, "GROUP", wanted, "DESCRIBE")
            continue
        if right not in _RIGHTS:
            raise StreamsError(f"{where}.{right}: must be one of group, {', '.join(sorted(_RIGHTS))}")
        for topic in _topics(f"{where}.{right}", wanted, clusters):
            for operation in _RIGHTS[right]:
                yield Acl(principal, "TOPIC", topic, operation)


def _topics(where: str, wanted: list[str], clusters: list[str]) -> Iterable[str]:
    for topic in wanted:
        if topic == "*":
            yield from sorted(KNOWN)
        elif topic not in KNOWN | MERGED.keys():
            known = ", ".join(sorted(KNOWN | MERGED.keys()))
            raise StreamsError(f"{where}: {topic}: unknown topic; topics: {known}")
        else:
            yield from of_clusters(topic, clusters)


class _Create(Request[CreateAclsRequest_v1]):
    """aiokafka's own request holds one entry."""

    API_KEY = 30

    def __init__(self, acls: Iterable[Acl]) -> None:
        self._acls = [
            (_RESOURCES[a.resource], a.name, _LITERAL, a.principal, "*", _OPERATIONS[a.operation], _ALLOW)
            for a in acls
        ]

    def build(self, request_struct_class: type[CreateAclsRequest_v1]) -> CreateAclsRequest_v1:
        return request_struct_class(self._acls)


async def create(kafka: KafkaWire, acls: list[Acl]) -> None:
    """Returns once the brokers have them all; those that are there stay. Raises KafkaError."""
    admin = AIOKafkaAdminClient(
        bootstrap_servers=kafka.kafka.split(","), request_timeout_ms=10_000, **kafka.kafka_client()
    )
    try:
        await admin.start()
        answer = await admin._send_to_controller(_Create(acls))
        for acl, (code, message) in zip(acls, answer.creation_responses, strict=True):
            if code:
                raise for_code(code)(f"{acl}: {message or 'refused'}")
    finally:
        await admin.close()
