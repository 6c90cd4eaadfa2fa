"""infra/kafka/topics.yaml: what is read and rejected, and how existing topics are changed."""

from pathlib import Path

import pytest
from spillway_streams import StreamsError
from spillway_streams.topics import declared
from spillway_streams.topics.declared import Topic
from spillway_streams.topics.topics import Report

FILE = Path(__file__).resolve().parents[3] / "infra/kafka/topics.yaml"
HOUR_MS = 3_600_000


def test_the_topics_file_is_read(tmp_path):
    """Partitions, replicas and settings as Kafka writes them. Others have the given defaults."""
    file = tmp_path / "topics.yaml"
    file.write_text(
        "otlp_spans: {partitions: 3, config: {retention.ms: 60000, preallocate: true}}\n"
        "otlp_spans.{cluster}: {partitions: 3}\n"
        "spillway_calls:\n"
        "spillway_dead_letters: {partitions: 1, replicas: 1, config: {segment.ms: ''}}\n"
    )
    assert declared.read(file, ["west", "east"], 4, 3) == {
        "otlp_spans": Topic(3, 3, {"retention.ms": "60000", "preallocate": "true"}),
        "otlp_spans.west": Topic(3, 3),
        "otlp_spans.east": Topic(3, 3),
        "spillway_calls": Topic(4, 3),
        "spillway_dead_letters": Topic(1, 1, {"segment.ms": ""}),
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("otlp_span: {partitions: 3}", "otlp_span: unknown topic; topics: otlp_metrics, "),
        ("otlp_spans: {partitions: 0}", "otlp_spans.partitions: 0 must be a whole number from 1 to"),
        ("otlp_spans: {partitions: true}", "otlp_spans.partitions: True must be a whole number from 1 to"),
        ("otlp_spans: {replicas: 11}", "otlp_spans.replicas: 11 must be a whole number from 1 to 10"),
        ("otlp_spans: {retention.ms: 1}", "otlp_spans: retention.ms: must have no keys but partitions, replicas, config"),
        ("otlp_spans: 3", "otlp_spans: 3: must have no keys but"),
        ("otlp_spans: {config: [1]}", "otlp_spans.config: .* must map"),
        ("otlp_spans: {config: {retention.ms: 7.2e+6}}", "otlp_spans.config.retention.ms: 7200000.0 must be text, a whole"),
        ("otlp_spans: {config: {min.insync.replicas: 2}}", "config.min.insync.replicas: 2 must be .* from 1 to 1"),
        ("otlp_spans: {config: {min.insync.replicas: all}}", "min.insync.replicas: 'all' must be a whole number"),
        ("otlp_spans: {config: {message.timestamp.type: CreateTime}}", "type: CreateTime must be LogAppendTime"),
        ("spillway_calls: {config: {max.message.bytes: 1048588}}", "max.message.bytes: 1048588 must be at least 4194304"),
        ("otlp_spans: {partitions: 3}\notlp_spans.{cluster}: {partitions: 4}", "otlp_spans.west 4, otlp_spans 3; they"),
        ("x", "must map topic names to {partitions, replicas, config}"),
    ],
)  # fmt: skip
def test_a_wrong_topics_file_is_refused(tmp_path, text, says):
    """The error names the file, the topic, the key, what is wrong and what is allowed."""
    file = tmp_path / "topics.yaml"
    file.write_text(text)
    with pytest.raises(StreamsError, match=f"topics.yaml: .*{says}"):
        declared.read(file, ["west"], 4)


def test_no_topic_of_ours_is_kept_for_as_long_as_a_broker_likes():
    """Each topic declares its retention, deletion, and the clock of its timestamps.

    Only dead letters, which are bounded in bytes, are kept for more than two hours.
    """
    topics = declared.read(FILE, ["west"], 4)
    assert set(topics) == declared.KNOWN | {"otlp_spans.west", "otlp_metrics.west"}
    for name, topic in topics.items():
        kept_ms = int(topic.config["retention.ms"])
        assert 0 < kept_ms <= 2 * HOUR_MS or int(topic.config["retention.bytes"]) <= 1 << 30, name
        assert topic.config["cleanup.policy"] == "delete", name
        assert topic.config["message.timestamp.type"] == "LogAppendTime", name
        assert int(topic.config["max.message.bytes"]) == 4 << 20, name


