"""The job exclusive with real Kafka and ClickHouse."""

import time

import broker
from spillway_contracts import names
from spillway_lab.testing.waiting import eventually
from spillway_streams.batches import columns
from spillway_streams.recorded import jaeger
from truth import World


def _count(clickhouse, table: str, cluster: str) -> int:
    """Returns the number of a cluster's rows in a table. Checks that no span has two rows."""
    column = "cluster" if table == "calls" else "source_cluster"
    sql = f"SELECT count(), uniqExact(trace_id, span_id) FROM {table} FINAL WHERE {column} = %(cluster)s"
    [(rows, distinct)] = clickhouse.execute(sql, {"cluster": cluster})
    assert rows == distinct
    return rows


def _committed(kafka: str, topic: str, partition: int) -> int:
    """Returns the offset that the job has committed for a partition, or 0."""
    return broker.committed(kafka, "spillway-exclusive", topic).get(partition, 0)


def _batches(records: list, cluster: str) -> dict[tuple[int, bytes, bytes], list[columns.Columns]]:
    """Returns the batches of calls that have rows of this cluster.

    Keys are identities: (partition, source, sequence). A value lists the batch and its repeats.
    """
    found: dict = {}
    for record in records:
        try:
            batch = columns.from_ipc(columns.CALLS, record.value)
        except columns.ColumnsError:
            continue  # garbage that another test has sent
        headers = dict(record.headers)
        identity = (
            record.partition,
            headers[names.KAFKA_HEADER_SOURCE],
            headers[names.KAFKA_HEADER_SEQUENCE],
        )
        if (batch["cluster"] == cluster).any():
            found.setdefault(identity, []).append(batch)
    return found


def _rows(batch: columns.Columns) -> list[tuple]:
    return [*zip(*(column.tolist() for column in batch.values()), strict=True)]


def _payloads(file, cluster: str, traces: int) -> list[bytes]:
    """Returns the first traces of a recording as messages.

    Each test needs a recording of its own, because a trace that was sent before is a repeat.
    """
    found = jaeger.in_time_order(jaeger.read(file))[:traces]
    return [batch.SerializeToString() for batch in jaeger.batches(found, cluster, max_spans=220)]


def test_real_traces_reach_both_outputs_and_garbage_does_not_stop_them(
    jobs, send, kafka, clickhouse, hotel_reservation
):
    """Every call and edge of real traces is in ClickHouse and in Kafka.

    A payload among them that does not decode becomes a dead letter with its reason and origin.
    """
    payloads = _payloads(hotel_reservation[1], "component-a", 100)
    send(names.KAFKA_TOPIC_OTLP_SPANS, [*payloads[:2], b"\xff not protobuf", *payloads[2:]])
    job = jobs("exclusive")
    eventually(lambda: _count(clickhouse, "calls", "component-a") == 600, "600 calls")
    eventually(lambda: _count(clickhouse, "edges", "component-a") == 500, "500 edges")
    assert job.counters()["dead_letters: undecodable"] == 1

    def calls() -> columns.Columns:
        batches = _batches(broker.read(kafka, names.KAFKA_TOPIC_CALLS), "component-a").values()
        return columns.concat(columns.CALLS, [batch for repeats in batches for batch in repeats])

    eventually(lambda: columns.length(calls()) == 600, "600 calls in the topic")
    assert (calls()["adjusted_count"].round(3) == 3.333).all()
    assert set(calls()["trace_spans"].tolist()) == {11}

    [letter] = [
        r for r in broker.read(kafka, names.KAFKA_TOPIC_DEAD_LETTERS) if r.value == b"\xff not protobuf"
    ]
    headers = dict(letter.headers)
    assert b"ExportTraceServiceRequest" in headers[names.KAFKA_HEADER_DEAD_LETTER_REASON]
    assert headers[names.KAFKA_HEADER_DEAD_LETTER_TOPIC] == names.KAFKA_TOPIC_OTLP_SPANS.encode()


