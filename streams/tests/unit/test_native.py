"""The native module as Python sees it: results and errors of a partition, reading of columns."""

import threading

import numpy as np
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from spillway_native import Partition, PayloadError, tracestate

AT_MS = 1_790_000_000_000
WIDTHS = {"i64": 8, "u64": 8, "f64": 8, "bool": 1, "str": 4}


def _request(services: list[str], trace: int = 1, parent: bytes = b"", **attributes: int) -> bytes:
    """A server span of each service, all of one trace, without a parent by default."""
    request = ExportTraceServiceRequest()
    for number, service in enumerate(services, 1):
        resource = request.resource_spans.add()
        for key, value in (("service.name", service), ("spillway.cluster", "c1")):
            resource.resource.attributes.add(key=key).value.string_value = value
        span = resource.scope_spans.add().spans.add(
            trace_id=trace.to_bytes(16, "big"),
            span_id=number.to_bytes(8, "big"),
            parent_span_id=parent,
            kind=2,
            start_time_unix_nano=AT_MS * 1_000_000,
            end_time_unix_nano=(AT_MS + 5) * 1_000_000,
        )
        span.attributes.add(key="spillway.class").value.string_value = f"{service} GET /x"
        for key, number_value in attributes.items():
            span.attributes.add(key=key).value.int_value = number_value
    return request.SerializeToString()


def _xxh64(text: bytes) -> int:
    """XXH64 with seed 0 of less than 32 bytes, as specified."""
    mask = (1 << 64) - 1
    p1, p2, p3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
    p4, p5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
    turned = lambda x, n: (x << n | (x & mask) >> (64 - n)) & mask  # noqa: E731
    number = lambda size: int.from_bytes(text[at : at + size], "little")  # noqa: E731
    found, at = (p5 + len(text)) & mask, 0
    while at + 8 <= len(text):
        lane = turned(number(8) * p2 & mask, 31) * p1 & mask
        found, at = (turned(found ^ lane, 27) * p1 + p4) & mask, at + 8
    if at + 4 <= len(text):
        found, at = (turned(found ^ number(4) * p1 & mask, 23) * p2 + p3) & mask, at + 4
    for byte in text[at:]:
        found = turned(found ^ byte * p5 & mask, 11) * p1 & mask
    for shift, factor in ((33, p2), (29, p3), (32, 1)):
        found = (found ^ found >> shift) * factor & mask
    return found


def _partition(**options) -> Partition:
    return Partition(**{"first_offset": 7, "log_start": True, "partitions": 5, **options})


def _values(batch, name: str):
    kind, buffer = batch.column(name)
    dtype = {"i64": "<i8", "u64": "<u8", "f64": "<f8", "bool": "?", "str": "<u4", "hex": "u1"}[kind]
    values = np.frombuffer(buffer, dtype)
    return [batch.dictionary[code] for code in values] if kind == "str" else values


def test_a_partition_takes_closes_and_tells_what_is_done():
    """Before the first message there is nothing to return.

    Then there are the clock of the log, open spans, and rows once their trace is silent. When a
    horizon has passed, there is the offset before which everything is done.
    """
    partition = _partition()
    partition.advance(AT_MS)
    assert (partition.clock_ms, partition.open_spans, partition.close()) == (0, 0, None)
    assert partition.add(_request(["a", "b"]), 7, AT_MS) == []
    assert (partition.clock_ms, partition.open_spans, partition.close()) == (AT_MS, 2, None)
    partition.add(_request(["a", "b"]), 8, AT_MS + 1000)  # the same spans again
    partition.add(_request(["a", "b"]), 8, AT_MS + 1000)  # and the same message again
    partition.advance(AT_MS + 4000)
    closed = partition.close()
    assert (closed.traces, closed.calls.rows, closed.edges.rows, closed.commit_offset) == (1, 2, 0, None)
    assert partition.counters() == {"duplicate_span": 2, "message_repeated": 1}
    assert partition.counters() == {}
    assert (partition.open_spans, partition.known_traces) == (0, 1)
    partition.advance(AT_MS + 101_500)
    closed = partition.close()
    assert (closed.calls.rows, closed.commit_offset) == (0, 8)
    assert partition.known_traces == 0


def test_every_wrong_value_is_named_at_once():
    """The error has each keyword, its value and what is allowed. A wrong kind sets no rule."""
    with pytest.raises(ValueError) as raised:
        _partition(partitions=0, tick_ms=7, window_ms=1, max_trace_spans=0, span_sample=float("nan"))
    for part in (
        "partitions: 0; must be",
        "tick_ms: 7; must be",
        "window_ms: 1; must be",
        "max_trace_spans: 0; must be",
    ):
        assert part in str(raised.value)
    assert "span_sample: NaN; must be 0 to 1" in str(raised.value)
    with pytest.raises(ValueError, match="kind wrong: must be pinned, merged"):
        _partition().set_rules([(0, "a", "GET", "/x", "/y", "wrong")])
    with pytest.raises(ValueError, match="probability: 0;"):
        tracestate(0.0)


