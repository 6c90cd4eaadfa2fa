"""Every user of infra/kafka/acls.yaml on a real broker (SCRAM over TLS, deny by default).

Each user can do its work and nothing else. Clients are refused without a password, with a wrong
one, or with a certificate of another authority.
"""

import asyncio
import json
import secrets
import ssl
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    KafkaError,
    NotCoordinatorForGroupError,
    TopicAuthorizationFailedError,
    for_code,
)
from aiokafka.protocol.fetch import FetchRequest
from clickhouse_driver import Client
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from spillway_contracts.wires import KafkaWire
from spillway_lab.testing import servers
from spillway_lab.testing.secure_kafka import SecureKafka, secure_kafka
from spillway_lab.testing.servers import ROOT, clickhouse_server, free_port, redis_server
from spillway_lab.testing.tls_files import tls_files
from spillway_lab.testing.waiting import WAIT_S, eventually
from spillway_streams.ingest import admission
from spillway_streams.process import cluster_topics
from spillway_streams.topics import acls
from spillway_streams.topics.alter import Alter
from spillway_streams.topics.declared import KNOWN
from streams_process import command, job, start, succeed

pytestmark = [pytest.mark.component, pytest.mark.timeout(900)]
CLUSTERS = ["west", "east"]
FILE = ROOT / "infra" / "kafka" / "acls.yaml"
ACLS = acls.read(FILE, CLUSTERS)
ROLES = sorted({acl.principal.removeprefix("User:") for acl in ACLS})
TOPICS = sorted(KNOWN | cluster_topics.sources(CLUSTERS).keys())
GROUPS = sorted({acl.name for acl in ACLS if acl.resource == "GROUP"})
REFUSED = (TopicAuthorizationFailedError, GroupAuthorizationFailedError, ClusterAuthorizationFailedError)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory) -> SecureKafka:
    """A broker with all users.

    The project's own command sets the rights. The user `topics` creates the topics with its own
    rights.
    """
    with secure_kafka(tmp_path_factory.mktemp("kafka"), [*ROLES, "stranger"]) as made:
        administrator = {"SPILLWAY_KAFKA": made.clear}
        succeed("acls", "--file", str(FILE), "--clusters", ",".join(CLUSTERS), **administrator)
        printed = succeed(
            "topics",
            "--file",
            str(ROOT / "infra/kafka/topics.yaml"),
            "--clusters",
            ",".join(CLUSTERS),
            **made.environment("topics"),
        )
        assert all(topic in printed for topic in TOPICS)
        asyncio.run(_seed(made.clear))
        yield made


async def _seed(clear: str) -> None:
    """Writes a message into every topic, so that a permitted read returns at once."""
    async with AIOKafkaProducer(bootstrap_servers=clear) as producer:
        for topic in TOPICS:
            await producer.send_and_wait(topic, b"seed", partition=0)


def options(kafka: SecureKafka, user: str) -> dict:
    """Returns the client options that result from our own settings."""
    given = {name.removeprefix("SPILLWAY_").lower(): value for name, value in kafka.environment(user).items()}
    return {"bootstrap_servers": kafka.address, **KafkaWire(**given).kafka_client()}


def may(user: str, operation: str, name: str) -> bool:
    return any(a.principal == f"User:{user}" and a.operation == operation and a.name == name for a in ACLS)


async def verdict(attempt: Callable[[], Awaitable]) -> bool:
    """Returns whether the attempt succeeded, and False if the broker refused it.

    Any other error is an error of the test.
    """
    try:
        await asyncio.wait_for(attempt(), WAIT_S)
    except REFUSED:
        return False
    return True


async def _write(kafka: SecureKafka, user: str, topic: str, value: bytes = b"no OTLP") -> None:
    headers = list(admission.headers("east", 0))
    async with AIOKafkaProducer(**options(kafka, user)) as producer:
        await producer.send_and_wait(topic, value, partition=0, headers=headers)


