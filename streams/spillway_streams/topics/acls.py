"""Kafka's access rights: compares infra/kafka/acls.yaml with the brokers and adds what is missing.

Existing access control entries are never removed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import yaml
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import for_code
from aiokafka.protocol.admin import CreateAclsRequest_v1, DescribeAclsRequest
from aiokafka.protocol.api import Request
from spillway_contracts.wires import KafkaWire

from spillway_streams import StreamsError
from spillway_streams.process.cluster_topics import MERGED
from spillway_streams.topics.declared import KNOWN, of_clusters

# Codes of Kafka's protocol: AclOperation, ResourceType, PatternType LITERAL, and AclPermissionType
# ALLOW.
_OPERATIONS = {"READ": 3, "WRITE": 4, "CREATE": 5, "DESCRIBE": 8, "DESCRIBE_CONFIGS": 10, "ALTER_CONFIGS": 11}
_RESOURCES = {"TOPIC": 2, "GROUP": 3}
_LITERAL, _ALLOW, _ANY = 3, 3, 1
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
    """`principal` may do `operation` on the topic or group `name`, from any host."""

    principal: str
    resource: str
    name: str
    operation: str


def read(path: Path, clusters: Iterable[str], principals: Mapping[str, str] | None = None) -> list[Acl]:
    """Returns the entries that the file declares, sorted and without repeats.

    A role with {cluster} in its name exists once per cluster, and its topics with {cluster} are
    those of that cluster. For any other role, topics with {cluster} are those of all clusters.
    `principals`: the principal of each user for which it is not User:<name>, such as a service
    account. Raises StreamsError naming what is wrong.
    """
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
    return sorted(_renamed(found, principals or {}))


def _renamed(found: set[Acl], principals: Mapping[str, str]) -> Iterable[Acl]:
    known = {acl.principal.removeprefix("User:") for acl in found}
    if unknown := sorted(set(principals) - known):
        raise StreamsError(f"--principals: {unknown[0]}: no such user; users: {', '.join(sorted(known))}")
    for acl in found:
        yield replace(acl, principal=principals.get(acl.principal.removeprefix("User:"), acl.principal))


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
    """A CreateAcls request with several entries; aiokafka's own request holds one."""

    API_KEY = 30

    def __init__(self, acls: Iterable[Acl]) -> None:
        self._acls = [
            (_RESOURCES[a.resource], a.name, _LITERAL, a.principal, "*", _OPERATIONS[a.operation], _ALLOW)
            for a in acls
        ]

    def build(self, request_struct_class: type[CreateAclsRequest_v1]) -> CreateAclsRequest_v1:
        return request_struct_class(self._acls)


@dataclass(frozen=True)
class Difference:
    """How the brokers' entries differ from the file's.

    `missing`: entries of the file that the brokers lack. `more`: other entries of the file's users,
    as sentences.
    """

    missing: tuple[Acl, ...]
    more: tuple[str, ...]


async def apply(kafka: KafkaWire, acls: list[Acl], change: bool) -> Difference:
    """Compares the brokers' entries with `acls`, and with `change` creates those that are missing.

    Returns the difference found. Never removes an entry. Raises KafkaError.
    """
    admin = AIOKafkaAdminClient(
        bootstrap_servers=kafka.kafka.split(","), request_timeout_ms=10_000, **kafka.kafka_client()
    )
    try:
        await admin.start()
        found = difference(acls, await _described(admin))
        if change and found.missing:
            answer = await admin._send_to_controller(_Create(found.missing))
            for acl, (code, message) in zip(found.missing, answer.creation_responses, strict=True):
                if code:
                    raise for_code(code)(f"{acl}: {message or 'refused'}")
        return found
    finally:
        await admin.close()


async def _described(admin: AIOKafkaAdminClient) -> list[tuple]:
    """Returns every entry that the brokers have, in the codes of Kafka's protocol.

    An entry is (principal, resource type, name, pattern type, host, operation, permission).
    """
    answer = await admin._send_to_controller(DescribeAclsRequest(_ANY, None, _ANY, None, None, _ANY, _ANY))
    if answer.error_code:
        raise for_code(answer.error_code)(answer.error_message or "entries cannot be read")
    return [
        (principal, kind, name, pattern, host, operation, permission)
        for kind, name, pattern, entries in answer.resources
        for principal, host, operation, permission in entries
    ]


def difference(acls: list[Acl], described: Iterable[tuple]) -> Difference:
    """Returns how existing entries differ from the wanted ones. Pure.

    `described`: the existing entries, as `_described` returns them.
    """
    operations = {number: name for name, number in _OPERATIONS.items()}
    resources = {number: name for name, number in _RESOURCES.items()}
    wanted, ours, there, more = set(acls), {acl.principal for acl in acls}, set(), []
    for principal, kind, name, pattern, host, operation, permission in described:
        entry = Acl(
            principal,
            resources.get(kind, f"resource {kind}"),
            name,
            operations.get(operation, f"operation {operation}"),
        )
        if entry in wanted and (pattern, host, permission) == (_LITERAL, "*", _ALLOW):
            there.add(entry)
        elif principal in ours:
            verb = "may" if permission == _ALLOW else "may not"
            prefixed = "" if pattern == _LITERAL else " and names that begin with it"
            more.append(
                f"{principal} {verb} {entry.operation} {entry.resource} {name}{prefixed}, from {host}"
            )
    return Difference(tuple(sorted(wanted - there)), tuple(sorted(more)))
