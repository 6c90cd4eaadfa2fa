"""exclusive against real Kafka and ClickHouse."""

from spillway_contracts import names
from spillway_lab.testing.waiting import eventually
from spillway_streams import columns, jaeger


def _count(clickhouse, table: str, cluster: str) -> int:
    column = "cluster" if table == "calls" else "source_cluster"
    sql = f"SELECT count(), uniqExact(trace_id, span_id) FROM {table} FINAL WHERE {column} = %(cluster)s"
    [(rows, distinct)] = clickhouse.execute(sql, {"cluster": cluster})
    assert rows == distinct
    return rows


def _names(value: bytes) -> set[bytes]:
    """Clusters in one message; none in what another test sent to be refused."""
    try:
        return {name.encode() for name in columns.from_ipc(columns.CALLS, value)["cluster"]}
    except columns.ColumnsError:
        return set()


def _payloads(files, cluster: str, traces: int) -> list[bytes]:
    found = jaeger.in_time_order(jaeger.read(files[0]))[:traces]
    return [batch.SerializeToString() for batch in jaeger.batches(found, cluster, max_spans=220)]


def test_real_traces_reach_both_outputs_and_garbage_does_not_stop_them(
    jobs, send, read_all, clickhouse, hotel_reservation
):
    """Every call and edge of real traces is in ClickHouse and in Kafka; a payload that does not decode,
    sent between them, is a dead letter with its reason and origin."""
    payloads = _payloads(hotel_reservation, "component-a", 100)
    send(names.KAFKA_TOPIC_OTLP_SPANS, [*payloads[:2], b"\xff not protobuf", *payloads[2:]])
    job = jobs("exclusive")
    eventually(lambda: _count(clickhouse, "calls", "component-a") == 600, "600 calls")
    eventually(lambda: _count(clickhouse, "edges", "component-a") == 500, "500 edges")
    assert job.counters()["dead_letters: undecodable"] == 1

    values = [record.value for record in read_all(names.KAFKA_TOPIC_CALLS)]
    batches = [columns.from_ipc(columns.CALLS, value) for value in values if b"component-a" in _names(value)]
    calls = columns.concat(columns.CALLS, batches)
    calls = columns.take(calls, calls["cluster"] == "component-a")
    assert columns.length(calls) == 600
    assert (calls["adjusted_count"].round(3) == 3.333).all()

    [letter] = [r for r in read_all(names.KAFKA_TOPIC_DEAD_LETTERS) if r.value == b"\xff not protobuf"]
    headers = dict(letter.headers)
    assert b"ExportTraceServiceRequest" in headers[names.KAFKA_HEADER_DEAD_LETTER_REASON]
    assert headers[names.KAFKA_HEADER_DEAD_LETTER_TOPIC] == names.KAFKA_TOPIC_OTLP_SPANS.encode()


def test_a_killed_worker_loses_nothing(jobs, send, committed, clickhouse, hotel_reservation):
    """kill -9 while traces are held in the window, and what came after them is acknowledged: its successor
    stores all of them, each once."""
    job = jobs("exclusive", SPILLWAY_WINDOW="60")  # no trace is closed before the kill
    topic = names.KAFKA_TOPIC_OTLP_SPANS
    send(topic, _payloads(hotel_reservation, "component-b", 80), partition=0)
    eventually(lambda: job.counters().get("spans", 0) >= 880, "spans in the window", seen=job.counters)
    # Nothing holds this one: when it is acknowledged, so is whatever was to be acknowledged before it.
    before = committed("exclusive", topic, 1)
    send(topic, [b"\xff held by nothing"], partition=1)
    eventually(lambda: committed("exclusive", topic, 1) > before, "an acknowledgement", seen=job.counters)
    job.process.kill()
    job.process.wait()
    assert _count(clickhouse, "calls", "component-b") == 0
    jobs("exclusive")
    eventually(lambda: _count(clickhouse, "calls", "component-b") == 480, "480 calls", 120)
    eventually(lambda: _count(clickhouse, "edges", "component-b") == 400, "400 edges")