async def _read(kafka: SecureKafka, user: str, topic: str) -> None:
    """Sends a fetch request directly.

    A consumer would wait forever for a topic that it cannot see.
    """

    async def fetch(admin: AIOKafkaAdminClient) -> list[int]:
        request = FetchRequest(1000, 1, 1 << 20, 0, [(topic, [(0, 0, 1 << 20)])])
        answer = await admin._send_request(request)
        return [partition[1] for _, partitions in answer.topics for partition in partitions]

    [code] = await _admin(kafka, user, fetch)
    if code:
        raise for_code(code)


async def _group(kafka: SecureKafka, user: str, group: str) -> None:
    async def ask(admin: AIOKafkaAdminClient) -> None:
        while True:
            try:
                return await admin.list_consumer_group_offsets(group)
            except (GroupCoordinatorNotAvailableError, NotCoordinatorForGroupError):
                await asyncio.sleep(0.2)  # a new broker first creates the topic of groups

    await _admin(kafka, user, ask)


async def _admin(
    kafka: SecureKafka, user: str, work: Callable[[AIOKafkaAdminClient], Awaitable]
) -> list[int]:
    """Returns the answer to an administrator's client, usually error codes."""
    admin = AIOKafkaAdminClient(**options(kafka, user))
    try:
        await admin.start()
        return await work(admin)
    finally:
        await admin.close()


@pytest.mark.parametrize("user", [*ROLES, "stranger"])
async def test_who_writes_and_reads_what(kafka, user):
    """Every topic is read and written: what acls.yaml allows succeeds, and the rest is refused."""
    for topic in TOPICS:
        assert await verdict(lambda t=topic: _write(kafka, user, t)) == may(user, "WRITE", topic), (
            f"write {topic}"
        )
        assert await verdict(lambda t=topic: _read(kafka, user, t)) == may(user, "READ", topic), (
            f"read {topic}"
        )


@pytest.mark.parametrize("user", [*ROLES, "stranger"])
async def test_who_is_in_which_group(kafka, user):
    """No user sees another job's group.

    Without DESCRIBE, which READ includes, a user cannot join or move the group either.
    """
    for group in [*GROUPS, "another"]:
        assert await verdict(lambda g=group: _group(kafka, user, g)) == may(user, "READ", group), group


async def _create_topic(admin: AIOKafkaAdminClient) -> list[int]:
    return [error[1] for error in (await admin.create_topics([NewTopic("mine", 1, 1)])).topic_errors]


async def _alter(admin: AIOKafkaAdminClient, topic: str = "spillway_calls") -> list[int]:
    answer = await admin._send_to_controller(Alter({topic: {"retention.ms": "7200000"}}))
    return [altered[0] for altered in answer.resources]


async def _delete(admin: AIOKafkaAdminClient) -> list[int]:
    return [error[1] for error in (await admin.delete_topics(["spillway_calls"])).topic_error_codes]


async def _grant(admin: AIOKafkaAdminClient) -> list[int]:
    wanted = [acls.Acl("User:stranger", "TOPIC", "otlp_spans", "READ")]
    answer = await admin._send_to_controller(acls._Create(wanted))
    return [code for code, _ in answer.creation_responses]


async def _alter_others(admin: AIOKafkaAdminClient) -> list[int]:
    return await _alter(admin, "__consumer_offsets")


@pytest.mark.parametrize("user", [*ROLES, "stranger"])
async def test_who_sets_how_long_topics_are_kept(kafka, user):
    """Only the user `topics` can, and only for the declared topics."""
    for topic in TOPICS:
        codes = await _admin(kafka, user, lambda admin, t=topic: _alter(admin, t))
        assert (codes == [0]) == may(user, "ALTER_CONFIGS", topic) == (user == "topics"), f"{topic}: {codes}"


def test_without_the_right_the_command_names_it(kafka, tmp_path):
    """A run as another user changes nothing and fails. The message names the missing right."""
    file = tmp_path / "topics.yaml"
    file.write_text("spillway_calls: {partitions: 4, config: {retention.ms: 60000}}")
    done = command("topics", "--file", str(file), "--clusters", "west", **kafka.environment("exclusive"))
    assert done.returncode == 1
    assert "spillway_calls: retention.ms=60000: cannot be set: " in done.stderr
    assert "`alter` in infra/kafka/acls.yaml" in done.stderr


