"""When traces close, what stays bounded, and which messages may be acknowledged."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from spillway_streams.counters import Counters
from spillway_streams.ledger import Ledger
from spillway_streams.spans import Kind
from spillway_streams.window import Limits, Window

SERVER, CLIENT = Kind.SERVER, Kind.CLIENT


def ids(traces) -> list[list[str]]:
    return [[span.span_id for span in trace.spans] for trace in traces]


def test_a_trace_closes_after_silence_by_the_messages_own_time(span, counters):
    """Time is the Kafka timestamp: a backlog closes traces as the live stream did, and an idle
    partition is moved on from outside."""
    window = Window(Limits(seconds=2), counters)
    window.add([span("s", "", SERVER, 0, 9)], 0, at=100.0)
    window.add([span("t", "", SERVER, 0, 9, trace_id="2" * 32)], 1, at=101.5)
    assert window.close() == []
    window.advance(102.1)
    assert ids(window.close()) == [["s"]]
    window.advance(103.6)
    [trace] = window.close()
    assert trace.offsets == {1} and window.spans == 0


def test_a_client_span_waits_for_the_server_span_that_made_the_call(span, counters):
    """A call that ended long before its parent does is not closed without it; at last it is, counted."""
    window = Window(Limits(seconds=2, hold_seconds=10), counters)
    window.add([span("c", "s", CLIENT, 10, 20)], 0, at=100.0)
    window.advance(105.0)
    assert window.close() == []
    window.add([span("s", "", SERVER, 0, 99)], 1, at=106.0)
    window.advance(108.1)
    [trace] = window.close()
    assert ids([trace]) == [["c", "s"]] and trace.offsets == {0, 1}
    window.add([span("d", "never", CLIENT, 10, 20, trace_id="3" * 32)], 2, at=110.0)
    window.advance(120.1)
    assert ids(window.close()) == [["d"]] and counters["trace_closed_incomplete"] == 1


def test_memory_is_bounded(span, counters):
    """Past the bound the trace that was silent longest closes first; one huge trace closes in parts."""
    window = Window(Limits(max_spans=10, max_trace_spans=5), counters)
    for i in range(12):
        window.add([span(f"{i}", "", SERVER, 0, 1, trace_id=f"{i:032x}")], i, at=100.0 + i / 100)
    assert ids(window.close()) == [["0"], ["1"]] and counters["window_overflow"] == 2
    window.add([span(f"x{i}", "", SERVER, 0, 1) for i in range(12)], 12, at=101.0)
    assert [len(trace) for trace in ids(window.close())][:2] == [5, 5]
    assert counters["window_trace_too_large"] == 2


def test_a_late_span_is_counted(span, counters):
    """What comes after its trace was closed is a trace of its own, and counted."""
    window = Window(Limits(), counters)
    window.add([span("s", "", SERVER, 0, 1)], 0, at=1.0)
    window.advance(9.0)
    window.close()
    window.add([span("late", "s", SERVER, 0, 1)], 1, at=10.0)
    assert counters["late_trace"] == 1


@given(st.integers(0, 2**32))
@settings(max_examples=30)
def test_splitting_and_permuting_messages_changes_no_trace(span, seed):
    """The same spans at the same times close as the same traces, however they are packed."""
    random_ = random.Random(seed)
    spans = [span(f"{i}", "", SERVER, i, i + 1, trace_id=f"{i % 4:032x}") for i in range(20)]

    def closed(batches) -> set[frozenset[str]]:
        window = Window(Limits(), Counters())
        for offset, batch in enumerate(batches):
            window.add(batch, offset, at=50.0)
        window.advance(60.0)
        return {frozenset(trace) for trace in ids(window.close())}

    shuffled = list(spans)
    random_.shuffle(shuffled)
    cut = random_.randint(0, 20)
    assert closed([spans]) == closed([shuffled[:cut], shuffled[cut:]])


def test_messages_are_acknowledged_in_order_only():
    """A message that is done waits for the ones before it; an unknown offset is ignored."""
    ledger: Ledger[str] = Ledger()
    ledger.hold(0, "first", 2)
    ledger.hold(1, "second", 1)
    ledger.hold(2, "empty", 0)
    ledger.release(1)
    ledger.release(99)
    assert ledger.take_done() == []
    ledger.release(0)
    ledger.release(0)
    assert ledger.take_done() == ["first", "second", "empty"] and len(ledger) == 0