@pytest.mark.parametrize(("replicas", "in_sync"), [(1, "1"), (2, "1"), (3, "2"), (4, "2"), (5, "3")])
def test_some_replicas_may_be_away_and_no_message_is_on_one_broker_alone(replicas, in_sync):
    """min.insync.replicas follows from a topic's actual replicas, not from those of new topics."""
    assert Topic(4, replicas).settings()["min.insync.replicas"] == in_sync
    assert Topic(4, 3).changes({}, replicas, replicas)["min.insync.replicas"] == in_sync


def test_only_what_differs_is_changed():
    """Undeclared settings stay, even those set by hand. Matching settings are not touched."""
    topic = Topic(4, 1, {"retention.ms": "7200000"})
    week = {"retention.ms": "604800000", "min.insync.replicas": "1", "segment.bytes": "1"}
    found = week | {"message.timestamp.type": "LogAppendTime", "max.message.bytes": "1048588"}
    changes = topic.changes(found, 1, 1)
    assert changes == {"retention.ms": "7200000", "max.message.bytes": "4194304"}
    assert topic.changes(found | changes, 1, 1) == {}


def test_a_topic_stays_writable():
    """More in-sync replicas than the topic has would block every producer."""
    with pytest.raises(
        declared.TopicsError, match="min.insync.replicas is 2; must be at most 1, the replicas"
    ):
        Topic(4, 3, {"min.insync.replicas": "2"}).changes({}, 1, 1)


def test_a_missing_topic_gets_the_partitions_of_those_that_it_must_equal():
    """A cluster's topic gets the partitions of the topic of all clusters, even beyond the file's.

    Topics that services are spread over get those of one another.
    """
    names = ["otlp_spans", "otlp_spans.west", "otlp_metrics.west", "spillway_calls"]
    wanted = dict.fromkeys(names, Topic(4))
    assert declared.missing(wanted, {}) == dict.fromkeys(names, 4)
    missing = declared.missing(wanted, {"otlp_spans": 12, "spillway_edges": 8})
    assert missing == {"otlp_spans.west": 12, "otlp_metrics.west": 8, "spillway_calls": 8}


def test_the_report_says_what_was_changed_from_what():
    """One line per topic. If nothing was created or changed, that is reported as well."""
    changed = {"otlp_spans": {"retention.ms": ("604800000", "7200000")}}
    lines = Report(
        [], changed, {"otlp_metrics": "x=1: cannot be set: no"}, ["otlp_spans: has 1 replicas"]
    ).lines()
    assert lines == [
        "topics created: none, all existed",
        "otlp_spans: retention.ms 604800000 -> 7200000",
        "otlp_spans: has 1 replicas",
        "error: otlp_metrics: x=1: cannot be set: no",
    ]
    assert Report(["a"]).lines()[1] == "settings changed: none, all were as declared"


def test_the_least_replicas_in_sync_are_not_raised_above_those_that_are():
    """A topic that just got three replicas would reject all writes until two have all messages."""
    topic = Topic(4, 3)
    assert "min.insync.replicas" not in topic.changes({"min.insync.replicas": "1"}, 3, 1)
    assert topic.changes({"min.insync.replicas": "1"}, 3, 2)["min.insync.replicas"] == "2"
    # A broker that is down does not lower the setting.
    assert "min.insync.replicas" not in topic.changes({"min.insync.replicas": "2"}, 3, 1)


def test_an_empty_value_leaves_any_setting_to_the_broker(tmp_path):
    """Even settings that have defaults of ours: some managed Kafka rejects them."""
    file = tmp_path / "topics.yaml"
    names_ = ("min.insync.replicas", "max.message.bytes", "message.timestamp.type")
    file.write_text("spillway_arrivals: {config: {" + ", ".join(f'{name}: ""' for name in names_) + "}}")
    topic = declared.read(file, [], 1)["spillway_arrivals"]
    assert topic.settings() == {} and topic.changes({}, 1, 1) == {}