@pytest.mark.parametrize("user", [*ROLES, "stranger"])
@pytest.mark.parametrize("work", [_create_topic, _alter_others, _delete, _grant])
async def test_nobody_administers(kafka, user, work):
    """No program may manage other topics and their settings, delete topics or grant rights.

    The broker names the missing right.
    """
    codes = await _admin(kafka, user, work)
    assert codes and all(issubclass(for_code(code), REFUSED) for code in codes), codes


async def _connect(**given) -> None:
    admin = AIOKafkaAdminClient(request_timeout_ms=10_000, **given)
    try:
        await admin.start()
        await admin.list_topics()
    finally:
        await admin.close()


def test_rights_are_planned_before_they_are_created_and_only_what_is_missing_is(kafka, tmp_path):
    """A plan names the entries and changes nothing, and a second run creates none.

    Rights beyond the file are reported and kept. Users whose principals have other names, as
    service accounts of a managed Kafka do, get their rights too.
    """
    principals = tmp_path / "principals.yaml"
    principals.write_text("collector-north: User:sa-1a2b3c\n")
    administrator = {"SPILLWAY_KAFKA": kafka.clear}
    ask = ("acls", "--file", str(FILE), "--clusters", "north", "--principals", str(principals), "--json")

    def created(*more: str) -> dict:
        done = command(*ask, *more, **administrator)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    planned = created("--plan")
    assert "User:sa-1a2b3c WRITE TOPIC otlp_spans.north" in planned["created"]
    assert not any("collector-north" in line for line in planned["created"])
    assert created("--plan") == planned
    assert created()["created"] == planned["created"]
    assert created()["created"] == []
    assert "User:admit may READ TOPIC otlp_spans.west, from *" in planned["more"]
    principals.write_text("collector-south: User:sa-1\n")
    done = command(*ask, **administrator)
    assert done.returncode == 64 and "--principals: collector-south: no such user" in done.stderr


async def test_who_is_not_known_gets_no_connection(kafka, tmp_path):
    """Connections fail in cleartext and without the right password or certificate.

    The cases include another user's password and another authority's certificate.
    """
    right, stranger = options(kafka, "exclusive"), tls_files(tmp_path / "stranger")
    await _connect(**right)
    none = ssl.create_default_context(cafile=str(kafka.tls.ca))
    other = ssl.create_default_context(cafile=str(kafka.tls.ca))
    other.load_cert_chain(stranger.certificate, stranger.key)
    distrust = ssl.create_default_context(cafile=str(stranger.ca))
    distrust.load_cert_chain(kafka.tls.certificate, kafka.tls.key)
    tries = {
        "in clear": {"bootstrap_servers": kafka.address},
        "no password": {
            "bootstrap_servers": kafka.address,
            "security_protocol": "SSL",
            "ssl_context": right["ssl_context"],
        },
        "wrong password": right | {"sasl_plain_password": "wrong"},
        "another's password": right | {"sasl_plain_password": options(kafka, "graph")["sasl_plain_password"]},
        "unknown user": right | {"sasl_plain_username": "nobody"},
        "other mechanism": right | {"sasl_mechanism": "PLAIN"},
        "no certificate": right | {"ssl_context": none},
        "certificate of another authority": right | {"ssl_context": other},
        "a broker of another authority": right | {"ssl_context": distrust},
    }
    for name, given in tries.items():
        with pytest.raises((KafkaError, OSError)):
            await asyncio.wait_for(_connect(**given), WAIT_S)
            pytest.fail(f"{name}: was let in")