def test_metrics_tell_the_lag(jobs, send):
    """Records wait in the partition of a worker that takes none, longer and longer.

    For a worker that takes them, no record waits, and the metrics state what it has stored.
    """
    world = World(seed=17)
    traces = [world.trace(int(time.time() * 1e6)) for _ in range(800)]
    payloads = [request.SerializeToString() for request in world.messages(traces, 40)]
    send(names.KAFKA_TOPIC_OTLP_SPANS, payloads, partition=0)
    full = {"SPILLWAY_STREAMS_FLUSH_PERIOD_S": "10", "SPILLWAY_STREAMS_MAX_UNSTORED_ROWS": "1000"}
    waits = ("consumer_lag_records", "0", names.KAFKA_TOPIC_OTLP_SPANS)
    for_s = ("consumer_lag_seconds", "0", names.KAFKA_TOPIC_OTLP_SPANS)
    slow = jobs("exclusive", **full)
    eventually(lambda: slow.metrics().get(waits, 0) > 0, "records that wait", seen=slow.tail)
    before = slow.metrics()[for_s]
    eventually(lambda: slow.metrics()[for_s] > before + 1, "a wait that grows")
    slow.process.kill()
    slow.process.wait()
    job = jobs("exclusive")
    eventually(lambda: job.metrics().get(("stored_rows_total", "calls"), 0) > 800, "calls", seen=job.tail)
    eventually(lambda: job.metrics().get(waits) == 0, "none that waits", seen=job.tail)
    metrics = job.metrics()
    assert metrics[for_s] == 0
    assert metrics["newest_record_timestamp_seconds", names.KAFKA_TOPIC_OTLP_SPANS] > time.time() - 600


def test_a_killed_worker_loses_nothing(jobs, send, clickhouse, hotel_reservation):
    """The worker is killed with SIGKILL while it holds traces in its window.

    Its successor stores all of them, each once.
    """
    slow = dict.fromkeys(
        ("SPILLWAY_STREAMS_WINDOW_S", "SPILLWAY_STREAMS_HOLD_S", "SPILLWAY_STREAMS_LIFE_S"), "60"
    )
    job = jobs("exclusive", **slow)  # no trace is closed before the kill
    send(names.KAFKA_TOPIC_OTLP_SPANS, _payloads(hotel_reservation[2], "component-b", 80), partition=0)
    eventually(
        lambda: job.state()["gauges"].get("open_spans", 0) >= 880, "spans in the window", seen=job.state
    )
    job.process.kill()
    job.process.wait()
    assert _count(clickhouse, "calls", "component-b") == 0
    heir = jobs("exclusive")
    eventually(lambda: _count(clickhouse, "calls", "component-b") == 480, "480 calls", 120, heir.state)
    eventually(lambda: _count(clickhouse, "edges", "component-b") == 400, "400 edges")


# A horizon so short that offsets are committed during a test: life + hold + remember is 4 s of log
# time.
SHORT = {
    "SPILLWAY_STREAMS_WINDOW_S": "1",
    "SPILLWAY_STREAMS_HOLD_S": "1",
    "SPILLWAY_STREAMS_LIFE_S": "1.5",
    "SPILLWAY_STREAMS_REMEMBER_S": "1.5",
}


def test_a_successor_repeats_what_it_must_and_nothing_else(jobs, send, kafka, clickhouse, hotel_reservation):
    """The worker is killed with SIGKILL after a part of its output is committed.

    The successor starts at the commit. A batch that it sends again equals the earlier batch, row by
    row.
    """
    topic, payloads = names.KAFKA_TOPIC_OTLP_SPANS, _payloads(hotel_reservation[3], "component-c", 100)
    first = jobs("exclusive", **SHORT)

    def some_committed() -> bool:
        if payloads:
            send(topic, [payloads.pop(0)], partition=2)
        return _committed(kafka, topic, 2) > 0

    eventually(some_committed, "a commit", 120, first.state)
    first.process.kill()
    first.process.wait()
    send(topic, payloads, partition=2)
    jobs("exclusive", **SHORT)
    eventually(lambda: _count(clickhouse, "calls", "component-c") == 600, "600 calls")

    def batches() -> dict:
        return _batches(broker.read(kafka, names.KAFKA_TOPIC_CALLS), "component-c")

    def spans() -> set:
        return {row[1:3] for repeats in batches().values() for batch in repeats for row in _rows(batch)}

    eventually(lambda: len(spans()) == 600, "600 calls in the topic")
    for identity, repeats in batches().items():
        assert all(_rows(batch) == _rows(repeats[0]) for batch in repeats), identity
    assert sum(columns.length(repeats[0]) for repeats in batches().values()) == 600


def test_a_successor_with_a_longer_horizon_leaves_no_gap(jobs, send, kafka, clickhouse, hotel_reservation):
    """The successor's settings reach further back than its predecessor's.

    It sends at once what the predecessor left, and skips nothing.
    """
    topic, payloads = names.KAFKA_TOPIC_OTLP_SPANS, _payloads(hotel_reservation[4], "component-d", 80)
    first = jobs("exclusive", **SHORT)
    before = _committed(kafka, topic, 3)
    send(topic, payloads[:2], partition=3)
    eventually(lambda: _committed(kafka, topic, 3) > before, "a commit", 120, first.state)
    first.process.kill()
    first.process.wait()
    send(topic, payloads[2:], partition=3)
    heir = jobs("exclusive")
    eventually(lambda: _count(clickhouse, "calls", "component-d") == 480, "480 calls", 60, heir.state)
