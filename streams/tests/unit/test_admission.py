"""Which cluster a message belongs to, and where admission continues after a crash."""

import pytest
from spillway_contracts import names
from spillway_runtime.settings import load
from spillway_streams.ingest import admission
from spillway_streams.ingest.admission import Gate, UnadmittedError
from spillway_streams.jobs import admitted
from spillway_streams.process import cluster_topics, config
from spillway_streams.process.cluster_topics import ClustersError, Source
from spillway_streams.process.counters import Counters
from spillway_streams.topics import acls

CLUSTER, ADMITTED = names.KAFKA_HEADER_CLUSTER, names.KAFKA_HEADER_ADMITTED


def test_a_topic_says_whose_it_is():
    """Each cluster has a topic for spans and one for metrics. Errors name invalid names."""
    assert cluster_topics.sources(["west"]) == {
        "otlp_spans.west": Source("west", "otlp_spans"),
        "otlp_metrics.west": Source("west", "otlp_metrics"),
    }
    assert cluster_topics.clusters("west, east,") == ["west", "east"] and cluster_topics.clusters("") == []
    for text, reason in (
        ("west.1,east", "west.1: must be"),
        ("a/b", "a/b"),
        ("west,west", "named twice"),
        ("1", "1: must"),
    ):
        with pytest.raises(ClustersError, match=reason):
            cluster_topics.clusters(text)


def test_headers_that_admit_did_not_write_say_nothing():
    """A missing header, an invalid text or number, and no headers at all: not admitted."""
    assert admission.origin(admission.headers("west", 7)) == ("west", 7)
    assert admission.origin(dict(admission.headers("west", 7))) == ("west", 7)
    whole = {CLUSTER: b"west", ADMITTED: b"7"}
    for odd in (
        {},
        {CLUSTER: b"west"},
        {ADMITTED: b"7"},
        whole | {CLUSTER: b""},
        whole | {CLUSTER: b"\xff"},
        whole | {ADMITTED: b"x"},
    ):
        assert admission.origin(odd) is None
    assert admission.origin(None) is None


def test_what_nobody_admitted_is_taken_only_by_choice():
    """Collectors of the previous version write to the topics of all clusters.

    Every such message is counted.
    """
    counters = Counters()
    assert Gate(False, counters).cluster(admission.headers("west", 7)) == "west"
    with pytest.raises(UnadmittedError, match="SPILLWAY_STREAMS_ACCEPT_UNADMITTED is off"):
        Gate(False, counters).cluster([("other", b"x")])
    assert Gate(True, counters).cluster(()) is None
    assert counters.snapshot() == {"unadmitted_messages": 1}


def test_a_note_of_admission_survives_the_broker_and_a_strangers_means_nothing():
    """The note made with a commit is read back. Other texts are ignored."""
    assert admitted.marked(admitted.note(42)) == 42
    assert [admitted.marked(text) for text in ("", "mark=", "mark=-1", "read=1 horizon=2")] == [None] * 4


def test_the_job_names_clusters_that_it_cannot_have(monkeypatch, capsys):
    """The error has the variable, the value and what is allowed. An empty list is an error."""
    for text, reason in (("west.1", "west.1: must be a letter"), (",", "at least one cluster")):
        monkeypatch.setenv("SPILLWAY_CLUSTERS", text)
        with pytest.raises(SystemExit):
            load(config.AdmitSettings)
        assert "SPILLWAY_CLUSTERS: " in (stderr := capsys.readouterr().err) and reason in stderr


def test_rights_with_a_cluster_are_that_clusters_or_all_clusters(tmp_path):
    """A user of one cluster gets the topics of that cluster, others get those of all."""
    file = tmp_path / "acls.yaml"
    file.write_text(
        'gate-{cluster}: {write: ["otlp_spans.{cluster}"]}\nreader: {read: ["otlp_spans.{cluster}", otlp_spans]}'
    )
    found = {(acl.principal, acl.name) for acl in acls.read(file, ["west", "east"])}
    assert found == {
        ("User:gate-west", "otlp_spans.west"),
        ("User:gate-east", "otlp_spans.east"),
        *(("User:reader", topic) for topic in ("otlp_spans.west", "otlp_spans.east", "otlp_spans")),
    }