def span(trace_id: bytes, claims: str = "") -> bytes:
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "shop"
    if claims:
        resource.resource.attributes.add(key="spillway.cluster").value.string_value = claims
    now = time.time_ns()
    added = resource.scope_spans.add().spans.add(
        trace_id=trace_id, span_id=b"12345678", name="GET /cart", kind=2
    )
    added.start_time_unix_nano, added.end_time_unix_nano = now - 5_000_000, now
    for key, value in (("http.request.method", "GET"), ("url.path", "/cart"), ("http.route", "/cart")):
        added.attributes.add(key=key).value.string_value = value
    return request.SerializeToString()


def health(port: int) -> str:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz").text[:300]
    except httpx.HTTPError as error:
        return repr(error)


def test_every_job_works_with_its_rights_alone(kafka, tmp_path):
    """A span goes from the real collector over SASL and TLS through `admit` and `exclusive`.

    It arrives in ClickHouse. The other jobs run beside them, each as its own user, and the broker
    refuses none of them anything. Spans from west that claim to be east's are stored as west's,
    whether west's collector or only west's credential sent them. That credential can write neither
    east's topic nor the topic of all clusters, whatever headers it sends.
    """
    trace_id, otlp = secrets.token_bytes(16), free_port()
    lies = {"by the collector": secrets.token_bytes(16), "by the credential": secrets.token_bytes(16)}
    gateway = {
        "SPILLWAY_CLUSTER": "west",
        "SPILLWAY_OTLP_GRPC_LISTEN": f"127.0.0.1:{free_port()}",
        "SPILLWAY_OTLP_HTTP_LISTEN": f"127.0.0.1:{otlp}",
    }
    with clickhouse_server(tmp_path) as clickhouse, redis_server(tmp_path) as redis:
        stores = {"SPILLWAY_CLICKHOUSE_URL": clickhouse, "SPILLWAY_REDIS_URL": redis}
        collector = start(
            "collector", [str(ROOT / "collectors" / "run")], tmp_path / "collector", free_port(),
            kafka.environment("collector-west") | gateway,
        )  # fmt: skip
        ports = {job: free_port() for job in ("admit", "exclusive", "classify", "curves", "graph")}
        stores |= {"SPILLWAY_CLUSTERS": ",".join(CLUSTERS)}
        jobs = [
            job(name, tmp_path / name, port, kafka.environment(name) | stores) for name, port in ports.items()
        ]
        try:
            with ThreadPoolExecutor() as pool:
                list(pool.map(servers.Server.start, (*jobs, collector)))
            url, headers = f"http://127.0.0.1:{otlp}/v1/traces", {"content-type": "application/x-protobuf"}
            for content in (span(trace_id), span(lies["by the collector"], "east")):
                assert httpx.post(url, content=content, headers=headers).status_code == 200
            forged = span(lies["by the credential"], "east")
            assert asyncio.run(verdict(lambda: _write(kafka, "collector-west", "otlp_spans.west", forged)))
            for topic in ("otlp_spans.east", "otlp_metrics.east", "otlp_spans", "otlp_metrics"):
                assert not asyncio.run(verdict(lambda t=topic: _write(kafka, "collector-west", t, forged))), (
                    topic
                )
            wanted = {(found.hex(), "west", "shop") for found in (trace_id, *lies.values())}
            with Client.from_url(clickhouse) as client:
                eventually(
                    lambda: set(client.execute("SELECT trace_id, cluster, service FROM calls")) == wanted,
                    "the calls in ClickHouse",
                    seen=lambda: [server.log.read_text()[-1500:] for server in (collector, *jobs[:2])],
                )  # fmt: skip
            metrics = httpx.get(f"http://127.0.0.1:{ports['exclusive']}/metrics").text
            assert 'spillway_streams_claims_overridden_total{cluster="west"} 2' in metrics, metrics
            eventually(
                lambda: all(servers.healthy(port) for port in ports.values()), "every job is in order",
                seen=lambda: [f"{job}: {health(port)}" for job, port in ports.items()],
            )  # fmt: skip
            for server in (collector, *jobs):
                refused = [line for line in server.log.read_text().splitlines() if "uthorization" in line]
                assert not refused, f"{server.log}: {refused[:3]}"
        finally:
            for server in (collector, *jobs):
                server.stop()