def test_a_payload_that_is_none_is_an_error_after_which_all_goes_on():
    """It is a ValueError. The clock advances, no span is open, the next message is taken."""
    partition = _partition()
    with pytest.raises(PayloadError, match="not an ExportTraceServiceRequest"):
        partition.add(b"\xff", 7, AT_MS)
    assert issubclass(PayloadError, ValueError)
    assert (partition.clock_ms, partition.open_spans) == (AT_MS, 0)
    partition.add(_request(["a"]), 8, AT_MS)
    assert partition.open_spans == 1


def test_what_is_rejected_comes_back_as_a_request_of_its_own():
    """One request for each reason, with its resource, and with only the rejected spans."""
    [(reason, payload, spans)] = _partition().add(_request(["a", "-"]), 7, AT_MS)
    found = ExportTraceServiceRequest.FromString(payload)
    assert "service name cannot be part of a class id" in reason and spans == 1
    assert [resource.resource.attributes[0].value.string_value for resource in found.resource_spans] == ["-"]


def test_columns_have_the_length_of_their_kind_and_cannot_be_written():
    """All columns of filled and empty batches. The error for an unknown one names the others."""
    partition = _partition(span_sample=1.0)
    partition.add(_request(["a", "b", "c"]), 7, AT_MS, AT_MS)
    arrivals = partition.arrivals()
    partition.advance(AT_MS + 4000)
    closed = partition.close()
    assert (arrivals.rows, closed.calls.rows, closed.spans.rows) == (3, 3, 3)
    for batch in (arrivals, closed.calls, closed.edges, closed.network, closed.spans, partition.arrivals()):
        for name in batch.columns:
            kind, buffer = batch.column(name)
            width = WIDTHS.get(kind) or {"trace_id": 32}.get(name, 16)
            assert len(buffer) == len(memoryview(buffer)) == batch.rows * width, name
            assert memoryview(buffer).readonly
    assert bytes(_values(closed.calls, "trace_id")[:32]) == b"%032x" % 1
    assert set(bytes(_values(closed.spans, "parent_id"))) == {0}
    assert sorted(_values(closed.calls, "duration_us")) == [5000] * 3
    with pytest.raises(KeyError, match="column nothing: must be one of started_at, trace_id"):
        closed.calls.column("nothing")


def test_columns_outlive_what_they_came_from():
    """A view keeps its memory after batch, closed and partition are gone."""
    partition = _partition()
    partition.add(_request(["a"]), 7, AT_MS)
    partition.advance(AT_MS + 4000)
    values = _values(partition.close().calls, "started_at")
    del partition
    assert values.tolist() == [AT_MS * 1000]


def test_rows_go_to_the_partition_that_the_collector_chooses_too():
    """The partition is xxhash64 of the service modulo partitions.

    Slices cover all rows, one for each (tick, partition), and are numbered by tick.
    """
    assert (_xxh64(b""), _xxh64(b"a")) == (0xEF46DB3751D8E999, 0xD24EC4F1A98C6E5B)  # published
    partition = _partition()
    services = [f"service-{number}" for number in range(40)]
    partition.add(_request(services), 7, AT_MS, AT_MS)
    partition.advance(AT_MS + 4000)
    hot, cold = partition.arrivals(), partition.close().calls
    for batch in (hot, cold):
        names, covered = _values(batch, "service"), []
        for _, q, first, end in batch.slices:
            assert {_xxh64(name.encode()) % 5 for name in names[first:end]} == {q}
            covered += range(first, end)
        assert covered == list(range(40)) and sorted(names) == sorted(services)
    assert {sequence for sequence, *_ in cold.slices} == {(AT_MS // 500 + 4) << 10}
    assert {sequence for sequence, *_ in hot.slices} == {0}


def test_only_what_is_young_counts_as_an_arrival_and_a_stamped_request_once():
    """If spans of a service carry requests in flight, spans without them are its application's."""
    partition = _partition(hot_ms=10_000)
    partition.add(_request(["a"], **{"spillway.load.in_flight": 2}), 7, AT_MS, AT_MS + 9_999)
    partition.add(_request(["a"], parent=bytes([9] * 8)), 8, AT_MS, AT_MS + 9_999)
    partition.add(_request(["old"]), 9, AT_MS, AT_MS + 10_000)
    arrivals = partition.arrivals()
    assert _values(arrivals, "service") == ["a"] and _values(arrivals, "stamped").tolist() == [1.0]
    assert partition.counters() == {"arrival_beside_stamped": 1}


def test_threads_may_ask_while_another_works():
    """Several threads add and close: every span is open or closed once, whatever is queried."""
    partition, rows, done = _partition(), [], threading.Event()

    def close() -> None:
        while not done.is_set() or partition.open_spans:
            if closed := partition.close():
                rows.append(closed.calls.rows)

    closer = threading.Thread(target=close, daemon=True)
    closer.start()
    for offset in range(300):
        partition.add(_request(["a", "b"], trace=offset + 1), 7 + offset, AT_MS + offset * 100)
        assert partition.open_spans >= 0 and partition.clock_ms == AT_MS + offset * 100
    partition.advance(AT_MS + 40_000)
    done.set()
    closer.join(60)
    assert not closer.is_alive() and sum(rows) == 600


def test_what_a_sampled_trace_carries():
    """Sampling thresholds in the format that the other components write."""
    assert tracestate(0.25) == "ot=th:c"
