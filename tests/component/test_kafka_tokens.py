"""A job that signs in by OAUTHBEARER on a real broker that checks signed tokens.

The broker ends connections when their tokens expire.
"""

import asyncio
import time
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from spillway_lab.testing import servers
from spillway_lab.testing.secure_kafka import SecureKafka, secure_kafka
from spillway_lab.testing.servers import ROOT, free_port
from spillway_lab.testing.waiting import WAIT_S, eventually
from streams_process import job, succeed

pytestmark = [pytest.mark.component, pytest.mark.timeout(600)]
LIFE_S = 5  # lifetime of a token, and so of a connection
FROM, TO = "otlp_spans.west", "otlp_spans"


@pytest.fixture
def kafka(tmp_path) -> Iterator[SecureKafka]:
    """A broker with rights, and with topics that the user `topics` created with a token."""
    with secure_kafka(tmp_path, ["topics", "admit"], LIFE_S) as made:
        clusters, files = ("--clusters", "west"), ROOT / "infra/kafka"
        succeed("acls", "--file", str(files / "acls.yaml"), *clusters, SPILLWAY_KAFKA=made.clear)
        succeed("topics", "--file", str(files / "topics.yaml"), *clusters, **made.environment("topics"))
        assert set(made.tokens.given) == {"topics"}
        yield made


def values(found: list) -> list[bytes]:
    return [record.value for record in found]


async def write(kafka: SecureKafka, value: bytes) -> None:
    async with AIOKafkaProducer(bootstrap_servers=kafka.clear) as producer:
        await producer.send_and_wait(FROM, value, partition=0)


async def read(kafka: SecureKafka, count: int) -> list[bytes]:
    """Returns the first `count` values of the topic of all clusters, and any beyond these."""
    tp, found = TopicPartition(TO, 0), []
    async with AIOKafkaConsumer(bootstrap_servers=kafka.clear, auto_offset_reset="earliest") as consumer:
        consumer.assign([tp])
        deadline = time.monotonic() + WAIT_S
        while len(found) < count and time.monotonic() < deadline:
            found += values((await consumer.getmany(tp, timeout_ms=500)).get(tp, []))
        return found + values((await consumer.getmany(tp, timeout_ms=500)).get(tp, []))


def test_a_job_goes_on_over_the_ends_of_its_tokens(kafka, tmp_path):
    """Messages sent during four token lifetimes are admitted once each.

    A secret that is no longer valid stops the job, and the job says so. With the new secret in its
    file it continues where it was, without a restart.
    """
    health = free_port()
    environment = kafka.environment("admit") | {"SPILLWAY_CLUSTERS": "west"}
    sent: list[bytes] = []
    with servers.running(job("admit", tmp_path / "admit", health, environment)) as admit:

        def say(what: str) -> None:
            sent.append(what.encode())
            asyncio.run(write(kafka, sent[-1]))

        until = time.monotonic() + 4 * LIFE_S
        while time.monotonic() < until:
            say(f"message {len(sent)}")
            time.sleep(0.5)
        assert asyncio.run(read(kafka, len(sent))) == sent
        assert kafka.tokens.given.count("admit") >= 4
        eventually(lambda: servers.healthy(health), "the job is in order")

        kafka.tokens.clients["admit"] = "a new secret"
        eventually(lambda: not servers.healthy(health), "the job is not in order")
        refused = "SPILLWAY_KAFKA_SASL_TOKEN_URL: no token from 127.0.0.1: HTTP 401, invalid_client"
        eventually(lambda: refused in admit.log.read_text(), "the job says why")
        say("waits")
        (tmp_path / "admit.password").write_text("a new secret\n")
        assert asyncio.run(read(kafka, len(sent))) == sent
        eventually(lambda: servers.healthy(health), "the job is in order again")
        assert "a new secret" not in admit.log.read_text()
