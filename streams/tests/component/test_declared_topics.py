"""The command `topics` with real brokers.

New topics have the settings that infra/kafka/topics.yaml declares, and existing topics get them. A
repeat changes nothing. A value that the brokers cannot have is refused, with the possible values.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import broker
import pytest
import yaml
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from spillway_lab.testing.kafka import another_broker_of, kafka_server_of
from spillway_lab.testing.servers import ROOT, running
from spillway_lab.testing.waiting import eventually
from spillway_streams.topics import declared

FILE = ROOT / "infra/kafka/topics.yaml"
WEEK_MS, HOUR_MS = "604800000", "3600000"


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[str]:
    """A broker of its own that keeps messages for a week, which is Kafka's default."""
    server = kafka_server_of(tmp_path)
    with Path(server.environment["KAFKA_CONFIG"]).open("a") as properties:
        properties.write(f"\nlog.retention.ms={WEEK_MS}\nlog.message.timestamp.type=CreateTime\n")
    with running(server):
        yield server.url


def topics(kafka: str, file: Path = FILE, **environment: str) -> subprocess.CompletedProcess:
    """Runs the command `topics` for the cluster west."""
    command = [sys.executable, "-m", "spillway_streams", "topics", "--file", str(file), "--clusters", "west"]
    settings = {"SPILLWAY_KAFKA": kafka, "SPILLWAY_KAFKA_TLS": "off"}
    return subprocess.run(
        command,
        env=os.environ | settings | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def ask(kafka: str, question: Callable[[AIOKafkaAdminClient], Awaitable]):
    """Returns the answer of an admin client to `question`."""

    async def run():
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
        await admin.start()
        try:
            return await question(admin)
        finally:
            await admin.close()

    return asyncio.run(run())


def replicas(kafka: str, topic: str) -> set[int]:
    """The numbers of replicas that the topic's partitions have."""
    [found] = ask(kafka, lambda admin: admin.describe_topics([topic]))
    return {len(partition["replicas"]) for partition in found["partitions"]}


def settings(kafka: str, topic: str) -> dict[str, str]:
    """The topic's settings in force."""
    resources = [ConfigResource(ConfigResourceType.TOPIC, topic)]
    [answer] = ask(kafka, lambda admin: admin.describe_configs(resources))
    [(code, message, _, _, entries)] = answer.resources
    assert code == 0, message
    return {entry[0]: entry[1] for entry in entries}


def come_into_force(kafka: str, topic: str, wanted: dict[str, str]) -> None:
    """Waits until the topic has these settings.

    A broker answers from what it has read of the controller's log so far.
    """
    eventually(
        lambda: wanted.items() <= settings(kafka, topic).items(),
        f"{topic} with {wanted}",
        seen=lambda: settings(kafka, topic),
    )


def test_topics_with_the_brokers_defaults_get_what_is_declared(kafka: str):
    """Existing topics get the settings, and so do topics that are created now.

    A setting that an operator has added stays. The command reports what it changed, and a second
    run changes nothing. A declared setting that somebody has changed is changed back.
    """
    broker.create(kafka, {"otlp_spans": 4}, segment_bytes="16777216")
    broker.create(kafka, {"spillway_calls": 4}, retention_ms=HOUR_MS)
    assert settings(kafka, "otlp_spans")["retention.ms"] == WEEK_MS

    first = topics(kafka)
    assert first.returncode == 0, first.stderr
    wanted = declared.read(FILE, ["west"], 4)
    for name, topic in wanted.items():
        come_into_force(kafka, name, topic.config)
    assert settings(kafka, "otlp_spans")["segment.bytes"] == "16777216"
    lines = first.stderr.splitlines()
    [made] = [line for line in lines if line.startswith("topics created: ")]
    assert set(made.partition(": ")[2].split(", ")) == set(wanted) - {"otlp_spans", "spillway_calls"}
    [changed] = [line for line in lines if line.startswith("otlp_spans: ")]
    assert f"retention.ms {WEEK_MS} -> 7200000" in changed
    assert "message.timestamp.type CreateTime -> LogAppendTime" in changed
    assert "segment.bytes" not in changed
    [changed] = [line for line in lines if line.startswith("spillway_calls: ")]
    assert f"retention.ms {HOUR_MS} -> 7200000" in changed

    again = topics(kafka)
    assert again.returncode == 0, again.stderr
    assert again.stderr.splitlines() == [
        "topics created: none, all existed",
        "settings changed: none, all were as declared",
    ]
    broker.alter(kafka, "otlp_metrics", retention_ms=WEEK_MS, message_timestamp_type="LogAppendTime")
    assert f"otlp_metrics: retention.ms {WEEK_MS} -> 7200000" in topics(kafka).stderr


def test_an_operators_file_decides_how_long_a_topic_is_kept(kafka: str, tmp_path: Path):
    """One topic has another retention, and one of its settings is left to the broker."""
    document = yaml.safe_load(FILE.read_text())
    document["otlp_spans"]["config"] = document["otlp_spans"]["config"] | {
        "retention.ms": int(HOUR_MS),
        "segment.ms": "",
    }
    file = tmp_path / "topics.yaml"
    file.write_text(yaml.safe_dump(document))
    done = topics(kafka, file)
    assert done.returncode == 0, done.stderr
    come_into_force(kafka, "otlp_spans", {"retention.ms": HOUR_MS, "segment.ms": WEEK_MS})
    come_into_force(kafka, "spillway_edges", {"retention.ms": "7200000", "segment.ms": "1800000"})


def test_what_the_brokers_cannot_have_is_refused_with_what_they_can(kafka: str, tmp_path: Path):
    """The file asks for more replicas than there are brokers, and for an unknown setting.

    The unknown setting is refused for a new topic and for an existing one.
    """
    done = topics(kafka, SPILLWAY_STREAMS_TOPIC_REPLICAS="3")
    assert done.returncode == 64
    wanted = "replicas: 3 must be from 1 to 1, the brokers that are up: set SPILLWAY_STREAMS_TOPIC_REPLICAS"
    assert wanted in done.stderr
    file, unknown = tmp_path / "topics.yaml", "Unknown topic config name: retention.msec"
    file.write_text("spillway_dead_letters: {partitions: 1, config: {retention.msec: 5}}")
    assert f"spillway_dead_letters: cannot be created: {unknown}" in topics(kafka, file).stderr
    broker.create(kafka, {"spillway_dead_letters": 1})
    done = topics(kafka, file)
    assert done.returncode == 1
    assert "retention.msec=5" in done.stderr and f"cannot be set: {unknown}" in done.stderr


def test_a_topic_that_is_refused_stops_no_other_and_hides_nothing(kafka: str, tmp_path: Path):
    """The other topic gets its settings.

    The log reports that before the command fails.
    """
    broker.create(kafka, {"spillway_dead_letters": 1, "spillway_arrivals": 1})
    file = tmp_path / "topics.yaml"
    file.write_text(
        "spillway_dead_letters: {partitions: 1, config: {retention.msec: 5}}\n"
        "spillway_arrivals: {partitions: 1, config: {retention.ms: 60000}}\n"
    )
    done = topics(kafka, file)
    assert done.returncode == 1
    come_into_force(kafka, "spillway_arrivals", {"retention.ms": "60000"})
    assert "retention.ms 604800000 -> 60000" in done.stderr
    assert "error: spillway_dead_letters: " in done.stderr


def test_in_sync_replicas_follow_from_the_replicas_that_a_topic_has(tmp_path: Path):
    """There are two brokers, and new topics get replicas on both.

    An existing topic with one replica keeps it, can be written, and is named. Two in-sync replicas
    are refused for the existing topic, because nobody could write to it any more. More replicas
    than brokers are refused for a new topic.
    """
    first = kafka_server_of(tmp_path)
    second = another_broker_of(tmp_path, first)
    with running(first), running(second):
        kafka = first.url
        brokers = lambda: len(ask(kafka, lambda admin: admin.describe_cluster())["brokers"])  # noqa: E731
        eventually(lambda: brokers() == 2, "two brokers")
        broker.create(kafka, {"otlp_spans": 4}, min_insync_replicas="2")
        refused = topics(kafka, SPILLWAY_STREAMS_TOPIC_REPLICAS="3")
        assert refused.returncode == 64
        assert "replicas: 3 must be from 1 to 2, the brokers that are up" in refused.stderr
        done = topics(kafka, SPILLWAY_STREAMS_TOPIC_REPLICAS="2")
        assert done.returncode == 0, done.stderr
        lines = done.stderr.splitlines()
        [changed] = [line for line in lines if line.startswith("otlp_spans: ") and "->" in line]
        assert "min.insync.replicas 2 -> 1" in changed
        assert any(
            line.startswith("otlp_spans: has 1 replicas, 2 are declared: kafka-reassign") for line in lines
        )
        assert (replicas(kafka, "otlp_spans"), replicas(kafka, "spillway_calls")) == ({1}, {2})
        come_into_force(kafka, "spillway_calls", {"min.insync.replicas": "1"})
        broker.send(kafka, "otlp_spans", [b"written"])

        document = {"otlp_spans": {"partitions": 4, "config": {"min.insync.replicas": 2}}}
        file = tmp_path / "topics.yaml"
        file.write_text(yaml.safe_dump(document))
        refused = topics(kafka, file, SPILLWAY_STREAMS_TOPIC_REPLICAS="2")
        assert refused.returncode == 1
        assert (
            "error: otlp_spans: min.insync.replicas is 2; must be at most 1, the replicas" in refused.stderr
        )
        assert settings(kafka, "otlp_spans")["min.insync.replicas"] == "1"
