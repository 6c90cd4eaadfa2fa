"""Holds spans until their trace is complete enough to compute exclusive times.

A trace closes when nothing of it has arrived for `seconds` and no client span still waits for the
server span that made the call; one that waits closes after `hold_seconds`. Time is the Kafka
timestamp of the messages of one partition, so a replayed backlog closes the same traces as the
live stream did; `advance` moves it on while the partition is idle. Memory is bounded: past
`max_spans` the trace that was silent longest closes first, past `max_trace_spans` a trace closes
with what it has. All of that is counted.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from spillway_streams.counters import Counters
from spillway_streams.spans import Kind, Span

_REMEMBERED_TRACES = 100_000


@dataclass(frozen=True)
class Limits:
    seconds: float = 2.0
    hold_seconds: float = 10.0
    max_spans: int = 500_000
    max_trace_spans: int = 20_000


@dataclass(slots=True)
class Trace:
    """Spans of one trace and the offsets of the messages that brought them."""

    trace_id: str
    last_at: float
    spans: list[Span] = field(default_factory=list)
    offsets: set[int] = field(default_factory=set)

    def waits(self) -> bool:
        """Whether a client span's server span, the one that made the call, is still missing."""
        present = {span.span_id: span for span in self.spans}
        return any(span.kind is Kind.CLIENT and _is_orphan(span, present) for span in self.spans)


def _is_orphan(span: Span, present: dict[str, Span]) -> bool:
    for _ in range(len(present) + 1):
        if not span.parent_id:
            return False
        if span.parent_id not in present:
            return True
        span = present[span.parent_id]
        if span.kind is Kind.SERVER:
            return False
    return False  # a cycle of parents: nothing to wait for


class Window:
    """The open traces of one Kafka partition. Not thread-safe."""

    def __init__(self, limits: Limits, counters: Counters) -> None:
        self._limits = limits
        self._counters = counters
        self._active: OrderedDict[str, Trace] = OrderedDict()  # by last arrival, oldest first
        self._waiting: OrderedDict[str, Trace] = OrderedDict()  # silent, but a client span is orphaned
        self._full: list[Trace] = []
        self._closed: OrderedDict[str, None] = OrderedDict()
        self._now = float("-inf")
        self.spans = 0

    def add(self, spans: list[Span], offset: int, at: float) -> int:
        """Takes the spans of one message (Kafka timestamp `at`, Unix seconds).

        Returns the number of traces that now hold the offset.
        """
        self.advance(at)
        touched = set()
        for span in spans:
            trace = self._trace(span.trace_id)
            trace.spans.append(span)
            trace.offsets.add(offset)
            touched.add(id(trace))
            self.spans += 1
            if len(trace.spans) >= self._limits.max_trace_spans:
                self._counters.add("window_trace_too_large")
                self._full.append(self._active.pop(span.trace_id))
        return len(touched)

    def _trace(self, trace_id: str) -> Trace:
        trace = self._active.pop(trace_id, None) or self._waiting.pop(trace_id, None)
        if trace is None:
            trace = Trace(trace_id, self._now)
            if trace_id in self._closed:
                self._counters.add("late_trace")
        trace.last_at = self._now
        self._active[trace_id] = trace
        return trace

    def advance(self, now: float) -> None:
        """Moves the partition's time on; it never goes back."""
        self._now = max(self._now, now)

    def close(self) -> list[Trace]:
        """Removes and returns the traces that are due."""
        closed = self._full
        self._full = []
        closed.extend(self._due())
        while self.spans - sum(len(trace.spans) for trace in closed) > self._limits.max_spans:
            self._counters.add("window_overflow")
            closed.append((self._waiting or self._active).popitem(last=False)[1])
        for trace in closed:
            self.spans -= len(trace.spans)
            self._closed[trace.trace_id] = None
        while len(self._closed) > _REMEMBERED_TRACES:
            self._closed.popitem(last=False)
        return closed

    def _due(self) -> Iterator[Trace]:
        while self._waiting and self._silent(self._waiting) >= self._limits.hold_seconds:
            self._counters.add("trace_closed_incomplete")
            yield self._waiting.popitem(last=False)[1]
        while self._active and self._silent(self._active) >= self._limits.seconds:
            trace_id, trace = self._active.popitem(last=False)
            if not trace.waits():
                yield trace
            elif self._now - trace.last_at < self._limits.hold_seconds:
                self._waiting[trace_id] = trace
            else:
                self._counters.add("trace_closed_incomplete")
                yield trace

    def _silent(self, traces: OrderedDict[str, Trace]) -> float:
        return self._now - next(iter(traces.values())).last_at
