"""Which messages are taken, what is noted with a commit, and where reading starts."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spillway_runtime.settings import load
from spillway_streams.clients.transport import Start
from spillway_streams.ingest import offsets
from spillway_streams.ingest.offsets import Note, Offsets, Verdict
from spillway_streams.process import config
from spillway_streams.topics import declared, topics


@given(st.data())
@settings(max_examples=100)
def test_every_message_is_taken_once_whatever_a_consumer_drops(data):
    """The consumer skips fetched messages, repeats, and rewinds, and the log has gaps.

    After the seeks, every message in the log was taken once and in order.
    """
    log = sorted(data.draw(st.sets(st.integers(3, 40), min_size=1)))
    state, taken, position, seeking = Offsets(3), [], 0, False
    for step in itertools.count():
        if position >= len(log):
            break
        verdict = state.judge(log[position])
        taken += [log[position]] if verdict is Verdict.TAKE else []
        position += 1
        if verdict is Verdict.SEEK:
            for stale in log[position : position + data.draw(st.integers(0, 2))]:
                assert state.judge(stale) is Verdict.DROP
            position, seeking = _first(log, state.next_offset), True
        elif verdict is Verdict.TAKE:
            seeking = False
        if step < 30 and not seeking:  # skips some messages, or repeats some
            position = max(0, min(position + data.draw(st.integers(-2, 2)), len(log) - 1))
    assert taken == log


def _first(log: list[int], offset: int) -> int:
    """Index of the first message that a consumer finds when it reads from `offset`."""
    return next(i for i, found in enumerate(log) if found >= offset)


def test_a_note_survives_the_broker_and_a_strangers_means_nothing():
    """The note made with a commit is read back. An operator's reset has no note."""
    assert offsets.noted(str(Note(1234, 5000))) == Note(1234, 5000)
    assert [offsets.noted(text) for text in ("", "read=", "read=-1 horizon=1", "other", "read=x")] == [
        Note()
    ] * 5


def test_only_a_log_read_from_its_beginning_for_the_first_time_tells_everything():
    """At the log's first offset, a commit of ours is a restart, an operator's reset a replay."""
    assert Start(0, 0, 9, "").is_log_start and Start(7, 7, 9, "").is_log_start
    assert not Start(0, 0, 9, str(Note(5, 1))).is_log_start
    assert not Start(8, 7, 9, "").is_log_start


def test_co_partitioned_topics_must_be_equal():
    """The error names the topics and their counts. Other topics may have any number."""
    declared.check_partitions(
        {"otlp_spans": 9, "spillway_calls": 4, "otlp_metrics": 4, "spillway_dead_letters": 1}
    )
    with pytest.raises(declared.TopicsError, match="otlp_metrics 4, spillway_calls 8"):
        declared.check_partitions({"spillway_calls": 8, "otlp_metrics": 4})


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("STREAMS_HOLD_S", "1", "each must be at least the previous one"),
        ("STREAMS_WINDOW_S", "1.3", "multiples of 0.5 s"),
    ],
)
def test_times_that_do_not_fit_together_are_refused_by_name(monkeypatch, capsys, name, value, says):
    """The exit status is 64, before anything is read."""
    good = {
        "KAFKA": "h:1",
        "CLICKHOUSE_URL": "clickhouse://localhost",
        "STATE_DIR": "/tmp",
        "HEALTH_LISTEN": "h:2",
    }
    for key, text in (good | {name: value}).items():
        monkeypatch.setenv(f"SPILLWAY_{key}", text)
    with pytest.raises(SystemExit) as exit_:
        load(config.ExclusiveSettings)
    assert exit_.value.code == 64 and says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("topic", "key", "value", "allowed"),
    [
        ("otlp_spans", "message.timestamp.type", "CreateTime", "must be LogAppendTime"),
        ("spillway_calls", "max.message.bytes", "1048588", "must be at least 4194304"),
        ("spillway_network", "max.message.bytes", "4194303", "must be at least 4194304"),
    ],
)
def test_topics_that_cannot_hold_what_is_sent_are_named(topic, key, value, allowed):
    """The error names topic, key, value and what is allowed. Kafka's default limit is too small."""
    good = {name: {"max.message.bytes": "4194304"} for name in declared.CO_PARTITIONED}
    topics._check(good)
    with pytest.raises(declared.TopicsError, match=f"{topic}: {key} is {value}; {allowed}"):
        topics._check({**good, topic: {key: value}})


@pytest.mark.parametrize(
    ("config", "oldest_s"),
    [
        ({"retention.ms": "7200000", "segment.ms": "3600000"}, 10_800),
        ({"retention.ms": "-1", "segment.ms": "3600000"}, None),
        ({}, None),
    ],
)
def test_how_old_a_message_may_be(config, oldest_s):
    """A segment is kept until its newest message exceeds the retention. Unlimited means any age."""
    assert topics._oldest_s(config) == oldest_s
